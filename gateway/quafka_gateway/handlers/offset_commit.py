"""OffsetCommit (key 8), versions 0-10: commits offsets; answered when they are durable.

Version 0 meant offsets kept in ZooKeeper; here they are kept like all others. How long offsets are
kept is the broker's setting: the retention time of the request (versions 2 to 4) is ignored.
Version 10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import Api
from quafka_gateway.handlers.order import Order, State
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_mesh_ops.ops.group_offsets import CommitOffset, CommitOffsets
from quafka_proto.codec import encode_in_steps
from quafka_proto.message import Versions
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from quafka_telemetry.slices import at_once, in_slices

_MANY = 500
"""A request with more partitions is handled in slices."""


async def handle(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | EncodedResponse:
    """Commit the offset of each partition."""
    offsets = _offsets(request, by_id=context.version >= 10)
    is_long = sum(len(topic.partitions) for topic in request.topics) > _MANY
    op = CommitOffsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id or "",
        await in_slices(offsets) if is_long else at_once(offsets),
    )
    with context.child("gateway.kafka.offset_commit") as span:
        errors = await context.tenant.groups.commit_offsets(op, span.context)
    response = _response(request, iter(errors))
    if not is_long:
        return at_once(response)
    body = await in_slices(encode_in_steps(await in_slices(response), context.version))
    return EncodedResponse(OffsetCommitResponse, body, frozenset(errors) - {0})


API = Api(
    key=8,
    versions=Versions(0, 10),
    request=OffsetCommitRequest,
    handle=handle,
    order=Order(reads=State.TOPICS, writes=State.OFFSETS | State.GROUPS),
)


def _offsets(
    request: OffsetCommitRequest, *, by_id: bool
) -> Generator[None, None, list[CommitOffset]]:
    found: list[CommitOffset] = []
    for topic in request.topics:
        for partition in topic.partitions:
            found.append(
                CommitOffset(
                    topic.name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    topic.topic_id if by_id else b"",
                )
            )
            yield
    return found


def _response(
    request: OffsetCommitRequest, errors: Iterator[int]
) -> Generator[None, None, OffsetCommitResponse]:
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=next(errors)
                )
            )
            yield
        topics.append(
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetCommitResponse(topics=topics)
