"""Ops between brokers, on transactions that have partitions of several: 0x68 to 0x6A (ADR 47).

*Home* is the broker that coordinates the transaction; a *branch* is the part of the transaction at
another broker (X/Open's term). A transaction with branches has a `number`, which home assigns and
which grows from one transaction of an id to the next: clients before KIP-890 keep their epoch, so
it does not identify a transaction. All of these ops are safe to retry.

`by` names the shard that sends an op, in a cluster of shards: there, shards are what transactions
span. Empty: the sender is the node.
"""

from __future__ import annotations

from enum import IntEnum

from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_mesh_ops.ops.transactions import TransactionalProducer


@wire_struct
class JoinTransactionResp(WireStruct):
    """The transaction's number: the partitions are in it, durably. Or the error."""

    error_code: int = 0
    number: int = 0


@wire_struct
class JoinTransaction(Op[JoinTransactionResp]):
    """From a branch's broker to home, before it writes a producer's first batch to a partition.

    `implicit`: add the partitions to the transaction (KIP-890), which may begin with them;
    otherwise they must be in it already. The partitions are those of the broker that sends the op.
    `group`: the op is about the offsets of this group, which that broker has, and not partitions.
    """

    code = OpCode.JOIN_TRANSACTION
    producer: TransactionalProducer
    topics: list[PartitionsByTopic]
    implicit: bool = False
    by: str = ""
    group: str = ""


@wire_struct
class BranchEnd(WireStruct):
    """The end of one transaction. The epoch is that of the markers."""

    producer_id: int
    producer_epoch: int
    number: int
    commit: bool


@wire_struct
class FinishTransactionsResp(WireStruct):
    """One error code per transaction, in the order of the request. NONE: nothing of it is open."""

    transactions: list[int]


@wire_struct
class FinishTransactions(Op[FinishTransactionsResp]):
    """From home to a branch's broker: these transactions have ended, durably."""

    code = OpCode.FINISH_TRANSACTIONS
    transactions: list[BranchEnd]
    by: str = ""


class TransactionOutcome(IntEnum):
    """How a transaction has ended, if it has."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


@wire_struct
class OpenBranch(WireStruct):
    """An open branch."""

    transactional_id: str
    producer_id: int
    number: int


@wire_struct
class Resolved(WireStruct):
    """The outcome of a transaction, and the epoch of its markers; -1: that of its batches."""

    outcome: int
    producer_epoch: int = -1


@wire_struct
class ResolveTransactionsResp(WireStruct):
    """One outcome per branch, in the order of the request."""

    transactions: list[Resolved]


@wire_struct
class ResolveTransactions(Op[ResolveTransactionsResp]):
    """From a branch's broker to home: what has become of these transactions?

    A transaction that home does not know is aborted (presumed abort): either of the two brokers was
    restored, and has lost what came later.
    """

    code = OpCode.RESOLVE_TRANSACTIONS
    reads = True
    transactions: list[OpenBranch]
    by: str = ""


ALL: tuple[type[AnyOp], ...] = (JoinTransaction, FinishTransactions, ResolveTransactions)
