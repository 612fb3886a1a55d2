"""The records of `__cluster_metadata`, Kafka's log of its own metadata (KRaft, KIP-500, KIP-631).

A record's value is a frame: unsigned varints of frame version (1), record type and version, then a
message, which is flexible in all versions. This module describes the records of topics. Names and
fields are Kafka's.
"""

from __future__ import annotations

from quafka_proto.codec import decode, encode
from quafka_proto.errors import Malformed
from quafka_proto.message import Message, array, int8, int16, int32, string, uuid
from quafka_proto.primitives import read_uvarint, write_uvarint

_FRAME_VERSION = 1


class MetadataRecord(Message):
    """A record of topics. `RECORDS` lists all by type."""

    item_limit = 1_000_000

    def __init_subclass__(cls, key: int | None = None, versions: str = "") -> None:
        super().__init_subclass__(key, versions, "0+")
        if key is not None:
            RECORDS[key] = cls


RECORDS: dict[int, type[MetadataRecord]] = {}


class TopicRecord(MetadataRecord, key=2, versions="0"):
    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(MetadataRecord, key=3, versions="0-2"):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32())
    isr: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid(), "1+")
    eligible_leader_replicas: list[int] | None = array(
        int32(), "2+", default=None, nullable="2+", tag=1
    )
    last_known_elr: list[int] | None = array(int32(), "2+", default=None, nullable="2+", tag=2)


class ConfigRecord(MetadataRecord, key=4, versions="0"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2"):
    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32(), default=None, nullable="0+", tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32(), default=None, nullable="0+", tag=2)
    removing_replicas: list[int] | None = array(int32(), default=None, nullable="0+", tag=3)
    adding_replicas: list[int] | None = array(int32(), default=None, nullable="0+", tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[bytes] | None = array(uuid(), "1+", default=None, nullable="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array(
        int32(), "2+", default=None, nullable="2+", tag=6
    )
    last_known_elr: list[int] | None = array(int32(), "2+", default=None, nullable="2+", tag=7)


class RemoveTopicRecord(MetadataRecord, key=9, versions="0"):
    topic_id: bytes = uuid()


class FeatureLevelRecord(MetadataRecord, key=12, versions="0"):
    name: str = string()
    feature_level: int = int16()


class BeginTransactionRecord(MetadataRecord, key=23, versions="0"):
    name: str | None = string(default=None, nullable="0+", tag=0)


class EndTransactionRecord(MetadataRecord, key=24, versions="0"):
    """Applies the records since BeginTransactionRecord (KIP-866)."""


class AbortTransactionRecord(MetadataRecord, key=25, versions="0"):
    """Drops the records since BeginTransactionRecord."""

    reason: str | None = string(default=None, nullable="0+", tag=0)


def decode_metadata_record(value: bytes) -> MetadataRecord | None:
    """The record in a value; None for types that do not concern topics.

    Raises:
        Malformed: cut short, garbled, or of an unknown version.
    """
    try:
        frame, at = read_uvarint(value, 0)
        kind, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
    except IndexError as e:
        raise Malformed("a metadata record is cut short") from e
    if frame != _FRAME_VERSION:
        raise Malformed(f"a metadata record of frame version {frame}")
    record_type = RECORDS.get(kind)
    if record_type is None:
        return None
    if version not in record_type.versions:
        raise Malformed(f"{record_type.__name__} version {version} is not known")
    return decode(record_type, version, value, at)


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """The value of a record."""
    head = bytearray()
    for number in (_FRAME_VERSION, record.api_key, version):
        write_uvarint(head, number)
    return b"".join(encode(record, version, head))
