"""Ops 0x14 and 0x15: commit offsets, and ask for those committed.

One partition's error never spoils the others. Commits of one stream reach the log in the order in
which they arrived: nothing is awaited before, but room for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.groups.table import Committed
from quafka_broker.state import BrokerState
from quafka_broker.topics import Topic
from quafka_broker.wal.errors import StorageError
from quafka_mesh_ops.group_ops import (
    CommitOffset,
    CommitOffsets,
    CommitOffsetsResp,
    CommittedOffset,
    CommittedOffsets,
    CommittedOffsetsResp,
    CommittedQuestion,
)
from quafka_mesh_ops.server import OpContext
from quafka_proto.errors import ErrorCode


async def commit(state: BrokerState, context: OpContext, op: CommitOffsets) -> CommitOffsetsResp:
    """Commit every partition's offset; answered when they are durable."""
    await state.log.wait_for_room()
    org, groups = context.org_id, state.groups
    error = groups.may_commit(org, op.group, op.generation, op.member_id, op.instance_id)
    if error:
        return CommitOffsetsResp([error] * len(op.offsets))
    now_ms = groups.now_ms()
    errors: list[ErrorCode] = []
    good: dict[tuple[str, int], Committed] = {}
    for part in op.offsets:
        topic = state.find(org, part.topic, part.topic_id)
        errors.append(_refusal(state, topic, part))
        if topic is not None and not errors[-1]:
            good[topic.name, part.partition] = Committed(
                topic.generation, part.offset, part.leader_epoch, part.metadata, now_ms
            )
    if good:
        try:
            await groups.commit(org, op.group, good)
        except StorageError:
            failed = ErrorCode.COORDINATOR_NOT_AVAILABLE  # retriable, and may end well
            errors = [error or failed for error in errors]
    return CommitOffsetsResp([int(error) for error in errors])


def _refusal(state: BrokerState, topic: Topic | None, part: CommitOffset) -> ErrorCode:
    if topic is None:
        by_id = part.topic_id and not part.topic
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not 0 <= part.partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(part.metadata.encode()) > state.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def committed(
    state: BrokerState, context: OpContext, op: CommittedOffsets
) -> CommittedOffsetsResp:
    """Say what was committed last. Of a group that nobody knows: nothing, which is no error."""
    if not op.group:
        return CommittedOffsetsResp([], ErrorCode.INVALID_GROUP_ID)
    kept = state.groups.find(context.org_id, op.group)
    offsets = kept.offsets if kept is not None else {}
    if op.topics is None:
        return CommittedOffsetsResp(list(_every(state, context.org_id, offsets)))
    found: list[CommittedOffset] = []
    for question in op.topics:
        topic = state.find(context.org_id, question.topic, question.topic_id)
        found += [_answer(question, partition, topic, offsets) for partition in question.partitions]
    return CommittedOffsetsResp(found)


def _every(
    state: BrokerState, org: int, offsets: dict[tuple[str, int], Committed]
) -> Iterator[CommittedOffset]:
    for name, partition in sorted(offsets):
        topic = state.registry.by_name(org, name)
        if topic is not None:
            question = CommittedQuestion(name, [], topic.uuid)
            yield _answer(question, partition, topic, offsets)


def _answer(
    question: CommittedQuestion,
    partition: int,
    topic: Topic | None,
    offsets: dict[tuple[str, int], Committed],
) -> CommittedOffset:
    if topic is None:
        unknown = question.topic_id and not question.topic
        error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NONE
        return CommittedOffset(question.topic, question.topic_id, partition, error_code=error)
    found = offsets.get((topic.name, partition))
    if found is None:
        return CommittedOffset(topic.name, topic.uuid, partition)
    return CommittedOffset(
        topic.name, topic.uuid, partition, found.offset, found.leader_epoch, found.metadata
    )
