"""Ops 0x14, 0x15 and 0x1f: commit offsets, ask for those committed, forget those of a topic.

A group's offsets are all kept here, also those in topics of other brokers: what such a topic is,
and whether it has that partition, the gateway has asked its broker.

One partition's error never spoils the others, unless the whole request is too large; the offsets
that are committed are so together, whatever crashes. Commits of one stream reach the log in the
order in which they arrived: nothing is awaited before, but room for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from quafka_broker.groups.table import Committed, Place
from quafka_broker.state import BrokerState
from quafka_broker.topics import unknown_topic
from quafka_broker.wal.errors import StorageError
from quafka_mesh_ops import semconv
from quafka_mesh_ops.group_ops import (
    CommitOffset,
    CommitOffsets,
    CommitOffsetsResp,
    CommittedOffset,
    CommittedOffsets,
    CommittedOffsetsResp,
    CommittedQuestion,
    ForgetTopic,
    ForgetTopicResp,
)
from quafka_mesh_ops.server import OpContext
from quafka_proto.errors import ErrorCode

_ROW_BYTES = 40
"""Of an offset in the log, beside its topic's name and its metadata."""


async def commit(state: BrokerState, context: OpContext, op: CommitOffsets) -> CommitOffsetsResp:
    """Commit every partition's offset; answered when they are durable."""
    await state.log.wait_for_room()
    org, groups = context.org_id, state.groups
    error = groups.may_commit(org, op.group, op.generation, op.member_id, op.instance_id)
    if error:
        return CommitOffsetsResp([error] * len(op.offsets))
    errors, good, size = _checked(state, org, op)
    if size > state.config.offset_commit_max_bytes:
        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    elif not groups.has_room(org, op.group, good):
        error = ErrorCode.POLICY_VIOLATION
    if error:
        return CommitOffsetsResp([int(its or error) for its in errors])
    if good:
        try:
            with context.tracer.start(semconv.COMMIT, context.trace):
                await groups.commit(org, op.group, good)
        except StorageError:
            failed = ErrorCode.COORDINATOR_NOT_AVAILABLE  # retriable, and may end well
            errors = [error or failed for error in errors]
    return CommitOffsetsResp([int(error) for error in errors])


def _checked(
    state: BrokerState, org: int, op: CommitOffsets
) -> tuple[list[ErrorCode], dict[Place, Committed], int]:
    """An error for each partition, what is to be committed, and about how many bytes it is."""
    now_ms = state.groups.now_ms()
    errors: list[ErrorCode] = []
    good: dict[Place, Committed] = {}
    size = 0
    for part in op.offsets:
        name, incarnation, error = _place(state, org, part)
        metadata = len(part.metadata.encode())
        if metadata > state.config.offset_metadata_max_bytes:
            error = error or ErrorCode.OFFSET_METADATA_TOO_LARGE
        errors.append(error)
        if not error:
            size += len(name) + metadata + _ROW_BYTES
            good[name, part.partition] = Committed(
                incarnation, part.offset, part.leader_epoch, part.metadata, now_ms
            )
    return errors, good, size


def _place(state: BrokerState, org: int, part: CommitOffset) -> tuple[str, int | str, ErrorCode]:
    """The topic's name and incarnation, or why there is none."""
    if part.elsewhere:
        return part.topic, part.topic_id.hex(), ErrorCode.NONE
    topic = state.find(org, part.topic, part.topic_id)
    if topic is None:
        return part.topic, 0, unknown_topic(part.topic, part.topic_id)
    if not topic.has(part.partition):
        return part.topic, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.name, topic.generation, ErrorCode.NONE


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
        if question.elsewhere:
            found += _answers(
                question.topic, question.topic_id, question.topic_id.hex(), question, offsets
            )
            continue
        topic = state.find(context.org_id, question.topic, question.topic_id)
        if topic is not None:
            found += _answers(topic.name, topic.uuid, topic.generation, question, offsets)
            continue
        unknown = question.topic_id and not question.topic
        error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NONE
        found += [
            CommittedOffset(question.topic, question.topic_id, partition, error_code=error)
            for partition in question.partitions
        ]
    return CommittedOffsetsResp(found)


def _answers(
    name: str,
    topic_id: bytes,
    incarnation: int | str,
    question: CommittedQuestion,
    offsets: dict[Place, Committed],
) -> Iterator[CommittedOffset]:
    for partition in question.partitions:
        found = offsets.get((name, partition))
        if found is None or found.incarnation != incarnation:
            yield CommittedOffset(name, topic_id, partition)
        else:
            yield _answer((name, partition), topic_id, found)


def _every(
    state: BrokerState, org: int, offsets: dict[Place, Committed]
) -> Iterator[CommittedOffset]:
    for place, found in sorted(offsets.items()):
        if isinstance(found.incarnation, str):
            yield _answer(place, bytes.fromhex(found.incarnation), found)
        elif (topic := state.registry.by_name(org, place[0])) is not None:
            yield _answer(place, topic.uuid, found)


def _answer(place: Place, topic_id: bytes, found: Committed) -> CommittedOffset:
    name, partition = place
    return CommittedOffset(
        name, topic_id, partition, found.offset, found.leader_epoch, found.metadata
    )


async def forget(state: BrokerState, context: OpContext, op: ForgetTopic) -> ForgetTopicResp:
    """A topic of another broker was deleted: so are all groups' offsets in it."""
    try:
        await state.groups.forget_topic_elsewhere(context.org_id, op.topic, op.topic_id)
    except StorageError:
        return ForgetTopicResp(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ForgetTopicResp()
