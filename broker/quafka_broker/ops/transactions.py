"""Ops 0x60 to 0x67: transactions.

An op that changes something is answered when the change is durable. A failed append is answered
with COORDINATOR_NOT_AVAILABLE: clients try again, and every op is safe to retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from quafka_broker.groups.group import GroupType
from quafka_broker.groups.table import Commit
from quafka_broker.ops.offsets import checked_offsets
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.transactions.events import AddedPartition
from quafka_broker.transactions.transaction import OF_GROUP, Transaction
from quafka_loop.slices import Slices, in_slices, listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddOffsetsResp,
    AddPartitions,
    AddPartitionsResp,
    CommitTxnOffsets,
    CommitTxnOffsetsResp,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResp,
    EndTransaction,
    EndTransactionResp,
    InitTransactions,
    InitTransactionsResp,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResp,
    WriteMarkers,
    WriteMarkersResp,
)
from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv

_UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_IDS_PER_SLICE = 500


async def init(
    state: BrokerState, context: OpContext, op: InitTransactions
) -> InitTransactionsResp:
    """Begin a producer's session."""
    if op.two_phase_commit:  # as Kafka's brokers without transaction.two.phase.commit.enable
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitTransactionsResp(error_code=code)
    if op.keep_prepared:
        return InitTransactionsResp(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        with context.tracer.start(semconv.COMMIT, context.trace):
            found = await state.transactions.coordinator.init(
                context.org_id, op.producer, op.timeout_ms
            )
    except StorageError:
        found = _UNAVAILABLE
    if isinstance(found, ErrorCode):
        return InitTransactionsResp(error_code=found)
    return InitTransactionsResp(*found)


async def add_partitions(
    state: BrokerState, context: OpContext, op: AddPartitions
) -> AddPartitionsResp:
    """Add partitions to a transaction, or verify that they are in it."""
    org = context.org_id
    asked = await listed(_partitions(state, org, op.topics))
    far = await listed(_elsewhere(op))
    unknown = _unknown_brokers(state, op)
    found = await listed(each for each in asked if not isinstance(each, ErrorCode))
    if unknown or len(found) < len(asked):
        skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
        codes = chain(
            (each if isinstance(each, ErrorCode) else skipped for each in asked),
            # Clients do not retry POLICY_VIOLATION: the brokers' settings exclude the transaction.
            (ErrorCode.POLICY_VIOLATION if its in unknown else skipped for _, its in far),
        )
        return AddPartitionsResp(await listed(map(int, codes)))
    coordinator = state.transactions.coordinator
    if op.verify_only:
        ids = await listed(PartitionId(org, *each[:3]) for each in found)
        error = coordinator.lacks(org, op.producer, ids, dict(far))
    else:
        try:
            with context.tracer.start(semconv.COMMIT, context.trace):
                error = await coordinator.add(org, op.producer, found, elsewhere=dict(far))
        except StorageError:
            error = _UNAVAILABLE
    return AddPartitionsResp([error] * (len(asked) + len(far)))


def _elsewhere(op: AddPartitions) -> Iterator[tuple[tuple[str, int], str]]:
    """The partitions of other brokers, and the node ids of these brokers."""
    for broker in op.elsewhere or ():
        for topic in broker.topics:
            for number in topic.partitions:
                yield (topic.topic, number), broker.node_id


def _unknown_brokers(state: BrokerState, op: AddPartitions) -> set[str]:
    """The brokers of the op that are not in `mesh.brokers`."""
    if not op.elsewhere:
        return set()
    return {broker.node_id for broker in op.elsewhere} - set(state.transactions.others)


def _partitions(
    state: BrokerState, org: int, topics: Iterable[PartitionsByTopic]
) -> Iterator[AddedPartition | ErrorCode]:
    """The partitions by their ids, or the reason why they cannot be in a transaction.

    Producers retry UNKNOWN_TOPIC_OR_PARTITION; transactions can only write to topics of the log.
    """
    for each in topics:
        topic = state.registry.by_name(org, each.topic)
        for number in each.partitions:
            if topic is None or not topic.has(number):
                yield ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif topic.source:
                yield ErrorCode.POLICY_VIOLATION
            else:
                id_ = topic.partition_id(number)
                yield id_.topic_hash, number, id_.generation, topic.name


async def add_offsets(state: BrokerState, context: OpContext, op: AddOffsets) -> AddOffsetsResp:
    """Add a group to a transaction."""
    is_here = op.elsewhere in ("", state.transactions.node_id)
    if not is_here and op.elsewhere not in state.transactions.others:
        return AddOffsetsResp(ErrorCode.POLICY_VIOLATION)
    groups = (op.group,) if is_here else ()
    far = {} if is_here else {(op.group, OF_GROUP): op.elsewhere}
    try:
        coordinator = state.transactions.coordinator
        with context.tracer.start(semconv.COMMIT, context.trace):
            return AddOffsetsResp(
                await coordinator.add(context.org_id, op.producer, (), groups, far)
            )
    except StorageError:
        return AddOffsetsResp(_UNAVAILABLE)


async def commit_offsets(
    state: BrokerState, context: OpContext, op: CommitTxnOffsets
) -> CommitTxnOffsetsResp:
    """Store offsets that the transaction's commit makes visible."""
    with context.tracer.start(semconv.COMMIT, context.trace):
        errors, good = await in_slices(checked_offsets(state, context.org_id, op.offsets))
        error = _member_error(state, context.org_id, op)
        if not error and good.size > state.configs.broker.offset_commit_max_bytes:
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if not error and good.offsets:
            error = await _store(state, context.org_id, op, good)
    return CommitTxnOffsetsResp(await listed(int(error or each) for each in errors))


def _member_error(state: BrokerState, org: int, op: CommitTxnOffsets) -> ErrorCode:
    """The error of a member. Producers that name no member (before KIP-447) are not checked."""
    if not op.group:
        return ErrorCode.INVALID_GROUP_ID
    found = state.groups.find(org, op.group)
    is_checked = op.generation >= 0 or bool(op.member_id or op.instance_id)
    if found is None or is_checked or found.group.kind is GroupType.SHARE:
        return state.groups.may_commit(org, op)
    return ErrorCode.NONE


async def _store(state: BrokerState, org: int, op: CommitTxnOffsets, good: Commit) -> ErrorCode:
    transactions, used = state.transactions, state.groups.usage(org).offset_bytes
    try:
        if transactions.branches.is_other(op.home):
            return await transactions.branches.store_offsets(
                org, op.producer, op.home, op.group, good, implicit=op.implicit, used=used
            )
        return await transactions.coordinator.store_offsets(
            org, op.producer, op.group, good, implicit=op.implicit, used=used
        )
    except StorageError:
        return _UNAVAILABLE


async def end(state: BrokerState, context: OpContext, op: EndTransaction) -> EndTransactionResp:
    """Commit or abort a transaction."""
    try:
        with context.tracer.start(semconv.COMMIT, context.trace):
            found = await state.transactions.coordinator.end(
                context.org_id, op.producer, commit=op.commit, bumps=op.bumps_epoch
            )
    except StorageError:
        found = _UNAVAILABLE
    if isinstance(found, ErrorCode):
        return EndTransactionResp(error_code=found)
    return EndTransactionResp(*found)


async def write_markers(
    state: BrokerState, context: OpContext, op: WriteMarkers
) -> WriteMarkersResp:
    """End the open transaction of a producer, as an administrator.

    A known transaction is aborted as a whole, so that it is never torn.
    """
    org, transactions = context.org_id, state.transactions
    asked = await listed(_partitions(state, org, op.topics))
    ids = await listed(PartitionId(org, *e[:3]) for e in asked if not isinstance(e, ErrorCode))
    known = transactions.table.by_producer.get(op.producer_id)
    branch = transactions.table.branches.get(op.producer_id)
    error = ErrorCode.NONE
    try:
        if known is not None and known.org == org and known.start_ms >= 0:
            if op.commit:
                error = ErrorCode.INVALID_TXN_STATE
            elif op.producer_epoch < known.epoch:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            else:
                await transactions.coordinator.abort(known.key, lambda _found: True)
        elif branch is not None and branch.org == org:
            error = ErrorCode.INVALID_TXN_STATE
            if not op.commit:
                error = await transactions.branches.abort(branch, op.producer_epoch)
        else:
            await transactions.ending.end_orphans(
                org, op.producer_id, op.producer_epoch, ids, commit=op.commit
            )
    except StorageError:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    return WriteMarkersResp(
        await listed(each if isinstance(each, ErrorCode) else error for each in asked)
    )


async def describe(
    state: BrokerState, context: OpContext, op: DescribeTransactions
) -> DescribeTransactionsResp:
    """Describe transactional ids."""
    entries, org = state.transactions.table.entries, context.org_id
    described: list[DescribedTransaction] = []
    slices = Slices(_IDS_PER_SLICE)
    for name in op.transactional_ids:
        await slices.done()
        found = entries.get((org, name))
        if found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
            described.append(DescribedTransaction(name, code))
        else:
            described.append(_described(found))
            await slices.done(len(found.partitions))
    return DescribeTransactionsResp(described)


def _described(found: Transaction) -> DescribedTransaction:
    topics: dict[str, list[int]] = {}
    for id_, name in found.partitions.items():
        topics.setdefault(name, []).append(id_.partition)
    groups = set(found.groups)
    for name, number in found.elsewhere:
        if number == OF_GROUP:
            groups.add(name)
        else:
            topics.setdefault(name, []).append(number)
    return DescribedTransaction(
        found.name,
        state=found.shown_state.value,
        timeout_ms=found.timeout_ms,
        start_ms=found.shown_start_ms if found.shown_start_ms >= 0 else found.ended_start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[PartitionsByTopic(name, sorted(numbers)) for name, numbers in topics.items()],
        groups=sorted(groups),
    )


async def list_ids(
    state: BrokerState, context: OpContext, op: ListTransactions
) -> ListTransactionsResp:
    """List transactional ids."""
    now, states, producers = state.transactions.now_ms(), set(op.states), set(op.producer_ids)

    def matches(found: Transaction) -> bool:
        if found.org != context.org_id:
            return False
        if op.longer_than_ms >= 0 and not 0 <= found.shown_start_ms < now - op.longer_than_ms:
            return False
        if states and found.shown_state.value not in states:
            return False
        return not producers or found.producer_id in producers

    def matching() -> Iterator[ListedTransaction | None]:
        for each in list(state.transactions.table.entries.values()):
            yield _listed(each) if matches(each) else None

    return ListTransactionsResp([each for each in await listed(matching()) if each is not None])


def _listed(found: Transaction) -> ListedTransaction:
    state = found.shown_state.value
    return ListedTransaction(found.name, found.producer_id, state, found.shown_start_ms)
