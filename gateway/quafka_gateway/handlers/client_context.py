"""Reads a client's trace context from the headers of the records that it produces.

Only the first record of a request's first batch is read: producers put the context of one send into
each record, so other records mostly repeat it. Compressed batches are not read: to decompress them
would cost more than the rest of the request.
"""

from __future__ import annotations

from contextlib import suppress

from quafka_proto.message import Buffer
from quafka_proto.record_codec import first_headers
from quafka_proto.schema.produce import ProduceRequest
from quafka_telemetry.tracing import ClientContext, parse_client

_SEARCHED = 4 << 10
"""A request up to this size is searched for the header's name before it is parsed."""


def context_of_produce(request: ProduceRequest, frame: bytes) -> ClientContext | None:
    """Return the trace of a produce's first record; the other records are taken to share it."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            return None if partition.records is None else context_in_frame(partition.records, frame)
    return None


def context_in_frame(batch: Buffer, frame: bytes) -> ClientContext | None:
    """Return the trace context in the headers of the first record of a request's batch."""
    if len(frame) <= _SEARCHED and b"traceparent" not in frame:
        return None
    return context_of_batch(batch)


def context_of_batch(batch: Buffer) -> ClientContext | None:
    """Return the trace context in the headers of a batch's first record."""
    found = {name: value for name, value in first_headers(batch) if value is not None}
    with suppress(UnicodeDecodeError):
        return parse_client(
            found.get("traceparent", b"").decode(), found.get("tracestate", b"").decode()
        )
    return None
