"""ListOffsets version 0, of clients before 0.10.1: a list of offsets, the latest first (KIP-79).

Kafka lists the first offsets of segments and the log end, as far as they were written before a
time. Partitions here have no segments of their own: the list has the log end offset, the first
offset at or after that time, and the log start offset.
"""

from __future__ import annotations

from dataclasses import replace

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_gateway.handlers.items import Items, topic_results
from quafka_loop.slices import in_slices
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOpResp, ListOffsetsOps
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_telemetry.tracing import Span

_LATEST, _EARLIEST = -1, -2
_Lookups = Items[ListOffsetsOp, ListOffsetsOpResp]
_Found = tuple[ListOffsetsOpResp, ListOffsetsOpResp, ListOffsetsOpResp]


async def handle(
    request: ListOffsetsRequest, context: RequestContext, lookups: _Lookups
) -> ListOffsetsResponse:
    """Look up three offsets for each partition: of the timestamp, the latest and the earliest."""
    ops = (
        ListOffsetsOp(topic.name, partition.partition_index, timestamp)
        for topic in request.topics
        for partition in topic.partitions
        for timestamp in (partition.timestamp, _LATEST, _EARLIEST)
    )
    once = replace(lookups, describe=_describe)
    answers = iter(await once.answers(ops, ListOffsetsOps, lambda resp: resp.partitions, context))
    results = topic_results(
        ((topic.name, topic.partitions) for topic in request.topics),
        zip(answers, answers, answers, strict=True),
        _partition,
        ListOffsetsTopicResponse,
    )
    return ListOffsetsResponse(topics=await in_slices(results))


def _describe(span: Span, ops: list[ListOffsetsOp], context: RequestContext) -> None:
    describe_partitions(span, ops[::3], context)


def _partition(asked: ListOffsetsPartition, lookups: _Found) -> ListOffsetsPartitionResponse:
    found, latest, earliest = lookups
    error = found.error_code or latest.error_code or earliest.error_code
    if not error and asked.timestamp < _EARLIEST:
        error = ErrorCode.UNSUPPORTED_VERSION
    offsets: list[int] = []
    if not error:
        # All records are older than the timestamp: the list begins with the log end offset.
        first = latest.offset if found.offset < 0 else found.offset
        offsets = sorted({first, earliest.offset}, reverse=True)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        old_style_offsets=offsets[: max(0, asked.max_num_offsets)],
    )
