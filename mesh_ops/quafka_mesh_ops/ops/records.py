"""The ops that gateway and broker exchange: frozen types, their codes and their wire order.

How they travel, and how they may change, is said in parts.py; those about consumer groups are in
group_ops.py and lag_ops.py, those of administrators in admin_ops.py, those about snapshots in
snapshot_ops.py.

The codes 0x02 to 0x05 and the first fields of FetchOp and FetchOpResp are Rafka's (seed 1); its
`records` were bare values, ours are stored record batches, byte for byte. Times are
milliseconds since the Unix epoch, `error_code` is a Kafka error code (0: none), `topic_id` is
the topic's UUID as 16 bytes (empty: address by name).
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.ops import admin as admin_ops
from quafka_mesh_ops.ops import groups as group_ops
from quafka_mesh_ops.ops import lag as lag_ops
from quafka_mesh_ops.ops import probe as probe_ops
from quafka_mesh_ops.ops import snapshots as snapshot_ops
from quafka_mesh_ops.ops.codec import AnyOp, Buffer, Op, OpCode, Part

# --- Produce 0x02 ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProduceOp(Part):
    """The record batch for one partition, as the client sent it. The broker checks it."""

    topic: str
    partition: int
    records: Buffer
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class RecordError(Part):
    """What is wrong with one record of a batch, the first having index 0."""

    index: int
    message: str


@dataclass(frozen=True, slots=True)
class ProduceOpResp(Part):
    """Where the first record went. Answered after the group commit that holds the batch.

    `record_errors`: the records that are to blame for the error, where some are (KIP-467).
    The topic's id, the watermarks and the leader epoch are those of this moment; they are missing
    (empty, -1) with an error, and in the answers of older brokers.
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


@dataclass(frozen=True, slots=True)
class ProduceOpsResp(Part):
    """One answer per ProduceOp, in the order of the request."""

    partitions: list[ProduceOpResp]


@dataclass(frozen=True, slots=True)
class ProduceOps(Op[ProduceOpsResp]):
    """One Kafka produce request. `acks`: 0, 1 or -1, as in Kafka."""

    code = OpCode.PRODUCE
    partitions: list[ProduceOp]
    acks: int = -1


# --- Fetch 0x03 -----------------------------------------------------------------------------

MOST_BATCHES = 2_048
"""Batches in one answer to a fetch, of all partitions together: each costs microseconds on every
event loop that it passes. A fetch that could be given so many has waited long enough."""


@dataclass(frozen=True, slots=True)
class FetchOp(Part):
    """What to read from one partition: at most `max_bytes`, from `fetch_offset` on.

    The epochs are Kafka's leader epochs, -1 where the client names none: that of the leader it
    believes in, and that of the last record it has.
    """

    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    topic_id: bytes = b""
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEnd(Part):
    """The offset behind the last record of a leader epoch; -1 and -1 where it is not known."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction(Part):
    """A transaction whose records a read_committed consumer must drop."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class BatchTrace(Part):
    """The produce that wrote the batch at this offset: a W3C traceparent."""

    base_offset: int
    traceparent: str


@dataclass(frozen=True, slots=True)
class FetchOpResp(Part):
    """Stored record batches and the partition's watermarks.

    `diverging_epoch`: the log has less of the client's last fetched epoch than the client, who is
    to cut off what lies behind; then there are no records.
    `topic_id` is set where the op named the topic by its name. `produced_by`: which traces wrote
    some of the batches, as far as the broker knows. `leader_epoch`: the partition's current one,
    -1 where it is not known.
    """

    records: list[Buffer]
    high_watermark: int
    error_code: int = 0
    log_start_offset: int = -1
    last_stable_offset: int = -1
    aborted_transactions: list[AbortedTransaction] | None = None
    diverging_epoch: EpochEnd | None = None
    topic_id: bytes = b""
    produced_by: list[BatchTrace] | None = None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchOpsResp(Part):
    """One answer per FetchOp, in the order of the request.

    `leased`: nothing changed while it was read that holders of leases are told of (HoldLease), so
    it may be kept and given to others. `parked_us`: how long it waited for records.
    """

    partitions: list[FetchOpResp]
    leased: bool = False
    parked_us: int = 0


@dataclass(frozen=True, slots=True)
class FetchOps(Op[FetchOpsResp]):
    """One Kafka fetch request.

    The broker parks it until `min_bytes` or MOST_BATCHES batches can be read over all partitions,
    or `max_wait_ms` has passed, or any partition has an error. `isolation_level`: 0
    read_uncommitted, 1 read_committed. `replica_id`: -1 for consumers, 0 and up reads to the log
    end. Without `at_least_one`, a batch that is larger than `max_bytes` is not returned.
    """

    code = OpCode.FETCH
    partitions: list[FetchOp]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    replica_id: int = -1
    at_least_one: bool = True


# --- ListOffsets 0x04 -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListOffsetsOp(Part):
    """The offset asked for: timestamp -2 earliest, -1 latest, or a time."""

    topic: str
    partition: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsOpResp(Part):
    """The offset found; -1 when nothing matches."""

    offset: int
    error_code: int = 0
    timestamp: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsOpsResp(Part):
    """One answer per ListOffsetsOp, in the order of the request."""

    partitions: list[ListOffsetsOpResp]


@dataclass(frozen=True, slots=True)
class ListOffsetsOps(Op[ListOffsetsOpsResp]):
    """One Kafka ListOffsets request."""

    code = OpCode.LIST_OFFSETS
    reads = True
    partitions: list[ListOffsetsOp]
    isolation_level: int = 0


# --- Topics 0x05 to 0x07 --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteTopicResp(Part):
    """The deleted topic, named both ways."""

    topic: str
    topic_id: bytes = b""
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeleteTopic(Op[DeleteTopicResp]):
    """Delete one topic, by name or, where `topic` is empty, by id."""

    code = OpCode.DELETE_TOPIC
    topic: str
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicDescription(Part):
    """A topic as Kafka's Metadata shows it, or the error for the one that was asked for.

    `leader_epoch`: of all its partitions.
    """

    topic: str
    topic_id: bytes
    partitions: int
    error_code: int = 0
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTopicsResp(Part):
    """The topics asked for, in the order asked; all of them, by name, where all were asked.

    Attributes:
        version: of the org's topics, where all were asked; another one after each change. Empty
            from brokers that do not have it.
        unchanged: the version is the one that the op knows: no topics are listed.
        more: topics follow behind the last one.
        created: partitions of the topics that the op created.
    """

    cluster_id: str
    topics: list[TopicDescription]
    version: bytes = b""
    unchanged: bool = False
    more: bool = False
    created: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTopics(Op[DescribeTopicsResp]):
    """Describe topics by name and by id. `topics` None: all.

    `auto_create` makes the named ones that are missing, where the broker's
    `auto.create.topics.enable` allows it, with at most `create_at_most` partitions in all (-1: no
    bound); further ones are answered POLICY_VIOLATION.

    Where all are asked for, `at_most` of them come at a time (0: all at once), those behind the
    name `after`; none where their version is `known`.
    """

    code = OpCode.DESCRIBE_TOPICS
    reads = True
    topics: list[str] | None = None
    topic_ids: list[bytes] | None = None
    auto_create: bool = False
    after: str = ""
    at_most: int = 0
    known: bytes = b""
    create_at_most: int = -1


@dataclass(frozen=True, slots=True)
class ConfigEntry(Part):
    """A config that a client wants to set. `value` None: nothing was given."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class EffectiveConfig(Part):
    """A config of a topic. `source`: Kafka's number for where its value comes from."""

    name: str
    value: str
    source: int


@dataclass(frozen=True, slots=True)
class CreateTopicResp(Part):
    """The created topic, or why it was not."""

    topic_id: bytes
    partitions: int
    error_code: int = 0
    error_message: str = ""
    configs: list[EffectiveConfig] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopic(Op[CreateTopicResp]):
    """Create one topic. `partitions` -1: the broker's `num.partitions`."""

    code = OpCode.CREATE_TOPIC
    topic: str
    partitions: int = -1
    validate_only: bool = False
    configs: list[ConfigEntry] | None = None


# --- Producers 0x08 -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerIdResp(Part):
    """A producer id that no other producer of this broker has or will have."""

    producer_id: int
    producer_epoch: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class InitProducerId(Op[InitProducerIdResp]):
    """Ask for a producer id, or (KIP-360) for the next epoch of the one given."""

    code = OpCode.INIT_PRODUCER_ID
    producer_id: int = -1
    producer_epoch: int = -1


# --- DeleteRecords 0x09 ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteRecordsOp(Part):
    """Delete a partition's records below `offset`; -1: all there are."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsOpResp(Part):
    """Where the partition begins now."""

    low_watermark: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class DeleteRecordsOpsResp(Part):
    """One answer per DeleteRecordsOp, in the order of the request."""

    partitions: list[DeleteRecordsOpResp]


@dataclass(frozen=True, slots=True)
class DeleteRecordsOps(Op[DeleteRecordsOpsResp]):
    """One Kafka DeleteRecords request. Durable when it is answered."""

    code = OpCode.DELETE_RECORDS
    partitions: list[DeleteRecordsOp]


# --- OffsetForLeaderEpoch 0x20 --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochEndOp(Part):
    """Where `leader_epoch` ends. `current_leader_epoch`: as in FetchOp."""

    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class EpochEndOpResp(Part):
    """The greatest epoch at or below the one asked for, and its end; -1 and -1: not known."""

    end: EpochEnd
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class EpochEndOpsResp(Part):
    """One answer per EpochEndOp, in the order of the request."""

    partitions: list[EpochEndOpResp]


@dataclass(frozen=True, slots=True)
class EpochEndOps(Op[EpochEndOpsResp]):
    """One Kafka OffsetForLeaderEpoch request."""

    code = OpCode.EPOCH_ENDS
    reads = True
    partitions: list[EpochEndOp]


# --- Leases 0x30 ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change(Part):
    """What was read of a partition is not to be served any more. `partition` -1: of all."""

    topic: str
    topic_id: bytes
    partition: int = -1


@dataclass(frozen=True, slots=True)
class HoldLeaseResp(Part):
    """The lease runs for `valid_ms` from when it was asked for.

    `changes` are those after the ones heard of, up to `serial`. `forget`: not all of them are
    known any more; nothing that was learned before counts. `incarnation` names this run of the
    broker: what another one said, bytes included, counts for nothing.
    """

    incarnation: bytes
    serial: int
    valid_ms: int
    forget: bool
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class HoldLease(Op[HoldLeaseResp]):
    """Ask for the lease under which fetches may be answered from memory, or for a longer one.

    While `holder` (random bytes) has a lease, no topic is deleted and no log start moves until it
    has heard of the change: by asking again with that change's serial as `heard`. The op is parked
    for a while if there is nothing to say.
    """

    code = OpCode.HOLD_LEASE
    holder: bytes
    incarnation: bytes = b""
    heard: int = -1


_ALL: tuple[type[AnyOp], ...] = (
    ProduceOps,
    FetchOps,
    ListOffsetsOps,
    DeleteTopic,
    DescribeTopics,
    CreateTopic,
    InitProducerId,
    DeleteRecordsOps,
    EpochEndOps,
    HoldLease,
    *group_ops.ALL,
    *admin_ops.ALL,
    *lag_ops.ALL,
    *probe_ops.ALL,
    *snapshot_ops.ALL,
)

OPS: dict[int, type[AnyOp]] = {op.code: op for op in _ALL}
"""What an op code's body is."""
