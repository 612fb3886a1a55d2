"""Ops on the records of share groups (KIP-932), 0x80 to 0x85.

They go to the broker of the partitions. The group and its members are the home broker's: it decides
whose session is valid, and when offsets may be changed.

A member acquires records in a share session of its gateway, whose id (`session`) no other session
of any gateway has. The end of a session takes back what was acquired or renewed in it, and nothing
that the member has acquired through another gateway meanwhile. Earlier gateways name no session.
"""

from __future__ import annotations

from quafka_mesh_ops.ops.base import AnyOp, Op, OpCode, OpKind, WireStruct, wire_struct
from quafka_proto.schema.share_fetch import AcquiredRecords

EARLIEST, LATEST = -2, -1
EVERY_PARTITION = -1
"""Instead of a partition's number: all that the group has in the topic."""
MOST_ACQUIRED = 10_000
"""Records that one op may acquire or acknowledge of one partition."""


@wire_struct
class ShareConfigs(WireStruct):
    """The configs of a share group. -1: as the broker's settings are.

    Attributes:
        lock_ms: how long a member has records.
        most_deliveries: how often a record is delivered before it is archived.
        most_in_flight: offsets in the window of a partition.
        reset: where a group begins in a partition: EARLIEST, LATEST, or at the first record that
            is at most this many ms old.
        committed: whether members get the records of committed transactions only.
        renews: whether members may renew their locks.
    """

    lock_ms: int = -1
    most_deliveries: int = -1
    most_in_flight: int = -1
    reset: int = LATEST
    committed: bool = False
    renews: bool = True


@wire_struct
class SharePlace(WireStruct):
    """A partition of a topic, named by name or, if that is empty, by id.

    `is_new`: it has joined its topic since the group learnt the topic. The group begins at its
    start, whatever `ShareConfigs.reset` says.
    """

    topic: str
    partition: int
    topic_id: bytes = b""
    is_new: bool = False


# --- Acquire 0x80 -----------------------------------------------------------------------------


@wire_struct
class BatchRange(WireStruct):
    """Adjacent batches that hold acquired records: read `size` bytes from `first` on."""

    first: int
    last: int
    size: int


@wire_struct
class AcquiredPartition(WireStruct):
    """What a member has acquired in one partition, or the error."""

    acquired: list[AcquiredRecords]
    batches: list[BatchRange]
    error_code: int = 0
    leader_epoch: int = -1


@wire_struct
class AcquireRecordsResp(WireStruct):
    """One answer per partition, in the order of the request.

    `lock_ms`: for how long the member has the records. `parked_us`: time that the op waited.
    """

    partitions: list[AcquiredPartition]
    lock_ms: int
    parked_us: int = 0


@wire_struct
class AcquireRecords(Op[AcquireRecordsResp]):
    """Acquire records for a member of a share group.

    The broker parks the op until `min_bytes` can be acquired over all partitions, `max_wait_ms` has
    passed, or a partition has an error. `max_records`: this many records, and the rest of the last
    batch; `exact`: never more. `max_bytes`: of the batches that hold them; the first batch may be
    larger. `look_only`: wait, but acquire nothing.
    """

    code = OpCode.ACQUIRE_RECORDS
    group: str
    member_id: str
    partitions: list[SharePlace]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    max_records: int = 500
    exact: bool = False
    look_only: bool = False
    configs: ShareConfigs = ShareConfigs()
    session: bytes = b""

    @property
    def kind(self) -> OpKind:
        """See Op."""
        return OpKind.FETCHES


# --- Acknowledge 0x81 -------------------------------------------------------------------------


@wire_struct
class AcknowledgedBatch(WireStruct):
    """Records [first, last], with one of Kafka's types for all of them or one for each."""

    first: int
    last: int
    types: bytes


@wire_struct
class PartitionAcknowledgements(WireStruct):
    """The acknowledgements in one partition. All of them are refused if one is."""

    topic: str
    partition: int
    batches: list[AcknowledgedBatch]
    topic_id: bytes = b""


@wire_struct
class AcknowledgeRecordsResp(WireStruct):
    """One error code per partition, in the order of the request. The changes are durable."""

    partitions: list[int]
    lock_ms: int = -1


@wire_struct
class AcknowledgeRecords(Op[AcknowledgeRecordsResp]):
    """Acknowledge records that a member has, in any of its sessions; renew them in this one."""

    code = OpCode.ACKNOWLEDGE_RECORDS
    group: str
    member_id: str
    partitions: list[PartitionAcknowledgements]
    configs: ShareConfigs = ShareConfigs()
    session: bytes = b""

    @property
    def kind(self) -> OpKind:
        """See Op."""
        return OpKind.RECORDS

    @property
    def parts(self) -> int:
        """See Op."""
        return len(self.partitions)


# --- Release 0x82 -----------------------------------------------------------------------------


@wire_struct
class ReleasePartition(WireStruct):
    """The records [first, last] of a partition, as far as the member has them."""

    topic: str
    partition: int
    first: int = 0
    last: int = (1 << 63) - 1
    topic_id: bytes = b""


@wire_struct
class ReleaseRecordsResp(WireStruct):
    """The number of records that are available again, or archived."""

    released: int


@wire_struct
class ReleaseRecords(Op[ReleaseRecordsResp]):
    """Take back what a member has of a session: in these partitions, or everywhere without any.

    Records of partitions that are named were not seen, so that their delivery does not count.
    """

    code = OpCode.RELEASE_RECORDS
    group: str
    member_id: str
    partitions: list[ReleasePartition]
    session: bytes = b""


# --- Offsets 0x83 to 0x85 ---------------------------------------------------------------------


@wire_struct
class ShareOffset(WireStruct):
    """The position of a share group in a partition.

    Attributes:
        start: all records below were dealt with; -1: the group has not begun with the partition.
        lag: the offsets from there on that were not dealt with; -1: unknown.
        in_flight: the offsets of the window; `acquired`: those that members have.
    """

    topic: str
    topic_id: bytes
    partition: int
    start: int = -1
    leader_epoch: int = -1
    lag: int = -1
    error_code: int = 0
    in_flight: int = 0
    acquired: int = 0


@wire_struct
class ShareGroupOffsets(WireStruct):
    """The offsets of one more group."""

    partitions: list[ShareOffset]


@wire_struct
class DescribeShareOffsetsResp(WireStruct):
    """One answer per partition, in the order of the request; or all that the group has.

    `others`: those of the other groups; None in the answers of older brokers.
    """

    partitions: list[ShareOffset]
    others: list[ShareGroupOffsets] | None = None


@wire_struct
class ShareGroupPlaces(WireStruct):
    """A group and partitions. None: all that it has at this broker."""

    group: str
    partitions: list[SharePlace] | None = None


@wire_struct
class DescribeShareOffsets(Op[DescribeShareOffsetsResp]):
    """Describe a share group's positions, and those of `others`. See ShareGroupPlaces."""

    code = OpCode.DESCRIBE_SHARE_OFFSETS
    reads = True
    group: str
    partitions: list[SharePlace] | None = None
    others: list[ShareGroupPlaces] | None = None


@wire_struct
class NewShareOffset(WireStruct):
    """The new position of a share group in a partition."""

    topic: str
    partition: int
    start: int
    topic_id: bytes = b""


@wire_struct
class ShareOffsetsChangedResp(WireStruct):
    """One error code per partition, in the order of the request. The changes are durable."""

    partitions: list[int]


@wire_struct
class AlterShareOffsets(Op[ShareOffsetsChangedResp]):
    """Let a share group without members continue at other offsets; it forgets all deliveries."""

    code = OpCode.ALTER_SHARE_OFFSETS
    group: str
    partitions: list[NewShareOffset]


@wire_struct
class DeleteShareOffsets(Op[ShareOffsetsChangedResp]):
    """Delete a share group's positions, in these partitions or everywhere if there are none.

    A partition with the number EVERY_PARTITION stands for all of the topic. A topic that is
    unknown, or (for EVERY_PARTITION) that the group has not begun with, has an error code. Another
    partition that the group has not begun with is no error.
    """

    code = OpCode.DELETE_SHARE_OFFSETS
    group: str
    partitions: list[SharePlace]


ALL: tuple[type[AnyOp], ...] = (
    AcquireRecords, AcknowledgeRecords, ReleaseRecords, DescribeShareOffsets, AlterShareOffsets,
    DeleteShareOffsets,
)  # fmt: skip
