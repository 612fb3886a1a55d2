"""OffsetCommit (key 8), versions 0-10: durable when it is answered; topics by id from 10 on.

Version 0 meant offsets kept in ZooKeeper: here they are kept like all others. How long offsets
are kept is the broker's setting; what a client asks for (versions 2 to 4) is not looked at.
"""

from __future__ import annotations

from quafka_gateway.context import RequestContext
from quafka_mesh_ops.group_ops import CommitOffset, CommitOffsets
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


async def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commit every partition's offset."""
    by_id = context.version >= 10
    op = CommitOffsets(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id or "",
        [
            CommitOffset(
                topic.name,
                partition.partition_index,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                topic.topic_id if by_id else b"",
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
    )
    with context.child("gateway.kafka.offset_commit") as span:
        errors = iter(await context.coordinator.commit_offsets(op, span.context))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(errors)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
