"""Adopts the topics of Kafka's log folders, and follows Kafka's changes.

Kafka's topics keep their names, ids, partitions and configs. They are in the registry while the
broker runs; the log has only the offsets that groups commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.folder_names import INTERNAL_TOPICS
from quafka_broker.kafka_logs.log_folders import NO_ID, KafkaFolders, KafkaTopic
from quafka_broker.leases import Leases
from quafka_broker.sources.kafka.errors import AdoptionError
from quafka_broker.sources.kafka.followed import Followed
from quafka_broker.sources.kafka.follower import KafkaFollower
from quafka_broker.sources.kafka.partition import KafkaPartition
from quafka_broker.sources.source import Waiters
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics.adopted import adopted_generation, uuid_without_id
from quafka_broker.topics.configs import ConfigError
from quafka_broker.topics.identity import ulid
from quafka_broker.topics.org_topics import OrgFullError, OrgRoom
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.slugs import slug_of
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.leases import LeaseChange

log = logging.getLogger("quafka.broker.kafka")

KAFKA = "kafka"
"""The `source` of adopted topics."""
_TOPICS_SECONDS = 1.0
_NAMED = 5
_PER_SLICE = 200


class KafkaFigures(NamedTuple):
    """Counts of the topics and partitions served from Kafka's folders.

    Attributes:
        open: partitions that have been used.
        unreadable: partitions and checkpoints that cannot be read now.
        problem: why one of them, or the topics, cannot be read; empty if all can be.
    """

    topics: int
    open: int
    unreadable: int
    problem: str


class KafkaSource:
    """All topics of one Kafka broker's folders, as topics of one org."""

    leader_epoch = -1

    def __init__(
        self,
        folders: KafkaFolders,
        org: int,
        registry: Registry,
        waiters: Waiters,
        leases: Leases,
        drop_group_offsets: Callable[[Collection[Topic]], None],
    ) -> None:
        self.folders = folders
        self.org = org
        self._registry = registry
        self._waiters = waiters
        self._leases = leases
        self._drop_group_offsets = drop_group_offsets
        self._follower = KafkaFollower(folders, waiters, self._withdrawn)
        self._partitions: dict[tuple[bytes, int], Followed] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._skipped: set[str] = set()
        self._logged: set[tuple[str, str]] = set()
        self._problem = ""  # why the last read of the topics failed

    # --- life -------------------------------------------------------------------------------

    def adopt(self, most_partitions: int) -> None:
        """Add the topics to the registry, after its replay.

        Raises:
            AdoptionError: a topic is also in the log, or the org would have too many partitions.
        """
        topics = self._topics()
        self._log_problems()
        taken = [t.name for t in topics if self._registry.by_name(self.org, t.name) is not None]
        if taken:
            more = f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else ""
            raise AdoptionError(
                f"this broker's log has topics of the same name: {', '.join(taken[:_NAMED])}{more}"
            )
        try:
            partitions = sum(topic.partitions for topic in topics)
            room = OrgRoom(most_partitions, partitions)
            self._registry.org(self.org).check_room(partitions, room)
            for topic in topics:
                self._registry.adopt(topic)
        except (OrgFullError, ValueError) as e:
            raise AdoptionError(str(e)) from e
        counted = f"{len(topics)} topics with {partitions} partitions"
        log.info("serving %s of %s", counted, ", ".join(map(str, self.folders.folders)))

    async def run(self) -> None:
        """Follow the folders until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.run())
            group.create_task(self._follow_topics())

    async def close(self) -> None:
        """End the reads. `run` has been cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._follower.close)

    def figures(self) -> KafkaFigures:
        """The served topics and partitions, and how many cannot be read."""
        used = [each for each in self._partitions.values() if each.view is not None or each.failure]
        failed = [each for each in used if each.failure]
        problem = self._problem
        if failed and not problem:
            problem = f"partition {failed[0].topic}-{failed[0].number}: {failed[0].failure}"
        left_out = self.folders.problems
        if left_out and not problem:
            problem = "{} is left out: {}".format(*next(iter(left_out.items())))
        unreadable = {f"{each.topic}-{each.number}" for each in failed} | left_out.keys()
        return KafkaFigures(len(self._adopted()), len(used), len(unreadable), problem)

    # --- partitions -------------------------------------------------------------------------

    def unchangeable(self, topic: Topic) -> str:
        """The reason: the topic belongs to Kafka."""
        return f"topic {topic.name!r} is read only: it is served from Kafka's log folder"

    def partition(self, topic: Topic, number: int) -> KafkaPartition:
        """One partition; its folder is opened on first use."""
        key = topic.uuid, number
        each = self._partitions.get(key)
        if each is None:
            folder = self._folder(topic.name, number)
            each = Followed(topic.partition_id(number), topic.name, number, folder)
            self._partitions[key] = each
        return KafkaPartition(self._follower, each)

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """The last known log start and high watermark."""
        found = self.partition(topic, number)
        return max(0, found.log_start), max(0, found.high_watermark)

    def _folder(self, topic: str, number: int) -> Path | None:
        known = self.folders.topics.get(topic)
        folder = None if known is None else known.partitions.get(number)
        return None if folder is None else folder.path

    # --- topics -----------------------------------------------------------------------------

    def _topics(self) -> list[Topic]:
        found = [each for name, each in self.folders.topics.items() if name not in INTERNAL_TOPICS]
        return [_topic(self.org, self.folders.cluster_id, each) for each in found]

    async def _follow_topics(self) -> None:
        while True:
            await asyncio.sleep(_TOPICS_SECONDS)
            try:
                changed = await self._follower.refresh_topics()
            except KafkaLogError as e:
                if not self._problem:
                    log.warning("Kafka's topics cannot be read: %s", e)
                self._problem = str(e)
                continue
            self._problem = ""
            if changed:
                self._log_problems()
                await self._take_over(self._topics())
                await self._follow_moves()

    async def _take_over(self, topics: Sequence[Topic]) -> None:
        """Update the registry to Kafka's topics."""
        present = {topic.name: topic for topic in topics}
        for before in self._adopted():
            if before.name not in present or present[before.name].uuid != before.uuid:
                async with self._changing(before):
                    self._remove(before)
        for topic in topics:
            known = self._registry.by_name(self.org, topic.name)
            if known is None or known.source == KAFKA:
                self._put(topic, known)
            elif topic.name not in self._skipped:
                self._skipped.add(topic.name)
                log.warning("Kafka's new topic %r is not served: the name is taken", topic.name)

    async def _follow_moves(self) -> None:
        """Update the folders of the partitions in use."""
        slices = Slices(_PER_SLICE)
        for each in list(self._partitions.values()):
            folder = self._folder(each.topic, each.number)
            if folder != each.folder:
                self._follower.moved(each, folder)
            await slices.done()

    def _log_problems(self) -> None:
        """Log each present problem once."""
        news = [each for each in self.folders.problems.items() if each not in self._logged]
        self._logged = set(self.folders.problems.items())
        for place, reason in news[:_NAMED]:
            log.warning("Kafka's %s is left out: %s", place, reason)
        if len(news) > _NAMED:
            log.warning("and %d more partitions of Kafka's", len(news) - _NAMED)

    def _adopted(self) -> list[Topic]:
        return [topic for topic in self._registry.topics(self.org) if topic.source == KAFKA]

    def _remove(self, topic: Topic) -> None:
        self._registry.release(topic.org, topic.name)
        self._drop_group_offsets([topic])
        gone = [key for key in self._partitions if key[0] == topic.uuid]
        self._waiters.wake([self._partitions.pop(key).id for key in gone])

    def _put(self, topic: Topic, known: Topic | None) -> None:
        if known is not None and (known.partitions, known.configs) == (
            topic.partitions, topic.configs,
        ):  # fmt: skip
            return
        try:
            self._registry.adopt(topic)
        except ValueError as e:
            log.warning("Kafka's topic %r is not served: %s", topic.name, e)

    # --- gateways ---------------------------------------------------------------------------

    @asynccontextmanager
    async def _changing(self, topic: Topic, partition: int = -1) -> AsyncGenerator[None]:
        change = LeaseChange(topic.name, topic.uuid, partition)
        async with self._leases.changing({topic.org: [change]}):
            yield

    def _withdrawn(self, each: Followed) -> None:
        """Withdraw lost records: gateways must no longer serve them from memory."""
        topic = self._registry.by_name(self.org, each.topic)
        if topic is not None:
            task = asyncio.create_task(self._announce(topic, each.number))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _announce(self, topic: Topic, partition: int) -> None:
        async with self._changing(topic, partition):
            pass


async def open_folders(paths: Sequence[Path]) -> KafkaFolders:
    """Read these log folders, or those of a `server.properties`.

    Raises:
        AdoptionError: they are not log folders of one Kafka broker, or are damaged.
    """
    try:
        return await asyncio.to_thread(KafkaFolders, paths)
    except KafkaLogError as e:
        raise AdoptionError(str(e)) from e


def _topic(org: int, cluster_id: str, each: KafkaTopic) -> Topic:
    uuid = each.topic_id
    if uuid == NO_ID:  # Kafka gave no ids before 2.8
        uuid = uuid_without_id(cluster_id, each.name)
    generation = adopted_generation(uuid)
    identity = f"top_{ulid(0, lambda size: uuid[:size])}"
    return Topic(
        org, each.name, uuid, identity, slug_of(each.name), generation, each.partition_count, 0,
        _known(each.configs), KAFKA,
    )  # fmt: skip


def _known(configs: dict[str, str]) -> dict[str, str]:
    """The configs that this version knows; later versions of Kafka have others."""
    found: dict[str, str] = {}
    for name, value in configs.items():
        try:
            found |= topic_configs.check({name: value})
        except ConfigError as e:
            log.info("a config of Kafka's is not shown: %s", e)
    return found
