"""The topics of a KRaft cluster, from its metadata log (`__cluster_metadata-0`).

The newest snapshot (`OFFSET-EPOCH.checkpoint`, KIP-630) has the state before its offset; the
records of the log continue from there. One of several controllers may still lose the last records
of its log; the folder does not show which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quafka_broker.kafka_logs.batch_file import open_batches
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import names_in
from quafka_broker.kafka_logs.folder_names import CHECKPOINT
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.errors import Malformed
from quafka_proto.kafka_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from quafka_proto.message import Buffer
from quafka_proto.record_codec import iter_records
from quafka_proto.records import CONTROL, read_header

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""Types of resources that have configs."""

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})" + re.escape(CHECKPOINT))
_CHUNK = 1 << 20
_NO_LEADER_CHANGE = -2


@dataclass(slots=True)
class PartitionImage:
    """A partition in the cluster's metadata."""

    replicas: list[int]
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class TopicImage:
    """A topic in the cluster's metadata; `partitions` by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict[int, PartitionImage])


class ClusterImage:
    """The state after a prefix of the metadata log.

    Attributes:
        offset: the end of the prefix.
        topics: by topic id.
        configs: by type and name of the resource.
        features: levels by name.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.topics: dict[bytes, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self._pending: list[MetadataRecord] | None = None

    def topic_configs(self, name: str) -> dict[str, str]:
        """The configs that were set for a topic."""
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def apply(self, record: MetadataRecord) -> None:
        """Apply the next record. Records of a metadata transaction count when it ends (KIP-866).

        Raises:
            Malformed: it contradicts earlier records.
        """
        if isinstance(record, BeginTransactionRecord):
            self._pending = []
        elif isinstance(record, (EndTransactionRecord, AbortTransactionRecord)):
            pending, self._pending = self._pending or [], None
            if isinstance(record, EndTransactionRecord):
                for each in pending:
                    self._apply(each)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = TopicImage(record.name, record.topic_id)
            case PartitionRecord():
                self._topic(record.topic_id).partitions[record.partition_id] = PartitionImage(
                    record.replicas, record.leader, record.leader_epoch
                )
            case PartitionChangeRecord():
                self._change(record)
            case RemoveTopicRecord():
                removed = self._topic(record.topic_id)
                del self.topics[record.topic_id]
                self.configs.pop((TOPIC_RESOURCE, removed.name), None)
            case ConfigRecord():
                self._configure(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case _:
                pass

    def _change(self, record: PartitionChangeRecord) -> None:
        partition = self._topic(record.topic_id).partitions.get(record.partition_id)
        if partition is None:
            raise Malformed(f"a change of the unknown partition {record.partition_id}")
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.leader != _NO_LEADER_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1

    def _configure(self, record: ConfigRecord) -> None:
        key = record.resource_type, record.resource_name
        configs = self.configs.setdefault(key, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs:
            del self.configs[key]

    def _topic(self, topic_id: bytes) -> TopicImage:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise Malformed(f"a record about the unknown topic {topic_id.hex()}")
        return topic


class ClusterMetadata:
    """The metadata log of a folder and its image. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Reads the folder `__cluster_metadata-0`. Raises KafkaLogError."""
        self._log = PartitionLog(path)
        self.image = self._loaded()

    def refresh(self) -> bool:
        """Take in new records. Returns whether there were any. Raises KafkaLogError."""
        if not self._log.refresh():
            return False
        if self._log.log_start <= self.image.offset <= self._log.log_end:
            return self._follow(self.image)
        self.image = self._loaded()
        return True

    def _loaded(self) -> ClusterImage:
        image = ClusterImage()
        snapshot = _newest_snapshot(self._log.path)
        if snapshot is not None:
            offset, path = snapshot
            with open_batches(path) as file:
                for placed in file.walk(0, verify=True):
                    _take(image, file.read(placed.position, 0)[0][1], path, placed.position)
            image.offset = offset
        if image.offset < self._log.log_start:
            raise KafkaLogError(
                self._log.path,
                f"the metadata log begins at {self._log.log_start}, and no snapshot is that new",
            )
        self._follow(image)
        return image

    def _follow(self, image: ClusterImage) -> bool:
        before = image.offset
        while image.offset < self._log.log_end:
            batches = self._log.read(image.offset, _CHUNK)
            if not batches:
                break
            for batch in batches:
                _take(image, batch.data, batch.path or self._log.path, batch.position)
                image.offset = batch.next_offset
        return image.offset != before


def _take(image: ClusterImage, batch: Buffer, path: Path, position: int) -> None:
    if read_header(batch).attributes & CONTROL:
        return
    try:
        for record in _metadata_records(batch):
            image.apply(record)
    except Malformed as e:
        raise KafkaLogError(path, str(e), position) from e


def _metadata_records(batch: Buffer) -> Iterator[MetadataRecord]:
    for record in iter_records(batch):
        decoded = decode_metadata_record(record.value or b"")
        if decoded is not None:
            yield decoded


def _newest_snapshot(folder: Path) -> tuple[int, Path] | None:
    found = map(_SNAPSHOT.fullmatch, names_in(folder))
    matches = [match for match in found if match is not None]
    if not matches:
        return None
    newest = max(matches, key=lambda match: (int(match[1]), int(match[2])))
    return int(newest[1]), folder / newest[0]
