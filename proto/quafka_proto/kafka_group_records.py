"""The records of `__consumer_offsets` and `__transaction_state`, two compacted logs.

Keys and values begin with a version (int16), and are followed by a message. In
`__consumer_offsets`, a key's version is the type of the record: 0 and 1 an offset, 2 a classic
group, 3 a consumer group of KIP-848, others their members and assignments. `__transaction_state`
has one record for each transactional id. A null value is a tombstone. Names and fields are Kafka's.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from quafka_proto.codec import decode_front, encode
from quafka_proto.errors import Malformed
from quafka_proto.message import (
    Message,
    Struct,
    array,
    binary,
    int8,
    int16,
    int32,
    int64,
    string,
)

_VERSION = struct.Struct(">h")
_OFFSETS, _GROUP, _CONSUMER_GROUP = (0, 1), 2, 3


class GroupRecord(Message):
    """A key or a value."""

    item_limit = 1_000_000


class OffsetCommitKey(GroupRecord, key=0, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(GroupRecord, key=0, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)


class GroupMetadataKey(GroupRecord, key=2, versions="2"):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(GroupRecord, key=2, versions="0-4", flexible="4+"):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(GroupRecord, key=3, versions="3"):
    group_id: str = string()


class TransactionPartitions(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32())


class TransactionLogValue(GroupRecord, key=0, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    """0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 and 5 complete; others since."""
    transaction_partitions: list[TransactionPartitions] | None = array(
        TransactionPartitions, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


PREPARE_COMMIT = 2

M = TypeVar("M", bound=GroupRecord)
GroupKey = OffsetCommitKey | GroupMetadataKey | ConsumerGroupMetadataKey


def decode_group_key(key: bytes) -> GroupKey | None:
    """The key of an offset or of a group; None: of another kind.

    Raises:
        Malformed: cut short or garbled.
    """
    version = _version(key)
    if version in _OFFSETS:
        return _decode(OffsetCommitKey, version, key)
    if version == _GROUP:
        return _decode(GroupMetadataKey, version, key)
    if version == _CONSUMER_GROUP:
        return _decode(ConsumerGroupMetadataKey, version, key)
    return None


def decode_offset(value: bytes) -> OffsetCommitValue:
    """The value of a committed offset.

    Raises:
        Malformed: cut short, garbled, or of an unknown version.
    """
    return _decode(OffsetCommitValue, _version(value), value)


def decode_group(value: bytes) -> GroupMetadataValue:
    """The value of a classic group.

    Raises:
        Malformed: cut short, garbled, or of an unknown version.
    """
    return _decode(GroupMetadataValue, _version(value), value)


def decode_transaction(value: bytes) -> TransactionLogValue:
    """The state of a transactional id.

    Raises:
        Malformed: cut short, garbled, or of an unknown version.
    """
    return _decode(TransactionLogValue, _version(value), value)


def encode_group_record(record: GroupRecord, version: int) -> bytes:
    """A key or a value."""
    return b"".join(encode(record, version, bytearray(_VERSION.pack(version))))


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise Malformed("a record of the consumer groups is cut short")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _decode(kind: type[M], version: int, data: bytes) -> M:
    if version not in kind.versions:
        raise Malformed(f"{kind.__name__} version {version} is not known")
    return decode_front(kind, version, data, _VERSION.size)[0]
