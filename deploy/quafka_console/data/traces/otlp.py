"""Reads OTLP over HTTP (protobuf), within bounds: anybody who reaches the console may send it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from quafka_console.data.traces.store import TraceSpan

MOST_BYTES = 4 << 20
"""Of a request's body, as it is sent."""
_MOST_UNPACKED = 32 << 20
_MOST_SPANS = 10_000
_MOST_ATTRIBUTES = 64
_LONGEST = 500
_ERROR = 2


class BadExportError(ValueError):
    """The body is not an export of spans, or is too large."""


def spans_of(body: bytes, encoding: str) -> list[TraceSpan]:
    """The spans of a request's body. `encoding`: its Content-Encoding. Takes CPU time.

    Raises BadExportError.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(_unpacked(body, encoding))
    except DecodeError as e:
        raise BadExportError("the body is not an ExportTraceServiceRequest") from e
    spans: list[TraceSpan] = []
    for span in _spans(request):
        if len(spans) >= _MOST_SPANS:
            break
        spans.append(span)
    return spans


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


def _spans(request: Any) -> Iterator[TraceSpan]:
    for resource in request.resource_spans:
        service = _attributes(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield TraceSpan(
                    span.trace_id.hex()[:32],
                    span.span_id.hex()[:16],
                    span.parent_span_id.hex()[:16],
                    span.name[:_LONGEST],
                    service,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    span.status.code == _ERROR,
                )


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
