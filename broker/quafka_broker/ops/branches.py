"""Ops 0x68 to 0x6A, between brokers: transactions with partitions of several brokers (ADR 47)."""

from __future__ import annotations

import asyncio

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.transactions.transaction import OF_GROUP, Transaction
from quafka_loop.slices import listed
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.branches import (
    FinishTransactions,
    FinishTransactionsResp,
    JoinTransaction,
    JoinTransactionResp,
    OpenBranch,
    Resolved,
    ResolveTransactions,
    ResolveTransactionsResp,
    TransactionOutcome,
)
from quafka_mesh_ops.shards import shard_number
from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv

_AT_ONCE = 64


async def join(state: BrokerState, context: OpContext, op: JoinTransaction) -> JoinTransactionResp:
    """At home: confirm that the partitions of the sending broker are in a transaction."""
    partitions = await listed((topic.topic, p) for topic in op.topics for p in topic.partitions)
    if op.group:
        partitions.append((op.group, OF_GROUP))
    coordinator = state.transactions.coordinator
    try:
        with context.tracer.start(semconv.COMMIT, context.trace):
            found = await coordinator.join(
                context.org_id,
                op.producer,
                _sender(context, op.by),
                partitions,
                implicit=op.implicit,
            )
    except StorageError:
        found = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(found, ErrorCode):
        return JoinTransactionResp(found)
    return JoinTransactionResp(number=found)


async def finish(
    state: BrokerState, context: OpContext, op: FinishTransactions
) -> FinishTransactionsResp:
    """At a branch's broker: end branches with the outcome at home."""
    branches, errors = state.transactions.branches, list[int]()
    with context.tracer.start(semconv.COMMIT, context.trace):
        home = _sender(context, op.by)
        for at in range(0, len(op.transactions), _AT_ONCE):
            some = op.transactions[at : at + _AT_ONCE]
            ends = (branches.finish(context.org_id, home, each) for each in some)
            errors += await asyncio.gather(*ends)
    return FinishTransactionsResp(errors)


async def resolve(
    state: BrokerState, context: OpContext, op: ResolveTransactions
) -> ResolveTransactionsResp:
    """At home: return the outcomes of transactions whose branches are open at the sender."""
    entries, org = state.transactions.table.entries, context.org_id
    broker = _sender(context, op.by)
    outcomes = (
        _resolved(entries.get((org, each.transactional_id)), each, broker)
        for each in op.transactions
    )
    return ResolveTransactionsResp(await listed(outcomes))


def _sender(context: OpContext, by: str) -> str:
    """The shard or the node that sends an op. No node's id is the name of a shard."""
    return context.peer if shard_number(by) is None else by


def _resolved(found: Transaction | None, asked: OpenBranch, broker: str) -> Resolved:
    """The outcome for one branch. If the transaction is finished, that broker has lost its end."""
    if found is None or found.number != asked.number:
        return Resolved(TransactionOutcome.ABORTED)
    if found.start_ms >= 0 and found.producer_id == asked.producer_id:
        return Resolved(TransactionOutcome.OPEN)
    left = found.unfinished
    if left is None or broker not in left.branches:
        return Resolved(TransactionOutcome.ABORTED)
    return Resolved(
        TransactionOutcome.COMMITTED if left.commit else TransactionOutcome.ABORTED, left.epoch
    )
