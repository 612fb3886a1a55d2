"""ListOffsets version 0, of clients before 0.10.1: a list of offsets, the latest first (KIP-79).

Kafka lists the first offsets of segments and the log end, as far as they were written before a
time. Partitions here have no segments of their own: the list has the log end offset, the first
offset at or after that time, and the log start offset.
"""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.destinations import describe_partitions
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOpResp, ListOffsetsOps
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_telemetry import semconv

_LATEST, _EARLIEST = -1, -2
_PARTITIONS_PER_SLICE = 500
DENIED_OFFSET = ListOffsetsOpResp(-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Replaces the answer about a topic that the client may not describe."""


async def handle(
    request: ListOffsetsRequest, context: RequestContext, hidden: Collection[str]
) -> ListOffsetsResponse:
    """Look up three offsets for each partition: of the timestamp, the latest and the earliest.

    `hidden`: the topics that the client may not describe.
    """
    op = ListOffsetsOps(
        await listed(
            ListOffsetsOp(topic.name, partition.partition_index, timestamp)
            for topic in request.topics
            if topic.name not in hidden
            for partition in topic.partitions
            for timestamp in (partition.timestamp, _LATEST, _EARLIEST)
        )
    )
    with context.child(semconv.GATEWAY_LIST_OFFSETS) as span:
        describe_partitions(span, op.partitions[::3], context)
        ask = context.tenant.topics.list_offsets
        answers = iter(await ask(op, span.context) if op.partitions or not hidden else ())
    topics: list[ListOffsetsTopicResponse] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for topic in request.topics:
        found = ListOffsetsTopicResponse(name=topic.name)
        topics.append(found)
        await slices.done()
        for partition in topic.partitions:
            await slices.done()
            found.partitions.append(
                _partition(partition, DENIED_OFFSET, DENIED_OFFSET, DENIED_OFFSET)
                if topic.name in hidden
                else _partition(partition, next(answers), next(answers), next(answers))
            )
    return ListOffsetsResponse(topics=topics)


def _partition(
    asked: ListOffsetsPartition,
    found: ListOffsetsOpResp,
    latest: ListOffsetsOpResp,
    earliest: ListOffsetsOpResp,
) -> ListOffsetsPartitionResponse:
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
