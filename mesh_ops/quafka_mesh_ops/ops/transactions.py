"""Ops on transactions (KIP-98, KIP-890): one for each of Kafka's APIs, 0x60 to 0x67.

They go to the home broker of the transactional id, which is its transaction coordinator, except for
CommitTxnOffsets, which goes to the broker of the group.

`connection`, here and in ProduceOps: the client's connection as 16 bytes, the gateway's random
instance id (8) and the connection's number at this gateway (8, big-endian, ascending). The broker
refuses requests from a connection whose producer has moved to another: a request that was delayed
on the old one would take effect in the next transaction. Empty: the request is not checked.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, WireStruct, wire_struct
from quafka_mesh_ops.ops.group_offsets import CommitOffset


@wire_struct
class TransactionalProducer(WireStruct):
    """The producer that sends a request. `connection`: see the module."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    connection: bytes = b""


# --- InitProducerId 0x60 ----------------------------------------------------------------------


@wire_struct
class InitTransactionsResp(WireStruct):
    """The producer id and epoch of a transactional id; earlier epochs are fenced, durably.

    `ongoing_*`: the transaction that a prepared producer left open (KIP-939); -1: none.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    error_code: int = 0
    ongoing_producer_id: int = -1
    ongoing_producer_epoch: int = -1


@wire_struct
class InitTransactions(Op[InitTransactionsResp]):
    """Begin a producer's session with a transactional id; aborts what an earlier one left open.

    The producer's id and epoch are -1 at its start. Otherwise it recovers from an error (KIP-360).
    `two_phase_commit`, `keep_prepared`: fields of KIP-939, which are refused.
    """

    code = OpCode.INIT_TRANSACTIONS
    producer: TransactionalProducer
    timeout_ms: int
    two_phase_commit: bool = False
    keep_prepared: bool = False


# --- AddPartitionsToTxn 0x61 ------------------------------------------------------------------


@wire_struct
class BrokerPartitions(WireStruct):
    """Partitions of another broker than the coordinator, by that broker's node id."""

    node_id: str
    topics: list[PartitionsByTopic]


@wire_struct
class AddPartitionsResp(WireStruct):
    """One error code per partition, in the order of the request; all are added, or none.

    The partitions elsewhere come after the others. An older broker does not answer them.
    """

    partitions: list[int]


@wire_struct
class AddPartitions(Op[AddPartitionsResp]):
    """Add partitions to the producer's transaction, which begins with the first of them. Durable.

    `verify_only`: add nothing, but answer whether the partitions are in it. A batched request of
    Kafka is one op for each transaction. `elsewhere`: the partitions of other brokers.
    """

    code = OpCode.ADD_PARTITIONS
    producer: TransactionalProducer
    topics: list[PartitionsByTopic]
    verify_only: bool = False
    elsewhere: list[BrokerPartitions] | None = None


# --- AddOffsetsToTxn 0x62 ---------------------------------------------------------------------


@wire_struct
class AddOffsetsResp(WireStruct):
    """The result."""

    error_code: int = 0


@wire_struct
class AddOffsets(Op[AddOffsetsResp]):
    """Add the offsets of a group to the producer's transaction. Durable.

    `elsewhere`: the node id of the broker, or the name of the shard, that has the group; empty: it
    is the coordinator of the transactional id.
    """

    code = OpCode.ADD_OFFSETS
    producer: TransactionalProducer
    group: str
    elsewhere: str = ""


# --- TxnOffsetCommit 0x63 ---------------------------------------------------------------------


@wire_struct
class CommitTxnOffsetsResp(WireStruct):
    """One error code per offset, in the order of the request. The offsets are durable."""

    partitions: list[int]


@wire_struct
class CommitTxnOffsets(Op[CommitTxnOffsetsResp]):
    """Store offsets of a group that the transaction's commit makes visible.

    `implicit`: the request adds the group to the transaction (KIP-890, TxnOffsetCommit 5).
    The generation is -1 and the member is empty if the client does not name them. `home`: the
    coordinator of the transactional id, if another broker or shard than that of the group is.
    """

    code = OpCode.COMMIT_TXN_OFFSETS
    producer: TransactionalProducer
    group: str
    generation: int
    member_id: str
    instance_id: str
    offsets: list[CommitOffset]
    implicit: bool = False
    home: str = ""


# --- EndTxn 0x64 ------------------------------------------------------------------------------


@wire_struct
class EndTransactionResp(WireStruct):
    """The producer id and epoch of the next transaction. All of the old one is durable."""

    producer_id: int = -1
    producer_epoch: int = -1
    error_code: int = 0


@wire_struct
class EndTransaction(Op[EndTransactionResp]):
    """Commit or abort the producer's transaction. Safe to retry.

    `bumps_epoch`: the client takes the next epoch from the answer (KIP-890, EndTxn 5).
    """

    code = OpCode.END_TRANSACTION
    producer: TransactionalProducer
    commit: bool
    bumps_epoch: bool = False


# --- WriteTxnMarkers 0x65 ---------------------------------------------------------------------


@wire_struct
class WriteMarkersResp(WireStruct):
    """One error code per partition, in the order of the request."""

    partitions: list[int]


@wire_struct
class WriteMarkers(Op[WriteMarkersResp]):
    """End a producer's open transaction in these partitions, as an administrator (KIP-664)."""

    code = OpCode.WRITE_MARKERS
    producer_id: int
    producer_epoch: int
    commit: bool
    topics: list[PartitionsByTopic]
    coordinator_epoch: int = 0


# --- DescribeTransactions 0x66 ----------------------------------------------------------------


@wire_struct
class DescribedTransaction(WireStruct):
    """The state of a transactional id, or the error. `state`: one of Kafka's names.

    `start_ms`: when its transaction began; of one in a Prepare state, when it ended at its
    coordinator; -1: it has none. `groups`: those whose offsets are in
    the transaction.
    """

    transactional_id: str
    error_code: int = 0
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    topics: list[PartitionsByTopic] | None = None
    groups: list[str] | None = None


@wire_struct
class DescribeTransactionsResp(WireStruct):
    """One answer per transactional id, in the order of the request."""

    transactions: list[DescribedTransaction]


@wire_struct
class DescribeTransactions(Op[DescribeTransactionsResp]):
    """Describe transactional ids."""

    code = OpCode.DESCRIBE_TRANSACTIONS
    reads = True
    transactional_ids: list[str]


# --- ListTransactions 0x67 --------------------------------------------------------------------


@wire_struct
class ListedTransaction(WireStruct):
    """A transactional id. `start_ms`: as in DescribedTransaction."""

    transactional_id: str
    producer_id: int
    state: str
    start_ms: int = -1


@wire_struct
class ListTransactionsResp(WireStruct):
    """The org's transactional ids, by name."""

    transactions: list[ListedTransaction]


@wire_struct
class ListTransactions(Op[ListTransactionsResp]):
    """List transactional ids in any of these states and of these producers; empty matches all.

    `longer_than_ms`: only those whose transaction has been open longer; -1: all.
    """

    code = OpCode.LIST_TRANSACTIONS
    reads = True
    states: list[str]
    producer_ids: list[int]
    longer_than_ms: int = -1


ALL: tuple[type[AnyOp], ...] = (
    InitTransactions,
    AddPartitions,
    AddOffsets,
    CommitTxnOffsets,
    EndTransaction,
    WriteMarkers,
    DescribeTransactions,
    ListTransactions,
)
