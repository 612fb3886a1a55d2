"""The log folders of one Kafka broker: its topics, and the places of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quafka_broker.kafka_logs.cluster_image import ClusterMetadata, TopicImage
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import changed, is_locked, names_in
from quafka_broker.kafka_logs.folder_names import (
    GROUPS_TOPIC,
    LOCK,
    METADATA_TOPIC,
    TRANSACTIONS_TOPIC,
    PartitionFolder,
    Use,
    partition_folder,
)
from quafka_broker.kafka_logs.group_offsets import KafkaGroup, read_groups
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_broker.kafka_logs.prepared import read_decided
from quafka_broker.kafka_logs.text_files import (
    MetaProperties,
    read_meta_properties,
    read_offset_checkpoint,
    read_properties,
)
from quafka_broker.kafka_logs.topic_ids import TopicIds
from quafka_loop import clock

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
NO_ID = bytes(16)
_RETRY_SECONDS = 5.0
_DEFAULT_FOLDER = "/tmp/kafka-logs"  # noqa: S108 - Kafka's own


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic that has partitions in the folders.

    Attributes:
        topic_id: 16 bytes; zeros: Kafka gave it none (before 2.8).
        partition_count: in the cluster; without a metadata log, as far as the folders show.
        partitions: folders by partition. Missing partitions are at other brokers.
        configs: those set for the topic; empty without a metadata log.
    """

    name: str
    topic_id: bytes
    partition_count: int
    partitions: dict[int, PartitionFolder]
    configs: dict[str, str]


def folders_of(path: Path) -> list[Path]:
    """The log folders at a path: itself, or `log.dirs` of a `server.properties`.

    Raises:
        KafkaLogError
    """
    if path.is_dir():
        return [path]
    settings = read_properties(path)
    dirs = settings.get("log.dirs") or settings.get("log.dir") or _DEFAULT_FOLDER
    folders = [Path(each.strip()) for each in dirs.split(",") if each.strip()]
    metadata = settings.get("metadata.log.dir", "").strip()
    if metadata and Path(metadata) not in folders:
        folders.append(Path(metadata))
    return folders


class KafkaFolders:
    """Opens the log folders of one broker, which may be running. For one thread at a time.

    Attributes:
        folders: the log folders, each with its `meta.properties`.
        topics: by name, without topics that Kafka has deleted, is moving or no longer knows.
        problems: why a partition (`topic-number`) or a checkpoint (its path) is left out.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """`paths`: log folders, or a `server.properties`.

        Raises:
            KafkaLogError: not a log folder of Kafka, folders of several brokers, or damage.
        """
        self.folders: dict[Path, MetaProperties] = {}
        for path in paths:
            for folder in folders_of(path):
                self.folders[folder] = _meta_properties(folder)
        _check_one_broker(self.folders)
        self.topics: dict[str, KafkaTopic] = {}
        self.problems: dict[str, str] = {}
        self._ids = TopicIds()
        self._cluster: ClusterMetadata | None = None
        self._scanned: dict[Path, int] = {}
        self._scanned_at = 0.0
        self._starts: dict[Path, dict[tuple[str, int], int]] = {}
        self._scan()

    @property
    def cluster_id(self) -> str:
        """The cluster's id; may be empty before KRaft."""
        return next((meta.cluster_id for meta in self.folders.values() if meta.cluster_id), "")

    @property
    def node_id(self) -> int:
        """The broker's id; -1 if unknown."""
        return next((meta.node_id for meta in self.folders.values()), -1)

    @property
    def kraft(self) -> bool:
        """Whether there is a metadata log: ids, partition counts and configs are from it."""
        return self._cluster is not None

    @property
    def running(self) -> bool:
        """Whether Kafka has the folders open. Raises KafkaLogError."""
        return any(is_locked(folder / LOCK) for folder in self.folders)

    def refresh(self) -> bool:
        """Look for changed topics and log starts. Returns whether topics or problems changed.

        Raises:
            KafkaLogError: the topics stay as they were.
        """
        before = self.topics, self.problems
        news = self._cluster is not None and self._cluster.refresh()
        # A repair of a file need not change the log folder.
        retry = bool(self.problems) and clock.monotonic() - self._scanned_at > _RETRY_SECONDS
        if news or retry or self._scanned != {path: changed(path) for path in self.folders}:
            self._scan()
        else:
            self._read_starts()
        return (self.topics, self.problems) != before

    def open(self, topic: str, partition: int) -> PartitionLog:
        """Open a partition. Reads its end, and all bytes that Kafka may not have synced.

        Raises:
            KeyError: there is no such partition here.
            KafkaLogError
        """
        folder = self.topics[topic].partitions[partition]
        root = folder.path.parent
        try:
            points = read_offset_checkpoint(root / RECOVERY_POINTS)
        except KafkaLogError:
            points = {}  # batches are verified when they are read
        return PartitionLog(
            folder.path,
            checkpointed_start=self.log_start(topic, partition),
            recovery_point=points.get((topic, partition)),
            clean=(root / CLEAN_SHUTDOWN).exists(),
        )

    def log_start(self, topic: str, partition: int) -> int:
        """The log start in the checkpoint, for `PartitionLog.refresh`; 0 without one."""
        root = self.topics[topic].partitions[partition].path.parent
        return self._starts.get(root, {}).get((topic, partition), 0)

    def groups(self) -> dict[str, KafkaGroup]:
        """The consumer groups and their committed offsets, by name. Raises KafkaLogError."""
        decided = self.decided() if not self.running else {}
        return read_groups(self._logs(GROUPS_TOPIC), decided)

    def decided(self) -> dict[int, set[tuple[str, int]]]:
        """The partitions of transactions that Kafka had decided to commit, by producer id.

        Some of the partitions may lack the marker, which a stopped Kafka would write at its next
        start. Raises KafkaLogError.
        """
        return read_decided(self._logs(TRANSACTIONS_TOPIC))

    def _logs(self, name: str) -> Iterator[PartitionLog]:
        topic = self.topics.get(name)
        return (self.open(name, number) for number in (sorted(topic.partitions) if topic else ()))

    # --- what is there ----------------------------------------------------------------------

    def _scan(self) -> None:
        self._scanned_at = clock.monotonic()
        scanned = {root: changed(root) for root in self.folders}
        found: dict[str, dict[int, list[PartitionFolder]]] = {}
        for root in self.folders:
            for folder in _partition_folders(root):
                if folder.topic == METADATA_TOPIC:
                    self._cluster = self._cluster or ClusterMetadata(folder.path)
                else:
                    same = found.setdefault(folder.topic, {}).setdefault(folder.partition, [])
                    same.append(folder)
        problems: dict[str, str] = {}
        cluster = self._cluster
        images = {image.name: image for image in cluster.image.topics.values()} if cluster else {}
        topics = (
            self._topic(name, found[name], images.get(name), problems) for name in sorted(found)
        )
        self.topics = {topic.name: topic for topic in topics if topic is not None}
        self.problems = problems
        self._read_starts()
        self._scanned = scanned

    def _topic(
        self,
        name: str,
        found: dict[int, list[PartitionFolder]],
        image: TopicImage | None,
        problems: dict[str, str],
    ) -> KafkaTopic | None:
        if self._cluster is not None and image is None:
            return None  # deleted; Kafka removes the folders at its next start
        before = self.topics.get(name)
        folders: dict[int, PartitionFolder] = {}
        ids: dict[int, bytes | None] = {}
        for number, same in sorted(found.items()):
            try:
                folder = _one(same, before)
                ids[number] = self._ids.of(folder.path / PARTITION_METADATA)
                folders[number] = folder
            except KafkaLogError as e:
                problems[f"{name}-{number}"] = str(e)
        if image is not None and self._cluster is not None:
            current = {n: f for n, f in folders.items() if ids[n] in (None, image.topic_id)}
            configs = dict(self._cluster.image.topic_configs(name))
            return KafkaTopic(name, image.topic_id, len(image.partitions), current, configs)
        known = [each for each in ids.values() if each is not None]
        topic_id = known[0] if known else NO_ID
        if not folders:
            if before is None:
                return None
            topic_id = before.topic_id
        for number in [n for n in folders if ids[n] not in (None, topic_id)]:
            problems[f"{name}-{number}"] = f"{folders.pop(number).path}: has another topic id"
        return KafkaTopic(name, topic_id, max(found) + 1, folders, {})

    def _read_starts(self) -> None:
        for root in self.folders:
            path = root / LOG_STARTS
            try:
                self._starts[root] = read_offset_checkpoint(path)
                reason = ""
            except KafkaLogError as e:
                reason = str(e)  # the starts read before remain valid
            if self.problems.get(str(path), "") != reason:
                others = {key: each for key, each in self.problems.items() if key != str(path)}
                self.problems = others | ({str(path): reason} if reason else {})


def _meta_properties(folder: Path) -> MetaProperties:
    path = folder / META_PROPERTIES
    if not path.is_file():
        raise KafkaLogError(folder, f"not a log folder of Kafka: it has no {META_PROPERTIES}")
    return read_meta_properties(path)


def _check_one_broker(folders: dict[Path, MetaProperties]) -> None:
    owners = {(meta.cluster_id, meta.node_id): path for path, meta in folders.items()}
    if len(owners) > 1:
        first, second = list(owners.values())[:2]
        raise KafkaLogError(second, f"belongs to another broker than {first}")


def _partition_folders(root: Path) -> list[PartitionFolder]:
    names = names_in(root)
    if META_PROPERTIES not in names:  # for example, the disk is not mounted
        raise KafkaLogError(root, f"it no longer has a {META_PROPERTIES}")
    found = [partition_folder(root / name) for name in names]
    served = [each for each in found if each is not None and each.use is Use.SERVED]
    return [each for each in served if each.path.is_dir()]


def _one(same: list[PartitionFolder], before: KafkaTopic | None) -> PartitionFolder:
    """The partition's folder. While Kafka moves a partition, two folders briefly have its name."""
    if len(same) == 1:
        return same[0]
    known = None if before is None else before.partitions.get(same[0].partition)
    if known is not None and known in same:
        return known
    raise KafkaLogError(same[1].path, f"the same partition is in {same[0].path}")
