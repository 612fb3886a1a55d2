"""`quafka import`: topics of Apache Kafka's log folders become topics of a stopped broker's log.

Topic ids, offsets, timestamps, configs and the state of idempotent producers are kept. A file in
the data folder marks an import under way, so that no broker serves half of a topic.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.imports.group_offsets import committed_here, put_back
from quafka_broker.imports.marker import ImportMarker
from quafka_broker.imports.partition_copy import PartitionCopy
from quafka_broker.kafka_logs.folder_names import INTERNAL_TOPICS
from quafka_broker.kafka_logs.log_folders import NO_ID, KafkaFolders, KafkaTopic
from quafka_broker.leases import Leases
from quafka_broker.state import BrokerState
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.adopted import uuid_without_id
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.data_folder import DataFolder
from quafka_broker.wal.disk import RealDisk, sync_folder
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""

_SEGMENT_BYTES = 1 << 30


@dataclass(slots=True)
class ImportedTopic:
    """The result of the import of a topic.

    Attributes:
        is_new: whether this import created it; otherwise an earlier one did.
        records, bytes: copied by this import.
        left_out: configs that are unsupported here, or have unsupported values, with the reasons.
        open: partitions that end in an open transaction of a running Kafka.
    """

    name: str
    partitions: int
    is_new: bool
    records: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list[str])
    open: list[int] = field(default_factory=list[int])


def chosen(folders: KafkaFolders, patterns: Sequence[str]) -> list[KafkaTopic]:
    """The topics that match one of the patterns (all, if there are none), except Kafka's own.

    Raises:
        ImportRefusedError: a pattern matches nothing, or a partition's folder is missing.
    """
    topics = [topic for name, topic in folders.topics.items() if name not in INTERNAL_TOPICS]
    for pattern in patterns:
        if not any(fnmatchcase(topic.name, pattern) for topic in topics):
            raise ImportRefusedError(f"no topic matches {pattern!r}")
    found = [
        topic
        for topic in topics
        if not patterns or any(fnmatchcase(topic.name, pattern) for pattern in patterns)
    ]
    for topic in found:
        missing = sorted(set(range(topic.partition_count)) - topic.partitions.keys())
        problem = folders.problems.get(f"{topic.name}-{missing[0]}") if missing else None
        if problem:
            raise ImportRefusedError(f"partition {topic.name}-{missing[0]} is left out: {problem}")
        if missing:
            raise ImportRefusedError(
                f"topic {topic.name} has no folder of partition {missing[0]}: it is at another "
                f"broker. Give the folders of a broker that has all partitions, or other topics"
            )
    return found


async def import_topics(
    folders: KafkaFolders,
    data: Path,
    *,
    patterns: Sequence[str] = (),
    org: int = 1,
    verify: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> list[ImportedTopic]:
    """Import topics into a data folder, which may have a log. Durable on return.

    A repeated import copies the missing records, including those that a running Kafka has since
    written.

    Args:
        verify: read everything again at the end, and compare it.

    Raises:
        ImportRefusedError: a topic cannot be imported.
        StartupError: a broker holds the folder, or it cannot be written.
        KafkaLogError: Kafka's folders cannot be read.
        DamagedLogError, BadRegistryError, StorageError, OSError: the log cannot be opened, read or
            written.
    """
    topics = chosen(folders, patterns)
    running = folders.running
    decided = {} if running else await asyncio.to_thread(folders.decided)
    async with _open(data) as (state, folder):
        importer = _Importer(state, folders, org, running, decided)
        marker = ImportMarker(folder.importing)
        # An interrupted import may have begun with more topics.
        names = {*marker.names(org)} - {topic.name for topic in topics}
        topics += [folders.topics[name] for name in sorted(names) if name in folders.topics]
        planned = [importer.plan(topic, marker) for topic in topics]
        new = [topic for topic, report in planned if report.is_new]
        marker.write((topic for topic, _ in planned), committed_here(state, new))
        copies = [(report, await importer.prepare(topic, report)) for topic, report in planned]
        _check_room(data, sum(copy.size for _, some in copies for copy in some))
        await _copy(copies, verify, progress)
        await put_back(state, marker.offsets, [topic for topic, _ in planned])
    folder.importing.unlink(missing_ok=True)
    sync_folder(data)
    return [report for report, _ in copies]


async def _copy(
    copies: list[tuple[ImportedTopic, list[PartitionCopy]]], verify: bool, progress: Progress
) -> None:
    total = sum(copy.size for _, some in copies for copy in some) * (2 if verify else 1)
    done = 0

    def advanced(count: int) -> None:
        nonlocal done
        done += count
        progress(done, max(total, done))

    for report, some in copies:
        for copy in some:
            counts = await copy.copy(advanced)
            report.records += counts.records
            report.bytes += counts.bytes
    for _, some in copies if verify else ():
        for copy in some:
            await copy.compare(advanced)


class _Importer:
    """Creates topics, and opens the partitions to copy."""

    def __init__(
        self,
        state: BrokerState,
        folders: KafkaFolders,
        org: int,
        running: bool,
        decided: dict[int, set[tuple[str, int]]],
    ) -> None:
        self._state = state
        self._folders = folders
        self._org = org
        self._running = running
        self._decided = decided

    def plan(self, source: KafkaTopic, marker: ImportMarker) -> tuple[Topic, ImportedTopic]:
        """The topic here, new or imported before, for one of Kafka. Raises ImportRefusedError."""
        known = self._state.registry.by_name(self._org, source.name)
        report = ImportedTopic(source.name, source.partition_count, known is None)
        if known is None:
            return self._new_topic(source, report), report
        # Without an id, the last records show whether it is the same topic.
        same = source.topic_id in (known.uuid, NO_ID) or marker.has(known)
        if known.source or not same:
            raise ImportRefusedError(f"a different topic {known.name} exists here")
        if known.partitions != source.partition_count:
            raise ImportRefusedError(
                f"topic {known.name} has {known.partitions} partitions here, and "
                f"{source.partition_count} in Kafka"
            )
        return known, report

    async def prepare(self, topic: Topic, report: ImportedTopic) -> list[PartitionCopy]:
        """Create a planned topic, and prepare its partitions. Raises as `import_topics`."""
        if report.is_new:
            await self._state.topics.put_back(topic)
        copies: list[PartitionCopy] = []
        for number in range(topic.partitions):
            log = await asyncio.to_thread(self._folders.open, topic.name, number)
            end = log.last_stable_offset if self._running else log.log_end
            if end < log.log_end:
                report.open.append(number)
            place = topic.name, number
            committed = [producer for producer, where in self._decided.items() if place in where]
            copy = PartitionCopy(self._state, topic, number, log, end, committed)
            await copy.begin()
            copies.append(copy)
        return copies

    def _new_topic(self, source: KafkaTopic, report: ImportedTopic) -> Topic:
        configs: dict[str, str] = {}
        for name, value in source.configs.items():
            try:
                configs |= topic_configs.check({name: value})
            except topic_configs.ConfigError as e:
                report.left_out.append(str(e))
        uuid = source.topic_id
        if uuid == NO_ID:
            uuid = uuid_without_id(self._folders.cluster_id, source.name)
        identity = new_topic_identity()._replace(uuid=uuid)
        count = source.partition_count
        return self._state.registry.plan_topic(self._org, source.name, count, identity, configs)


@asynccontextmanager
async def _open(data: Path) -> AsyncGenerator[tuple[BrokerState, DataFolder]]:
    """Hold a data folder and open its log; closing leaves a checkpoint."""
    folder = DataFolder(data)
    folder.hold(to_import=True)
    try:
        log = Log(RealDisk(folder.wal), FsyncPolicy(), _SEGMENT_BYTES)
        # No gateway reads this log, so no lease can be outstanding.
        state = BrokerState(BrokerConfig(data=data), log, leases=Leases(0))
        await asyncio.to_thread(log.open, state.producers)
        log.start()
        try:
            await state.replay_registry()
            await state.replay_groups()
            yield state, folder
        finally:
            await log.close()
    finally:
        folder.release()


def _check_room(data: Path, size: int) -> None:
    free = shutil.disk_usage(data).free
    if free < size:
        raise ImportRefusedError(f"{data} has {free} bytes free; the topics take {size}")
