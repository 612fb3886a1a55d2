"""Ops on the records of partitions: produce, fetch and delete, and producer ids.

The codes 0x02 and 0x03 and the first fields of FetchOp and FetchOpResp are Rafka's (seed 1). Its
`records` were bare values; ours are stored record batches, byte for byte.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Buffer, Op, OpCode, OpKind, WireStruct, wire_struct
from quafka_mesh_ops.ops.offsets import EpochEndResp
from quafka_mesh_ops.ops.places import ObjectPlace
from quafka_proto.records import packed_records

# --- Produce 0x02 -----------------------------------------------------------------------------


@wire_struct
class ProduceOp(WireStruct):
    """The record batch for one partition, as the client sent it. The broker validates it."""

    topic: str
    partition: int
    records: Buffer
    topic_id: bytes = b""


@wire_struct
class RecordError(WireStruct):
    """The error of one record of a batch. The first record has index 0."""

    index: int
    message: str


@wire_struct
class ProduceOpResp(WireStruct):
    """The offset of the first record. Sent after the group commit that holds the batch.

    `record_errors`: the records that caused the error, if the broker knows them (KIP-467).
    The topic id, the watermarks and the leader epoch are the current ones; they are missing
    (empty, -1) with an error, and in the answers of older brokers. `prompt`: the batch waited for
    nothing but its commit to the broker's log.
    """

    base_offset: int
    error_code: int = 0
    log_append_time: int = -1
    log_start_offset: int = 0
    error_message: str = ""
    record_errors: list[RecordError] | None = None
    topic_id: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    leader_epoch: int = -1
    prompt: bool = False


@wire_struct
class ProduceOpsResp(WireStruct):
    """One answer per ProduceOp, in the order of the request.

    `check_us`: what the checks of long batches have cost the broker. `commit_us`: how long the
    appends waited for their commit, which is no work.
    """

    partitions: list[ProduceOpResp]
    check_us: int = 0
    commit_us: int = 0


@wire_struct
class ProduceOps(Op[ProduceOpsResp]):
    """A Kafka produce request, or several small ones. `acks`: 0, 1 or -1, as in Kafka.

    `transactional_id`: that of the request. `implicit`: the request adds the partitions of its
    transactional batches to the transaction (KIP-890, Produce 12). `connection`: see
    `transactions`; set only if the request has a transactional id. `home`: the node id of the
    transaction's coordinator, if that is another broker.
    """

    code = OpCode.PRODUCE
    carries_records = True
    partitions: list[ProduceOp]
    acks: int = -1
    transactional_id: str = ""
    implicit: bool = False
    connection: bytes = b""
    home: str = ""

    @property
    def kind(self) -> OpKind:
        """See Op."""
        return OpKind.RECORDS

    @property
    def parts(self) -> int:
        """See Op."""
        return len(self.partitions)

    @property
    def packed_records(self) -> int:
        """See Op."""
        found = 0
        for each in self.partitions:  # a generator would cost a call more for each
            found += packed_records(each.records)
        return found


# --- Fetch 0x03 -------------------------------------------------------------------------------


MOST_BATCHES = 2_048
"""Batches in one answer to a fetch, over all partitions: each costs microseconds on every event
loop on its way. A fetch for which this many can be read does not wait for more."""

_PARKED_BYTES = 384
"""What a broker keeps of each partition of a parked fetch, besides its part of the op."""


@wire_struct
class FetchOp(WireStruct):
    """A read of one partition: at most `max_bytes`, from `fetch_offset` on.

    The epochs are Kafka's leader epochs, -1 if the client names none: that of the leader which the
    client knows, and that of the last record which the client has.
    """

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    topic_id: bytes = b""
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@wire_struct
class AbortedByOffset(WireStruct):
    """A transaction whose records a read_committed consumer must drop.

    `last_offset`: that of its control batch, so that a cache can tell which reads it concerns; -1:
    the broker is older and does not name it. An answer lists every aborted transaction with
    `last_offset` at or above the first returned offset and `first_offset` below the end.
    """

    producer_id: int
    first_offset: int
    last_offset: int = -1


@wire_struct
class BatchTrace(WireStruct):
    """The produce that wrote the batch at this offset: a W3C traceparent."""

    base_offset: int
    traceparent: str


@wire_struct
class FetchOpResp(WireStruct):
    """Stored record batches and the partition's watermarks.

    Attributes:
        diverging_epoch: the end of the client's last fetched epoch in this log, if the client has
            records of it above that end, which it must truncate; then no records are returned.
        topic_id: set if the op named the topic by its name.
        produced_by: the traces that wrote some of the batches, as far as the broker knows them.
        leader_epoch: the partition's current one; -1 if unknown.
        places: where the batches are, instead of `records`; only if the op takes places.
    """

    records: list[Buffer]
    high_watermark: int
    error_code: int = 0
    log_start_offset: int = -1
    last_stable_offset: int = -1
    aborted_transactions: list[AbortedByOffset] | None = None
    diverging_epoch: EpochEndResp | None = None
    topic_id: bytes = b""
    produced_by: list[BatchTrace] | None = None
    leader_epoch: int = -1
    places: list[ObjectPlace] | None = None


@wire_struct
class FetchOpsResp(WireStruct):
    """One answer per FetchOp, in the order of the request.

    `leased`: no change that concerns holders of leases (HoldLease) happened during the read, so
    the records may be cached and shared. `parked_us`: time that the op waited for records.
    """

    carries_records = True
    partitions: list[FetchOpResp]
    leased: bool = False
    parked_us: int = 0


@wire_struct
class FetchOps(Op[FetchOpsResp]):
    """One Kafka fetch request.

    The broker parks it until `min_bytes` or MOST_BATCHES batches can be read over all partitions,
    `max_wait_ms` has passed, or a partition has an error. `isolation_level`: 0
    read_uncommitted, 1 read_committed. `replica_id`: -1 for consumers, 0 and up reads to the log
    end. Without `at_least_one`, a batch larger than `max_bytes` is not returned. `places`: the
    number of the reader's connection for descriptors, if the answer may have places; 0: by value.
    `objects`: the answer may have places in objects of the broker's store, which the reader reads.
    """

    code = OpCode.FETCH
    partitions: list[FetchOp]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    replica_id: int = -1
    at_least_one: bool = True
    places: int = 0
    objects: bool = False

    @property
    def kind(self) -> OpKind:
        """See Op."""
        return OpKind.FETCHES

    @property
    def parked_bytes(self) -> int:
        """See Op."""
        return _PARKED_BYTES * len(self.partitions)


# --- InitProducerId 0x08 ----------------------------------------------------------------------


@wire_struct
class InitProducerIdResp(WireStruct):
    """A producer id that this broker gives to no other producer."""

    producer_id: int
    producer_epoch: int
    error_code: int = 0


@wire_struct
class InitProducerId(Op[InitProducerIdResp]):
    """Request a producer id, or the next epoch of the given one (KIP-360)."""

    code = OpCode.INIT_PRODUCER_ID
    producer_id: int = -1
    producer_epoch: int = -1


# --- DeleteRecords 0x09 -----------------------------------------------------------------------


@wire_struct
class DeleteRecordsOp(WireStruct):
    """Delete a partition's records below `offset`; -1: all records."""

    topic: str
    partition: int
    offset: int


@wire_struct
class DeleteRecordsOpResp(WireStruct):
    """The new log start offset of the partition."""

    low_watermark: int
    error_code: int = 0


@wire_struct
class DeleteRecordsOpsResp(WireStruct):
    """One answer per DeleteRecordsOp, in the order of the request."""

    partitions: list[DeleteRecordsOpResp]


@wire_struct
class DeleteRecordsOps(Op[DeleteRecordsOpsResp]):
    """One Kafka DeleteRecords request. Durable once it is answered."""

    code = OpCode.DELETE_RECORDS
    partitions: list[DeleteRecordsOp]


ALL: tuple[type[AnyOp], ...] = (
    ProduceOps,
    FetchOps,
    InitProducerId,
    DeleteRecordsOps,
)
