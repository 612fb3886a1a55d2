"""Ops 0x80 to 0x85: the records of share groups; see quafka_broker.shares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from quafka_broker.ops.destinations import destinations
from quafka_broker.partitions.errors import StorageError
from quafka_broker.shares.acquiring import Acquiring, AcquiringTarget
from quafka_broker.shares.lag import lag_of, start_of
from quafka_broker.shares.limits import Terms
from quafka_broker.shares.shares import Beginning
from quafka_broker.shares.states import (
    Acknowledgement,
    BadAcknowledgementError,
    Holder,
    RecordStateError,
)
from quafka_broker.shares.table import GroupKey, PartitionPlace
from quafka_broker.sources.source import PartitionSource, ask_all, error_of
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic, unknown_topic
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.shares import (
    EARLIEST,
    EVERY_PARTITION,
    MOST_ACQUIRED,
    AcknowledgeRecords,
    AcknowledgeRecordsResp,
    AcquiredPartition,
    AcquireRecords,
    AcquireRecordsResp,
    AlterShareOffsets,
    BatchRange,
    DeleteShareOffsets,
    DescribeShareOffsets,
    DescribeShareOffsetsResp,
    NewShareOffset,
    PartitionAcknowledgements,
    ReleasePartition,
    ReleaseRecords,
    ReleaseRecordsResp,
    ShareGroupOffsets,
    ShareOffset,
    ShareOffsetsChangedResp,
    SharePlace,
)
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.share_fetch import AcquiredRecords
from quafka_telemetry import semconv
from quafka_telemetry.destinations import describe_destinations
from quafka_telemetry.tracing import Steps, fail_with

_PARTITIONS_PER_SLICE = 50
_AT_ONCE = 200
"""Partitions that one write changes."""

_Named = SharePlace | PartitionAcknowledgements | ReleasePartition | NewShareOffset


# --- records --------------------------------------------------------------------------------


async def acquire(state: BrokerState, context: OpContext, op: AcquireRecords) -> AcquireRecordsResp:
    """Acquire records now if there are enough, otherwise after a wait."""
    group = _group(context, op.group, op.member_id)
    terms = state.shares.limits.terms(op.configs)
    until = asyncio.get_running_loop().time() + op.max_wait_ms / 1000
    targets = await _targets(state, context, group, op)
    acquiring = Acquiring(state.shares, state.parked_fetches, op, targets, terms)
    with context.tracer.start(semconv.SHARE_ACQUIRE, context.trace) as span:
        try:
            with state.shares.acquires(group, acquiring.holder, acquiring):
                await acquiring.run(until, Steps(context.tracer, span.context))
        except asyncio.CancelledError:
            acquiring.give_back()
            raise
        if span.context is not None:
            taken = sum(part.end - part.first for each in targets for part in each.acquired)
            span.set(
                {
                    semconv.GROUP: op.group,
                    semconv.PARTITIONS: len(targets),
                    semconv.RETURNED_COUNT: taken,
                    semconv.MESSAGE_COUNT: taken,
                }
            )
            describe_destinations(span, destinations(state, context.org_id, op.partitions))
            fail_with(span, (each.error for each in targets), type(op).__name__)
    answers = [_acquired(target) for target in targets]
    return AcquireRecordsResp(answers, terms.lock_ms, round(acquiring.parked_seconds * 1e6))


async def _targets(
    state: BrokerState, context: OpContext, group: GroupKey, op: AcquireRecords
) -> list[AcquiringTarget]:
    found: list[tuple[Topic, PartitionSource] | ErrorCode] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for part in op.partitions:
        found.append(_find(state, context.org_id, part))
        await slices.done()
    await ask_all(each[1] for each in found if not isinstance(each, ErrorCode))
    targets: list[AcquiringTarget] = []
    new: list[Beginning] = []
    for each, part in zip(found, op.partitions, strict=True):
        if isinstance(each, ErrorCode):
            targets.append(AcquiringTarget(None, error=each))
        else:
            place = PartitionPlace(each[0].uuid, part.partition)
            share = state.shares.table.find(group, place)
            error = ErrorCode.NONE if share is not None else error_of(each[1].unready())
            targets.append(AcquiringTarget(each[1], share, error, place))
            if share is None and not error:
                new.append(Beginning(place, each[1], EARLIEST if part.is_new else op.configs.reset))
        await slices.done()
    if new:
        errors = await state.shares.begin(group, new)
        for target in targets:
            if target.place is not None and target.share is None and not target.error:
                target.share = state.shares.table.find(group, target.place)
                target.error = errors.get(target.place, ErrorCode.NONE)
            await slices.done()
    return targets


def _acquired(target: AcquiringTarget) -> AcquiredPartition:
    return AcquiredPartition(
        [AcquiredRecords(part.first, part.end - 1, part.deliveries) for part in target.acquired],
        [BatchRange(span.first, span.end - 1, span.size) for span in target.batches],
        target.error,
        target.source.leader_epoch if target.source is not None else -1,
    )


async def acknowledge(
    state: BrokerState, context: OpContext, op: AcknowledgeRecords
) -> AcknowledgeRecordsResp:
    """Acknowledge records: durable when this returns."""
    group = _group(context, op.group, op.member_id)
    terms = state.shares.limits.terms(op.configs)
    with context.tracer.start(semconv.SHARE_ACKNOWLEDGE, context.trace) as span:
        codes = await _acknowledge(state, group, op, terms)
        if span.context is not None:
            span.set({semconv.GROUP: op.group, semconv.PARTITIONS: len(codes)})
            describe_destinations(span, destinations(state, context.org_id, op.partitions))
            fail_with(span, codes, type(op).__name__)
    return AcknowledgeRecordsResp(codes, terms.lock_ms)


async def _acknowledge(
    state: BrokerState, group: GroupKey, op: AcknowledgeRecords, terms: Terms
) -> list[int]:
    """Acknowledge records, writing those of many partitions together."""
    holder = Holder(op.member_id, op.session)
    codes: list[int] = []
    for at in range(0, len(op.partitions), _AT_ONCE):
        await state.log.queue.wait_for_room(group[0])
        some = op.partitions[at : at + _AT_ONCE]
        codes += await asyncio.gather(
            *(_acknowledge_one(state, group, holder, part, terms) for part in some)
        )
    return codes


async def _acknowledge_one(
    state: BrokerState,
    group: GroupKey,
    holder: Holder,
    part: PartitionAcknowledgements,
    terms: Terms,
) -> int:
    found = _find(state, group[0], part)
    if isinstance(found, ErrorCode):
        return found
    share = state.shares.table.find(group, PartitionPlace(found[0].uuid, part.partition))
    if share is None:
        return ErrorCode.INVALID_RECORD_STATE
    batches = await listed(
        Acknowledgement(each.first, each.last + 1, each.types) for each in part.batches
    )
    if len(batches) > MOST_ACQUIRED or sum(len(each.types) for each in batches) > MOST_ACQUIRED:
        return ErrorCode.INVALID_REQUEST
    try:
        await state.shares.acknowledge(share, holder, batches, terms)
    except BadAcknowledgementError:
        return ErrorCode.INVALID_REQUEST
    except RecordStateError:
        return ErrorCode.INVALID_RECORD_STATE
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


async def release(state: BrokerState, context: OpContext, op: ReleaseRecords) -> ReleaseRecordsResp:
    """Take back the records of a member's session."""
    group = _group(context, op.group, op.member_id)
    holder = Holder(op.member_id, op.session)
    shares = state.shares
    if not op.partitions:
        return ReleaseRecordsResp(await shares.release(group, holder))
    released = 0
    slices = Slices(_PARTITIONS_PER_SLICE)
    for part in op.partitions:
        found = _find(state, context.org_id, part)
        share = None
        if not isinstance(found, ErrorCode):
            share = shares.table.find(group, PartitionPlace(found[0].uuid, part.partition))
        if share is not None:
            released += shares.give_back(share, holder, part.first, part.last + 1)
        await slices.done()
    return ReleaseRecordsResp(released)


# --- offsets --------------------------------------------------------------------------------


async def describe(
    state: BrokerState, context: OpContext, op: DescribeShareOffsets
) -> DescribeShareOffsetsResp:
    """Describe the state of groups in partitions."""
    slices = Slices(_PARTITIONS_PER_SLICE)

    async def offsets(name: str, named: list[SharePlace] | None) -> list[ShareOffset]:
        group = (context.org_id, name)
        places: Iterable[SharePlace] = (
            [
                SharePlace("", share.place.partition, share.place.topic_id)
                for share in state.shares.table.of(group)
            ]
            if named is None
            else named
        )
        answers: list[ShareOffset] = []
        for part in places:
            answers.append(_described(state, group, part))
            await slices.done()
        return answers

    first = await offsets(op.group, op.partitions)
    others: list[ShareGroupOffsets] = []
    for each in op.others or ():
        others.append(ShareGroupOffsets(await offsets(each.group, each.partitions)))
        await slices.done()
    return DescribeShareOffsetsResp(first, others)


def _described(state: BrokerState, group: GroupKey, part: SharePlace) -> ShareOffset:
    found = _find(state, group[0], part)
    if isinstance(found, ErrorCode):
        return ShareOffset(part.topic, part.topic_id, part.partition, error_code=found)
    topic, source = found
    share = state.shares.table.find(group, PartitionPlace(topic.uuid, part.partition))
    if share is None:
        return ShareOffset(topic.name, topic.uuid, part.partition)
    return ShareOffset(
        topic.name, topic.uuid, part.partition, start_of(share, source), source.leader_epoch,
        lag_of(share, source), 0, share.window.in_flight, share.window.acquired,
    )  # fmt: skip


async def alter(
    state: BrokerState, context: OpContext, op: AlterShareOffsets
) -> ShareOffsetsChangedResp:
    """Make a group without members continue at other offsets."""
    group = (context.org_id, op.group)
    codes: list[int] = []
    starts: dict[PartitionPlace, int] = {}
    slices = Slices(_PARTITIONS_PER_SLICE)
    new = 0
    for part in op.partitions:
        found = _find(state, context.org_id, part)
        code = found if isinstance(found, ErrorCode) else ErrorCode.NONE
        if not isinstance(found, ErrorCode):
            place = PartitionPlace(found[0].uuid, part.partition)
            new += state.shares.table.find(group, place) is None
            if not state.shares.has_room(context.org_id, new):
                code = ErrorCode.POLICY_VIOLATION
            elif part.start < 0:
                code = ErrorCode.INVALID_REQUEST
            else:
                starts[place] = part.start
        codes.append(code)
        await slices.done()
    some = list(starts.items())
    try:
        for at in range(0, len(some), _AT_ONCE):
            await state.shares.put(group, some[at : at + _AT_ONCE])
    except StorageError:
        codes = [code or ErrorCode.KAFKA_STORAGE_ERROR for code in codes]
    return ShareOffsetsChangedResp(codes)


async def delete(
    state: BrokerState, context: OpContext, op: DeleteShareOffsets
) -> ShareOffsetsChangedResp:
    """Delete the state of a group in partitions."""
    group = (context.org_id, op.group)
    codes: list[int] = []
    places: list[PartitionPlace] = []
    known = set(await listed(share.place.topic_id for share in state.shares.table.of(group)))
    slices = Slices(_PARTITIONS_PER_SLICE)
    for part in op.partitions:
        topic = state.registry.find(context.org_id, part.topic, part.topic_id)
        if topic is None or (part.partition == EVERY_PARTITION and topic.uuid not in known):
            codes.append(unknown_topic(part.topic, part.topic_id))
        else:
            places.append(PartitionPlace(topic.uuid, max(part.partition, EVERY_PARTITION)))
            codes.append(ErrorCode.NONE)
        await slices.done()
    if places or not op.partitions:
        try:
            await state.shares.drop(group, places)
        except StorageError:
            if not codes:
                raise OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR) from None
            codes = [code or ErrorCode.KAFKA_STORAGE_ERROR for code in codes]
    return ShareOffsetsChangedResp(codes)


# --- names ----------------------------------------------------------------------------------


def _group(context: OpContext, group: str, member: str) -> GroupKey:
    if not group or not member:
        raise OpFailedError(ErrorCode.INVALID_REQUEST)
    return context.org_id, group


def _find(state: BrokerState, org: int, part: _Named) -> tuple[Topic, PartitionSource] | ErrorCode:
    topic = state.registry.find(org, part.topic, part.topic_id)
    if topic is None:
        return unknown_topic(part.topic, part.topic_id)
    if part.topic_id and part.topic_id != topic.uuid:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    if not topic.has(part.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic, state.sources.partition(topic, part.partition)
