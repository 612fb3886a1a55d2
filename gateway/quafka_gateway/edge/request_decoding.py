"""Decodes frames into requests. Long requests are decoded in slices of the event loop."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from quafka_gateway.edge import quirks
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.handlers.order import Order
from quafka_gateway.responses.response_length import is_long
from quafka_gateway.tenant import Tenant
from quafka_loop import clock
from quafka_loop.slices import SLICE_SECONDS, in_slices
from quafka_proto.codec import decode_front, decode_in_steps
from quafka_proto.errors import Malformed, UnsupportedVersion
from quafka_proto.headers import RequestHeader, decode_request_header
from quafka_proto.message import Message

SHORT = 8 << 10
"""Frames up to this size are decoded at once: some milliseconds at most."""


class Decoded(NamedTuple):
    """A decoded request of an API that this gateway serves.

    Attributes:
        end: where the body ends in the frame; 0 if it was decoded in slices.
    """

    header: RequestHeader
    api: AnyApi
    request: Message
    end: int = 0


@dataclass(frozen=True, slots=True)
class Decoding:
    """A long request: its header and one slice of its body are decoded."""

    header: RequestHeader
    api: AnyApi
    steps: Generator[None, None, tuple[Message, int]]

    async def finish(self) -> Decoded:
        """Decode the rest in slices. Raises Malformed."""
        request, _ = await in_slices(self.steps)
        return Decoded(self.header, self.api, request)


def decode_at_once(apis: Mapping[int, AnyApi], frame: bytes) -> Decoded:
    """Decode a request that is like one which took no slices. Raises Malformed."""
    header, at = decode_request_header(frame)
    api = apis[header.api_key]
    at = quirks.body_start(header, frame, at)
    return Decoded(header, api, *decode_front(api.request, header.api_version, frame, at))


def decode_request(apis: Mapping[int, AnyApi], frame: bytes) -> Decoded | Decoding:
    """Decode header and body; of a long body, as much as one slice allows.

    Raises:
        Malformed: the frame is not a request, or not of an API and version served here.
    """
    try:
        header, at = decode_request_header(frame)
        api = apis[header.api_key]
        versions = api.versions
    except UnsupportedVersion as e:
        return _unknown_version(apis, e.api_key, e.api_version, e.correlation_id)
    except KeyError as e:
        raise Malformed(f"API key {e} is not served here") from e
    if not versions.low <= header.api_version <= versions.high:
        return _unknown_version(apis, *header[:3])
    at = quirks.body_start(header, frame, at)
    # Bytes after the body are ignored, as in Kafka: kafka-go's DescribeAcls has one byte too many.
    if len(frame) <= SHORT:
        request, end = decode_front(api.request, header.api_version, frame, at)
        return Decoded(header, api, request, end)
    steps = decode_in_steps(api.request, header.api_version, frame, at)
    until = clock.perf_counter() + SLICE_SECONDS
    try:
        while clock.perf_counter() < until:
            next(steps)
    except StopIteration as end:
        return Decoded(header, api, *end.value)
    return Decoding(header, api, steps)


def order_of(api: AnyApi, request: Message, size: int, tenant: Tenant | None = None) -> Order:
    """Return what a request reads and writes. `size`: bytes of its frame. `tenant`: the client's,
    if rules restrict clients.

    A long request is alone in its lane: its handler yields to other work, and a later request must
    not pass it.
    """
    if not api.order.in_lane:
        return api.order
    if size > SHORT and is_long(request):
        return _alone(api.order)
    if tenant is not None and api.is_unready is not None and api.is_unready(request, tenant):
        return _alone(api.order)
    return api.order


@cache
def _alone(order: Order) -> Order:
    return replace(order, in_lane=False)


def _unknown_version(
    apis: Mapping[int, AnyApi], key: int, version: int, correlation_id: int
) -> Decoded:
    """Return the request that stands for an unknown version. Raises Malformed if there is none.

    Only ApiVersions has one (KIP-511); it is answered as version 0.
    """
    api = apis.get(key)
    if api is None or api.unknown_version is None:
        name = api.name if api else f"API key {key}"
        raise Malformed(f"{name} version {version} is not served here")
    return Decoded(RequestHeader(key, 0, correlation_id, None), api, api.unknown_version())
