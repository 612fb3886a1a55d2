"""Runs the handler of a request, encodes its response and counts both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TypeGuard

from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_gateway.cluster.parked_time import begin_request
from quafka_gateway.context import RequestContext, Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.in_flight import InFlightRequest
from quafka_gateway.edge.long_responses import LongResponses
from quafka_gateway.edge.request_trace import ConnectionTracing
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_gateway.responses.error_codes import error_codes, error_codes_in_steps
from quafka_gateway.responses.response_length import is_long
from quafka_gateway.stats import SlowRequest
from quafka_proto.codec import encode_in_steps
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import encode_response, frame_response
from quafka_proto.message import Message
from quafka_telemetry.log_context import CURRENT
from quafka_telemetry.slices import in_slices
from quafka_telemetry.tracing import NO_SPAN

log = logging.getLogger("quafka.gateway.connection")


class RequestServing:
    """Serves the requests of one connection, each in a task of its own."""

    def __init__(
        self,
        services: Services,
        client: ConnectedClient,
        tracing: ConnectionTracing,
        long_responses: LongResponses,
        release: Callable[[InFlightRequest], None],
        give_up: Callable[[InFlightRequest, str], None],
    ) -> None:
        """`release` is called when a request's bytes are not needed any more, `give_up` with the
        reason if the request has no response, so that the connection must be closed."""
        self._services = services
        self._client = client
        self._client_host = client.kafka_host
        self._tracing = tracing
        self._long_responses = long_responses
        self._release = release
        self._give_up = give_up

    async def serve(self, request: InFlightRequest) -> bool:
        """Put the encoded response into the request; return False if it has been given up."""
        header, api = request.header, request.api
        waited = begin_request()
        began = time.perf_counter()
        context = RequestContext(
            self._services,
            header.api_version,
            header.client_id,
            self._client.serial,
            NO_SPAN if request.trace is None else request.trace.request,
            self._client_host,
            header.correlation_id,
        )
        CURRENT.set(context)
        errors: Collection[int] = ()
        response: Message | EncodedResponse | None = None
        failure = ""
        try:
            if request.may_be_long:
                async with self._long_responses.admitted(request):
                    response = await api.handle(request.message, context)
                    await _encode(request, response)
                    self._long_responses.hold(request)
            else:
                response = await api.handle(request.message, context)
                await _encode(request, response)
        except UnavailableError as e:
            # These responses have no error code for "try again"; a closed connection means that.
            errors, failure = (ErrorCode.BROKER_NOT_AVAILABLE,), f"{api.name} needs the broker: {e}"
        except Exception:
            log.exception("%s v%d from %s failed", api.name, header.api_version, self._client)
            errors, failure = (ErrorCode.UNKNOWN_SERVER_ERROR,), "internal error"
        finally:
            self._release(request)
        if not failure:
            if _takes_slices(response, request):
                errors = await in_slices(error_codes_in_steps(response))
            else:
                errors = error_codes(response)
        self._count(request, errors, time.perf_counter() - began - waited.seconds, waited.seconds)
        if failure:
            self._give_up(request, failure)
        return not failure

    def _count(
        self,
        request: InFlightRequest,
        errors: Collection[int],
        seconds: float,
        parked_seconds: float,
    ) -> None:
        """Count the request; end its trace, or begin one late if it was slow or has failed."""
        api, trace = request.api, request.trace
        if trace is None:
            trace = self._tracing.trace_late(api, request.header, errors, seconds, parked_seconds)
        else:
            trace.begin_write(errors, seconds, parked_seconds)
        stats = self._services.stats
        if stats.count_request(api.name, errors, seconds, parked_seconds):
            stats.slow.append(
                SlowRequest(
                    time.time(),
                    api.name,
                    request.header.client_id or "",
                    str(self._client),
                    seconds,
                    parked_seconds,
                    tuple(errors),
                    "" if trace is None else trace.trace_id,
                )
            )


async def _encode(request: InFlightRequest, response: Message | EncodedResponse | None) -> None:
    """Make the bytes of a response. Raises ValueError where a field cannot hold its value."""
    if response is None:
        return
    correlation_id, version = request.header.correlation_id, request.header.api_version
    with NO_SPAN if request.trace is None else request.trace.start_encoding():
        if isinstance(response, EncodedResponse):
            body, request.shared = response.body, response.shared
            request.response = frame_response(correlation_id, response.kind, version, body)
        elif _takes_slices(response, request):
            body = await in_slices(encode_in_steps(response, version))
            request.response = frame_response(correlation_id, type(response), version, body)
        else:
            request.response = encode_response(correlation_id, response, version)


def _takes_slices(
    response: Message | EncodedResponse | None, request: InFlightRequest
) -> TypeGuard[Message]:
    """Whether a response is so long that work on it takes slices of the event loop."""
    return isinstance(response, Message) and request.checks_length and is_long(response)
