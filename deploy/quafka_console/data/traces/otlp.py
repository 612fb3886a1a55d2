"""Reads OTLP over HTTP (protobuf), within bounds: anybody who reaches the console may send it.

protobuf makes an object for each message, also for an empty one of two bytes. So the messages are
walked here as they are on the wire, and only one span at a time becomes objects.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from quafka_console.data.traces.spans import TracedPlace, TraceSpan
from quafka_telemetry import semconv

MOST_BYTES = 4 << 20
"""Of a request's body, as it is sent."""
_MOST_UNPACKED = 8 << 20
_MOST_SPANS = 10_000
_MOST_PARTS = 50_000
"""Fields of the messages around spans."""
_MOST_MESSAGE = 64 << 10
"""Bytes of a span or a resource; larger ones are left out."""
_MOST_ATTRIBUTES = 64
_MOST_PLACES = 32
_MOST_LINKS = 32
_LONGEST = 500
_TRACE_ID, _SPAN_ID = 16, 8  # bytes
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RESOURCE_SPANS = 1
_RESOURCE, _SCOPE_SPANS = 1, 2
_SPANS = 2


class BadExportError(ValueError):
    """The body is not an export of spans, or is too large."""


def spans_of(body: bytes, encoding: str) -> list[TraceSpan]:
    """The spans of a request's body. `encoding`: its Content-Encoding. Takes CPU time.

    Raises BadExportError.
    """
    try:
        return list(_spans(_Fields(), memoryview(_unpacked(body, encoding))))
    except DecodeError as e:
        raise BadExportError("the body is not an ExportTraceServiceRequest") from e


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadExportError(f"the encoding {encoding!r} is not known; send gzip")
    unpack = zlib.decompressobj(wbits=31)
    try:
        data = unpack.decompress(body, _MOST_UNPACKED)
    except zlib.error as e:
        raise BadExportError(f"the body is not gzip: {e}") from e
    if unpack.unconsumed_tail:
        raise BadExportError(f"the body unpacks to more than {_MOST_UNPACKED} bytes")
    return data


class _Fields:
    """Walks messages on the wire, up to a number of fields of all of them together.

    Source: https://protobuf.dev/programming-guides/encoding/.
    """

    def __init__(self) -> None:
        self._left = _MOST_PARTS

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        """The messages and texts that are the field `wanted`. Raises BadExportError."""
        at = 0
        while at < len(data):
            self._left -= 1
            if self._left < 0:
                raise BadExportError(f"the body has more than {_MOST_PARTS} parts")
            tag, at = _varint(data, at)
            kind, size = tag & 7, 0
            if kind == _VARINT:
                _, at = _varint(data, at)
            elif kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
            else:
                raise BadExportError(f"a field has the unknown wire type {kind}")
            if size > len(data) - at:
                raise BadExportError("a field is longer than its message")
            if kind == _BYTES and tag >> 3 == wanted:
                yield data[at : at + size]
            at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadExportError("a number of the body has no end")


def _spans(fields: _Fields, body: memoryview) -> Iterator[TraceSpan]:
    found = 0
    for resource in fields.messages(body, _RESOURCE_SPANS):
        about: Mapping[str, str] = {}
        for each in fields.messages(resource, _RESOURCE):
            if len(each) <= _MOST_MESSAGE:
                about = _attributes(Resource.FromString(bytes(each)).attributes)
        service = about.get("service.name", "")
        instance = about.get("service.instance.id", "")
        for scope in fields.messages(resource, _SCOPE_SPANS):
            for span in fields.messages(scope, _SPANS):
                if found >= _MOST_SPANS:
                    return
                if len(span) > _MOST_MESSAGE:
                    continue
                found += 1
                read: Any = Span.FromString(bytes(span))
                if len(read.trace_id) == _TRACE_ID and len(read.span_id) == _SPAN_ID:
                    yield _span(read, service, instance)


def _span(span: Any, service: str, instance: str) -> TraceSpan:
    attributes = _attributes(span.attributes)
    named = [attributes] + [
        _attributes(each.attributes)
        for each in span.events[:_MOST_PLACES]
        if each.name == semconv.PARTITION
    ]
    places = (_place(each) for each in named)
    links = dict.fromkeys(
        each.trace_id.hex() for each in span.links[:_MOST_LINKS] if len(each.trace_id) == _TRACE_ID
    )
    return TraceSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex()[: 2 * _SPAN_ID],
        span.name[:_LONGEST],
        service,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        attributes,
        span.status.code == span.status.STATUS_CODE_ERROR,
        instance,
        span.kind == span.SPAN_KIND_SERVER,
        span.kind == span.SPAN_KIND_CLIENT,
        tuple(links),
        tuple(each for each in places if each is not None),
    )


def _place(attributes: Mapping[str, str]) -> TracedPlace | None:
    """The partition that a span or an event names."""
    topic = attributes.get(semconv.DESTINATION, "")
    partition = _number(attributes.get(semconv.PARTITION_ID))
    if not topic or partition < 0:
        return None
    first = _number(attributes.get(semconv.BASE_OFFSET))
    last = _number(attributes.get(semconv.LAST_OFFSET))
    return TracedPlace(topic, partition, *((first, last) if 0 <= first <= last else (-1, -1)))


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else -1


def _attributes(pairs: Any) -> Mapping[str, str]:
    return {pair.key[:_LONGEST]: _text(pair.value)[:_LONGEST] for pair in pairs[:_MOST_ATTRIBUTES]}


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "array_value":
        return ", ".join(_text(each) for each in value.array_value.values[:_MOST_ATTRIBUTES])
    if kind == "kvlist_value":
        return f"{len(value.kvlist_value.values)} values"
    return str(getattr(value, kind))
