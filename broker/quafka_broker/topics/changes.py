"""Creates, changes and deletes topics, and deletes records. Each change is durable on return."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from quafka_broker.leases import Leases
from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.topics import events
from quafka_broker.topics.deleted_names import DeletedNames
from quafka_broker.topics.effective_configs import EffectiveConfigs
from quafka_broker.topics.events import Event
from quafka_broker.topics.identity import new_topic_identity
from quafka_broker.topics.journal import RegistryJournal
from quafka_broker.topics.lost_events import restored
from quafka_broker.topics.org_topics import OrgRoom
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic, Unnamed
from quafka_broker.wal.log import Log
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.leases import LeaseChange

log = logging.getLogger("quafka.broker.registry")

_TOPICS_PER_DELETION = 200
"""Topics that are deleted by one append, which costs one sync of the disk."""
_PARTITIONS_PER_SLICE = 1_000


@dataclass(slots=True, eq=False)
class _Deletion:
    """Topics that are deleted together. Its task returns the deleted ones, by id."""

    topics: dict[bytes, Topic] = field(default_factory=dict[bytes, Topic])
    task: asyncio.Task[set[bytes]] | None = None


class TopicChanges:
    """Makes changes of topics in the registry, the log and all dependent state."""

    def __init__(
        self,
        wal: Log,
        journal: RegistryJournal,
        registry: Registry,
        configs: EffectiveConfigs,
        leases: Leases,
        producers: Producers,
        parked_fetches: ParkedFetches,
        drop_group_offsets: Callable[[Collection[Topic]], None],
        room: Callable[[int], OrgRoom],
    ) -> None:
        """`drop_group_offsets` is called with deleted topics; `room` gives an org's limits."""
        self._wal = wal
        self._journal = journal
        self._registry = registry
        self._configs = configs
        self._leases = leases
        self._producers = producers
        self._parked_fetches = parked_fetches
        self._drop_group_offsets = drop_group_offsets
        self._room = room
        self._next_deletion: _Deletion | None = None
        self._deleting = asyncio.Lock()
        self._deleted = DeletedNames()

    # --- create and change ------------------------------------------------------------------

    async def create(
        self, org: int, name: str, partitions: int, configs: dict[str, str] | None = None
    ) -> tuple[Topic, bool]:
        """Find or create a topic by name; returns it and whether it was created. Durable on return.

        Raises:
            CollidingNameError: another topic has the name, except for `.` and `_`.
            OrgFullError: the org would have too many partitions.
            StorageError: nothing was created.
        """

        async def create() -> tuple[Topic, bool]:
            registry = self._registry
            found = registry.by_name(org, name) or await self._name_again(org, name)
            if found is not None:
                return found, False
            registry.org(org).check_name(name)
            registry.org(org).check_room(partitions, self._room(org), topics=1)
            topic = registry.plan_topic(org, name, partitions, new_topic_identity(), configs)
            await self._journal.record(events.topic_created(topic))
            self._deleted.discard(org, name)
            return topic, True

        return await self._journal.in_turn(create)

    async def _name_again(self, org: int, name: str) -> Topic | None:
        """Serve a topic that had lost its name, if this is the name."""
        unnamed = self._registry.unnamed_of(org, name)
        if unnamed is None:
            return None
        partitions = self._registry.unnamed[unnamed]
        topic = restored(self._registry, unnamed, name, partitions, new_topic_identity())
        await self._journal.record(events.topic_created(topic))
        log.warning("topic %r of org %d has its name again", name, org)
        return topic

    async def put_back(self, topic: Topic) -> None:
        """Restore a topic, replacing any topic of its name. Durable on return.

        Raises:
            StorageError: nothing was changed.
        """

        async def put() -> None:
            await self._journal.record(events.topic_created(topic))

        await self._journal.in_turn(put)

    async def change(self, topic: Topic, change: Callable[[Topic], Topic]) -> bool:
        """Change a topic's partitions or configs; False if it no longer exists. Durable on return.

        `change` gets the present topic when the change's turn comes, and returns the new one. Its
        exceptions propagate.

        Raises:
            StorageError: nothing was changed.
        """

        async def make() -> bool:
            before = self._registry.by_id(topic.org, topic.uuid)
            if before is None:
                return False
            after = change(before)
            if after == before:
                return True
            await self._journal.record(events.topic_changed(after))
            self._configs.topic_changed(before, after)
            return True

        return await self._journal.in_turn(make)

    def tells_of_deletion(self, org: int, name: str) -> bool:
        """Whether to report that a topic is gone, instead of creating it because a client asks.

        True once after its deletion: clients that had the topic learn that it was deleted.
        """
        return self._deleted.discard(org, name)

    # --- delete topics ----------------------------------------------------------------------

    async def delete(self, topic: Topic) -> bool:
        """Delete a topic; False if another call has done so. Durable on return.

        Deletions that arrive while one is under way share the next append.

        Raises:
            StorageError: the topic still exists.
        """
        deletion = self._next_deletion
        if deletion is None or len(deletion.topics) >= _TOPICS_PER_DELETION:
            deletion = self._next_deletion = self._begin_deletion()
        is_first = topic.uuid not in deletion.topics
        deletion.topics.setdefault(topic.uuid, topic)
        assert deletion.task is not None
        return topic.uuid in await asyncio.shield(deletion.task) and is_first

    def _begin_deletion(self) -> _Deletion:
        deletion = _Deletion()
        deletion.task = self._journal.start(
            lambda: self._delete(deletion.topics.values()), self._announce(deletion)
        )
        return deletion

    @asynccontextmanager
    async def _announce(self, deletion: _Deletion) -> AsyncGenerator[None]:
        """Wait for earlier deletions, accept no more topics, and announce these to gateways."""
        async with self._deleting:
            if self._next_deletion is deletion:
                self._next_deletion = None
            announced: dict[int, list[LeaseChange]] = {}
            for topic in deletion.topics.values():
                announced.setdefault(topic.org, []).append(LeaseChange(topic.name, topic.uuid))
            async with self._leases.changing(announced):
                yield

    async def _delete(self, topics: Collection[Topic]) -> set[bytes]:
        """Delete these topics; returns the ids of those that still existed."""
        # They may have been changed or deleted while they waited for their turn.
        found = [self._registry.by_id(topic.org, topic.uuid) for topic in topics]
        present = [topic for topic in found if topic is not None]
        if not present:
            return set()
        await self._journal.record(*map(events.topic_deleted, present))
        self._drop_group_offsets(present)
        slices = Slices(_PARTITIONS_PER_SLICE)
        for topic in present:
            gone = [topic.partition_id(number) for number in range(topic.partitions)]
            for partition in gone:
                self._wal.partitions.drop(partition)
            self._producers.drop_partitions(gone)
            self._configs.topic_deleted(topic)
            self._deleted.add(topic.org, topic.name)
            self._journal.deletions += 1
            self._parked_fetches.wake(gone)
            await slices.done(len(gone))
        return {topic.uuid for topic in present}

    async def drop_unnamed(self, unnamed: Unnamed) -> None:
        """Delete the records of a topic whose name is lost. Durable on return.

        Raises:
            StorageError: they still exist.
        """

        async def drop() -> None:
            partitions = self._registry.unnamed[unnamed]
            await self._journal.record(events.unnamed_dropped(unnamed))
            for partition in range(partitions):
                self._wal.partitions.drop(unnamed.partition_id(partition))
            self._journal.deletions += 1

        await self._journal.in_turn(drop)

    # --- delete records ---------------------------------------------------------------------

    async def delete_records(
        self, starts: Mapping[Topic, Mapping[int, int]], *, if_unchanged: bool = False
    ) -> None:
        """Raise log starts, by topic and partition. Durable on return.

        A topic that no longer exists, or a start that is not above the log start, changes nothing;
        with `if_unchanged`, nor does a topic that has changed.

        Raises:
            StorageError: nothing was deleted.
        """

        async def delete() -> None:
            moves: dict[PartitionId, int] = {}
            moved: list[Event] = []
            for topic, wanted in starts.items():
                present = self._registry.by_id(topic.org, topic.uuid)
                if present is None or (if_unchanged and present != topic):
                    continue
                ahead = self._ahead(topic, wanted)
                if ahead:
                    moved += events.log_starts_moved(topic, ahead)
                    moves.update((topic.partition_id(p), offset) for p, offset in ahead.items())
            if not moved:
                return
            await self._journal.record(*moved)
            for partition, offset in moves.items():
                self._wal.partitions.advance_log_start(partition, offset)
            self._journal.deletions += 1
            self._parked_fetches.wake(moves)

        announced: dict[int, list[LeaseChange]] = {}
        for topic, wanted in starts.items():
            changes = [LeaseChange(topic.name, topic.uuid, number) for number in wanted]
            announced.setdefault(topic.org, []).extend(changes)
        await self._journal.in_turn(delete, self._leases.changing(announced) if announced else None)

    def _ahead(self, topic: Topic, starts: Mapping[int, int]) -> dict[int, int]:
        """The offsets that are above the log start of their partitions."""
        return {
            partition: offset
            for partition, offset in starts.items()
            if offset > self._wal.partitions.get(topic.partition_id(partition)).log_start
        }
