"""Request and response headers, and whole frames in both directions.

A request's header has version 2 (with tagged fields) if the body is flexible, otherwise version 1;
client_id is never a compact string. A response's header has version 1 if the body is flexible,
otherwise 0. ApiVersions responses always have version 0, so that a client can read them before it
knows the versions (KIP-511).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quafka_proto.codec import encode
from quafka_proto.errors import Malformed, UnsupportedVersion
from quafka_proto.message import REQUESTS, Buffer, Message
from quafka_proto.primitives import skip_tagged
from quafka_proto.schema import request_type

_API_VERSIONS_KEY = 18
_FIXED = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_SIZE = struct.Struct(">i")
_RESPONSE = struct.Struct(">ii")
_MOST_TAGS = 100
"""The maximum number of tagged fields to skip: no header has one yet."""
_flexible: dict[tuple[int, int], bool] = {}
"""Whether the versions of the APIs seen so far, all of them described, are flexible."""


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(data: bytes) -> tuple[RequestHeader, int]:
    """The header of a request frame without its length prefix, and the position of the body.

    Raises:
        UnsupportedVersion: no schema for the API or version: the header's end is unknown.
        Malformed: cut short or garbled.
    """
    try:
        key, version, correlation_id, length = _FIXED.unpack_from(data)
        flexible = _flexible.get((key, version))
        if flexible is None:
            request = REQUESTS.get(key) or request_type(key)
            if request is None or version not in request.versions:
                raise UnsupportedVersion(key, version, correlation_id)
            flexible = _flexible[key, version] = version in request.flexible
        at = _FIXED.size
        client_id = None
        if length >= 0:
            client_id = data[at : at + length].decode()
            at += length
        if flexible:
            at = skip_tagged(data, at, len(data), [_MOST_TAGS]) if data[at] else at + 1
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise Malformed(f"a request header is cut short or garbled: {e}") from e
    if at > len(data):
        raise Malformed("a request header is cut short")
    return RequestHeader(key, version, correlation_id, client_id), at


def encode_response(correlation_id: int, response: Message, version: int) -> list[Buffer]:
    """A whole response frame with its length prefix. Record bytes are passed by reference."""
    head = _response_head(correlation_id, type(response), version)
    buffers = encode(response, version, head)
    _SIZE.pack_into(head, 0, sum(map(len, buffers)) - _SIZE.size)
    return buffers


def frame_response(
    correlation_id: int, response_type: type[Message], version: int, body: list[Buffer]
) -> list[Buffer]:
    """The frame of an encoded response. Does not change `body`."""
    return _framed(_response_head(correlation_id, response_type, version), body)


def encode_request(
    correlation_id: int, client_id: str | None, request: Message, version: int
) -> list[Buffer]:
    """A whole request frame with its length prefix."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = bytearray(4) + _FIXED.pack(request.api_key, version, correlation_id, length) + name
    if version in request.flexible:
        head.append(0)
    return _framed(head, encode(request, version))


def decode_response_header(
    response_type: type[Message], version: int, data: bytes
) -> tuple[int, int]:
    """The correlation id of a response frame without its length prefix, and the body's position.

    Raises:
        Malformed: cut short.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(data)
        at = _CORRELATION.size
        if version in response_type.flexible and response_type.api_key != _API_VERSIONS_KEY:
            at = skip_tagged(data, at, len(data), [_MOST_TAGS])
    except (struct.error, IndexError) as e:
        raise Malformed(f"a response header is cut short: {e}") from e
    return correlation_id, at


def _response_head(correlation_id: int, response_type: type[Message], version: int) -> bytearray:
    """The length prefix, still empty, and the header."""
    head = bytearray(_RESPONSE.pack(0, correlation_id))
    flexible = response_type.flexible
    if flexible.low <= version <= flexible.high and response_type.api_key != _API_VERSIONS_KEY:
        head.append(0)  # no tagged fields
    return head


def _framed(head: bytearray, body: list[Buffer]) -> list[Buffer]:
    """Prepend the length. Small leading parts are joined, so that one write sends them."""
    first = body[0]
    head += first
    _SIZE.pack_into(head, 0, len(head) + sum(map(len, body[1:])) - _SIZE.size)
    return [head, *body[1:]]
