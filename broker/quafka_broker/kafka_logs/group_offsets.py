"""The committed offsets of Kafka's consumer groups, from the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.errors import Malformed
from quafka_proto.kafka_group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group,
    decode_group_key,
    decode_offset,
)
from quafka_proto.record_codec import MarkerType, Record, iter_records, read_marker
from quafka_proto.records import CONTROL, TRANSACTIONAL, BatchHeader, read_header

_CONSUMER = "consumer"


class KafkaCommittedOffset(NamedTuple):
    """A group's offset in a partition; `at` is the offset of its record."""

    offset: int
    leader_epoch: int
    """-1: missing."""
    metadata: str
    commit_timestamp: int
    at: int


@dataclass(slots=True)
class KafkaGroup:
    """A consumer group; `offsets` by topic and partition."""

    name: str
    protocol_type: str = ""
    generation: int = -1
    offsets: dict[tuple[str, int], KafkaCommittedOffset] = field(
        default_factory=dict[tuple[str, int], KafkaCommittedOffset]
    )


def read_groups(
    logs: Iterable[PartitionLog], decided: Mapping[int, object] = MappingProxyType({})
) -> dict[str, KafkaGroup]:
    """Read the groups with an offset or a member, by name. Each group is in one partition.

    Offsets of a transaction count once it is committed. `decided` has the producers of transactions
    that count as committed without their markers.

    Raises:
        KafkaLogError: a batch is damaged, or has a record of an unknown version.
    """
    groups: dict[str, KafkaGroup] = {}
    for log in logs:
        replay = _Replay(groups)
        for batch in log.every_batch():
            _take(replay, batch.data, batch.path or log.path, batch.position)
        replay.finish(decided)
    return {name: group for name, group in groups.items() if group.offsets or group.protocol_type}


def _take(replay: _Replay, data: memoryview, path: Path, position: int) -> None:
    header = read_header(data)
    try:
        for record in iter_records(data):
            if header.attributes & CONTROL:
                replay.end(header, record)
            else:
                replay.take(header, record)
    except Malformed as e:
        raise KafkaLogError(path, str(e), position) from e


class _Replay:
    """One partition's records in order."""

    def __init__(self, groups: dict[str, KafkaGroup]) -> None:
        self._groups = groups
        self._pending: dict[int, list[tuple[OffsetCommitKey, KafkaCommittedOffset | None]]] = {}

    def take(self, header: BatchHeader, record: Record) -> None:
        """Apply a record of a batch with this header. Raises Malformed."""
        key = decode_group_key(record.key or b"")
        if isinstance(key, OffsetCommitKey):
            offset = None if record.value is None else _committed(record)
            if header.attributes & TRANSACTIONAL:
                self._pending.setdefault(header.producer_id, []).append((key, offset))
            else:
                self._commit(key, offset)
        elif key is not None:
            self._describe(key, record.value)

    def end(self, header: BatchHeader, record: Record) -> None:
        """Apply a record of a control batch. Raises Malformed."""
        marker = read_marker(record)
        if marker is None:
            return
        pending = self._pending.pop(header.producer_id, ())
        if marker.type is MarkerType.COMMIT:
            for key, offset in pending:
                self._commit(key, offset)

    def finish(self, committed: Iterable[int]) -> None:
        """End the log, committing the open transactions of these producers."""
        for producer in committed:
            for key, offset in self._pending.pop(producer, ()):
                self._commit(key, offset)

    def _commit(self, key: OffsetCommitKey, offset: KafkaCommittedOffset | None) -> None:
        offsets = self._group(key.group).offsets
        place = key.topic, key.partition
        if offset is None:
            offsets.pop(place, None)
        # A plain commit during the transaction is newer than that of the transaction.
        elif place not in offsets or offsets[place].at < offset.at:
            offsets[place] = offset

    def _describe(
        self, key: GroupMetadataKey | ConsumerGroupMetadataKey, value: bytes | None
    ) -> None:
        if isinstance(key, ConsumerGroupMetadataKey):
            group = self._group(key.group_id)
            group.protocol_type = "" if value is None else _CONSUMER
            return
        group = self._group(key.group)
        described = None if value is None else decode_group(value)
        group.protocol_type = described.protocol_type if described else ""
        group.generation = described.generation if described else -1

    def _group(self, name: str) -> KafkaGroup:
        return self._groups.setdefault(name, KafkaGroup(name))


def _committed(record: Record) -> KafkaCommittedOffset:
    value = decode_offset(record.value or b"")
    return KafkaCommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, record.offset
    )
