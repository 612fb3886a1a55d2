"""A client's own trace context, in the headers of the records that it produces.

Looked for in the first record of a request's first batch: producers put the context of one send
into each record, so the others mostly say the same, and nobody can wait for us to read them all.
Compressed batches are not looked into: that would cost far more than the rest of their way.
"""

from __future__ import annotations

from contextlib import suppress

from quafka_proto.record_codec import first_headers
from quafka_proto.schema.produce import ProduceRequest
from quafka_telemetry.tracing import ClientContext, parse_client

_SEARCHED = 4 << 10
"""A small request is searched for the header's name before anything in it is parsed."""


def client_of(request: ProduceRequest, frame: bytes) -> ClientContext | None:
    """The trace that the first record of a produce is from; the others are taken to be, too."""
    if len(frame) <= _SEARCHED and b"traceparent" not in frame:
        return None
    for topic in request.topic_data:
        for partition in topic.partition_data:
            return None if partition.records is None else client_context(partition.records)
    return None


def client_context(batch: bytes | bytearray | memoryview) -> ClientContext | None:
    """What the headers of a batch's first record say of the trace that it is from."""
    found = {name: value for name, value in first_headers(batch) if value is not None}
    with suppress(UnicodeDecodeError):
        return parse_client(
            found.get("traceparent", b"").decode(), found.get("tracestate", b"").decode()
        )
    return None
