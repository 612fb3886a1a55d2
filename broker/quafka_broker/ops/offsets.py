"""Ops 0x14, 0x15 and 0x1f: commit offsets, fetch committed offsets, drop a topic's offsets.

A group's coordinator keeps all of its offsets, including those in topics of other brokers. For such
a topic the gateway has checked with the topic's broker that the partition exists.

A partition's error does not affect the others, unless the whole request is too large. All offsets
of a commit become durable together. Long commits are checked in slices; the commits of a group
reach the log in the order in which they arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from operator import itemgetter

from quafka_broker.groups.group import Place
from quafka_broker.groups.table import Commit, Committed, Key
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import unknown_topic
from quafka_loop import clock
from quafka_loop.slices import at_once, in_slices
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.group_offsets import (
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
from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv

_MANY = 1_000
"""The number of offsets above which an answer is built in slices."""
_FEW = 20
"""The number of offsets up to which a commit is checked in one step."""


async def commit(state: BrokerState, context: OpContext, op: CommitOffsets) -> CommitOffsetsResp:
    """Commit every partition's offset; answered when they are durable."""
    if not state.log.queue.has_room():
        await state.log.queue.wait_for_room()
    with context.tracer.start(semconv.COMMIT, context.trace):
        begun = _begin_now(state, context.org_id, op)
        if begun is None:
            async with state.groups.offsets.commit_turn(context.org_id, op.group):
                begun = await _begin(state, context.org_id, op)
        errors, pending = begun
        commit_us = 0
        if pending is not None:
            began = clock.perf_counter()
            try:
                await pending
            except StorageError:
                failed = ErrorCode.COORDINATOR_NOT_AVAILABLE  # retriable, and the retry may succeed
                errors = [error or failed for error in errors]
            commit_us = clock.microseconds_since(began)
    return CommitOffsetsResp([int(error) for error in errors], commit_us)


_Begun = tuple[list[ErrorCode], asyncio.Future[list[int]] | None]
"""The error of each partition, and the append of the valid offsets."""


def _begin_now(state: BrokerState, org: int, op: CommitOffsets) -> _Begun | None:
    """Check and queue a short commit in one step; None if `_begin` must do it."""
    groups = state.groups
    if len(op.offsets) > _FEW or groups.offsets.has_turns(org, op.group):
        return None
    error = groups.may_commit(org, op)
    if error:
        return [error] * len(op.offsets), None
    errors, good = at_once(checked_offsets(state, org, op.offsets))
    if good.size > state.configs.broker.offset_commit_max_bytes:
        return None
    if not groups.offsets.surely_has_room(org, good):
        return None
    return errors, groups.offsets.commit(org, op.group, good) if good.offsets else None


async def _begin(state: BrokerState, org: int, op: CommitOffsets) -> _Begun:
    """Check a commit and queue its valid offsets."""
    groups = state.groups
    error = groups.may_commit(org, op)
    if error:
        return [error] * len(op.offsets), None
    errors, good = await in_slices(checked_offsets(state, org, op.offsets))
    if good.size > state.configs.broker.offset_commit_max_bytes:
        error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    elif not await groups.offsets.has_room(org, op.group, good):
        error = ErrorCode.POLICY_VIOLATION
    else:
        error = groups.may_commit(org, op)  # a rebalance may have happened meanwhile
    if error:
        return [its or error for its in errors], None
    return errors, groups.offsets.commit(org, op.group, good) if good.offsets else None


def checked_offsets(
    state: BrokerState, org: int, offsets: Sequence[CommitOffset]
) -> Generator[None, None, tuple[list[ErrorCode], Commit]]:
    """The error of each partition, and the valid offsets; one step for each partition."""
    now_ms = state.groups.now_ms()
    longest = state.configs.broker.offset_metadata_max_bytes
    errors: list[ErrorCode] = []
    good = Commit()
    for part in offsets:
        name, incarnation, error = _place(state, org, part)
        if len(part.metadata) > longest or (
            part.metadata and len(part.metadata.encode()) > longest
        ):
            error = error or ErrorCode.OFFSET_METADATA_TOO_LARGE
        errors.append(error)
        if not error:
            good.add(
                (name, part.partition),
                Committed(incarnation, part.offset, part.leader_epoch, part.metadata, now_ms),
            )
        yield
    return errors, good


def _place(state: BrokerState, org: int, part: CommitOffset) -> tuple[str, int | str, ErrorCode]:
    """The topic's name and incarnation, or the error."""
    if part.elsewhere:
        return part.topic, part.topic_id.hex(), ErrorCode.NONE
    topic = state.registry.find(org, part.topic, part.topic_id)
    if topic is None:
        return part.topic, 0, unknown_topic(part.topic, part.topic_id)
    if not topic.has(part.partition):
        return part.topic, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.name, topic.generation, ErrorCode.NONE


async def committed(
    state: BrokerState, context: OpContext, op: CommittedOffsets
) -> CommittedOffsetsResp:
    """The last committed offsets. An unknown group has none, which is not an error."""
    if not op.group:
        return CommittedOffsetsResp([], ErrorCode.INVALID_GROUP_ID)
    entry = state.groups.find(context.org_id, op.group)
    if entry is not None:
        error = entry.group.may_fetch_offsets(op.member_id, op.member_epoch)
        if error:
            return CommittedOffsetsResp([], error)
    offsets = entry.offsets if entry is not None else {}
    asked = op.topics
    count = len(offsets) if asked is None else sum(len(each.partitions) for each in asked)
    if count > _MANY:
        offsets = offsets.copy()  # commits continue meanwhile; an answer must not mix two of them
    if asked is None:
        answers = _every(state, context.org_id, offsets)
    else:
        answers = _asked(state, context.org_id, asked, offsets)
    if op.require_stable and state.transactions.table.with_offsets_of((context.org_id, op.group)):
        answers = _unstable(state, (context.org_id, op.group), answers)
    if count <= _MANY:  # in one step, on offsets that were not copied
        return CommittedOffsetsResp(list(answers))
    return CommittedOffsetsResp(await in_slices(_collected(answers)))


def _unstable(
    state: BrokerState, group: Key, answers: Iterator[CommittedOffset]
) -> Iterator[CommittedOffset]:
    """The answers, with an error for offsets that an open transaction may replace."""
    table = state.transactions.table
    for each in answers:
        if table.is_pending(group, (each.topic, each.partition)):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            yield CommittedOffset(each.topic, each.topic_id, each.partition, error_code=code)
        else:
            yield each


def _collected(
    answers: Iterator[CommittedOffset],
) -> Generator[None, None, list[CommittedOffset]]:
    found: list[CommittedOffset] = []
    for answer in answers:
        found.append(answer)
        yield
    return found


def _asked(
    state: BrokerState,
    org: int,
    questions: list[CommittedQuestion],
    offsets: dict[Place, Committed],
) -> Iterator[CommittedOffset]:
    for question in questions:
        if question.elsewhere:
            yield from _answers(
                question.topic, question.topic_id, question.topic_id.hex(), question, offsets
            )
            continue
        topic = state.registry.find(org, question.topic, question.topic_id)
        if topic is not None:
            yield from _answers(topic.name, topic.uuid, topic.generation, question, offsets)
            continue
        unknown = question.topic_id and not question.topic
        error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NONE
        for partition in question.partitions:
            yield CommittedOffset(question.topic, question.topic_id, partition, error_code=error)


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
    for place, found in sorted(offsets.items(), key=itemgetter(0)):
        if isinstance(found.incarnation, str):
            yield _answer(place, bytes.fromhex(found.incarnation), found)
        elif (topic := state.registry.by_name(org, place[0])) is not None:
            yield _answer(place, topic.uuid, found)


def _answer(place: Place, topic_id: bytes, found: Committed) -> CommittedOffset:
    name, partition = place
    return CommittedOffset(
        name, topic_id, partition, found.offset, found.leader_epoch, found.metadata
    )


async def delete_topic_offsets(
    state: BrokerState, context: OpContext, op: ForgetTopic
) -> ForgetTopicResp:
    """Delete the offsets of all groups in a deleted topic of another broker."""
    try:
        org, groups = context.org_id, state.groups
        await groups.offsets.delete_topic_elsewhere(org, groups.groups(org), op.topic, op.topic_id)
    except StorageError:
        return ForgetTopicResp(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ForgetTopicResp()
