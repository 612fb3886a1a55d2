"""What all op handlers of one broker share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from time import time_ns
from typing import Any, TypeVar

from quafka_broker.admission.queue import Admissions
from quafka_broker.broker_configs import DynamicConfigs
from quafka_broker.config import BrokerConfig
from quafka_broker.groups.coordinator import Coordinator
from quafka_broker.groups.limits import Limits
from quafka_broker.journals import event_batches
from quafka_broker.leases import Leases
from quafka_broker.partitions.errors import OffsetGoneError, StorageError
from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.snapshots.scheduler_status import SchedulerStatus
from quafka_broker.topics import configs as topic_configs
from quafka_broker.topics import registry as topics
from quafka_broker.topics.configs import Configs, TopicPolicy
from quafka_broker.topics.registry import Event, Registry, Topic, Unnamed
from quafka_broker.topics.replay import (
    SECTION,
    BadRegistryError,
    Pin,
    Replay,
    copy_of,
    live_topics,
    producer_ids_past,
    replay,
    restored,
    unexplained,
)
from quafka_broker.wal.epoch_file import SKIPPED
from quafka_broker.wal.log import Log
from quafka_mesh_ops.ops.leases import Change
from quafka_proto.records import BatchHeader
from quafka_telemetry.slices import Slices
from quafka_telemetry.tracing import ProducedBy

log = logging.getLogger("quafka.broker.registry")

_EVENTS_PER_SLICE = 100  # of work on the loop, and of the log

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class BrokerState:
    """The log and everything that is made from it."""

    config: BrokerConfig
    log: Log
    registry: Registry = field(default_factory=Registry)
    producers: Producers = field(init=False)
    parked_fetches: ParkedFetches = field(default_factory=ParkedFetches)
    deletions: int = 0
    """Counts what has died; the log's rewrite task reads it."""
    leases: Leases = field(default_factory=Leases)
    admissions: Admissions = field(default_factory=Admissions)
    produced_by: ProducedBy = field(default_factory=ProducedBy)
    retention_changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a topic's retention has been changed."""
    groups: Coordinator = field(init=False)
    snapshots: SchedulerStatus = field(init=False)
    events_kept: int = 1_000
    """The registry is not restated before it has had so many events."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_producer_id: int = 0
    _producer_ids: range = range(0)
    _superseded: int = 0  # events since the last snapshot of the registry
    _applied: int = 0  # events of the registry below this offset are in it
    _replay: Replay = field(default_factory=Replay)
    _static_config: BrokerConfig = field(init=False)
    """The settings without what clients have changed."""
    _policies: dict[bytes, tuple[Configs, TopicPolicy]] = field(
        default_factory=dict[bytes, tuple[Configs, TopicPolicy]]
    )

    def __post_init__(self) -> None:
        config = self._static_config = self.config
        self.producers = Producers(
            config.max_producers_per_org, expiration_ms=config.producer_id_expiration_ms
        )
        self.snapshots = SchedulerStatus(config.snapshot_interval_ms)
        limits = Limits(
            config.group_min_session_timeout_ms / 1000,
            config.group_max_session_timeout_ms / 1000,
            config.group_initial_rebalance_delay_ms / 1000,
            config.group_max_size,
            config.group_max_bytes,
            config.group_max_groups,
            config.group_max_members,
            config.group_total_max_bytes,
            config.offsets_max_bytes,
        )
        self.groups = Coordinator(self.log, limits, self.registry, self._begin_groups_at)

    async def _begin_groups_at(self, offset: int) -> None:
        """What the journal of the groups holds below an offset is dead. Durable on return.

        Raises:
            StorageError: it still counts.
        """

        async def move() -> None:
            start: Event = {"event": "journal_start", "name": topics.GROUPS_NAME, "start": offset}
            await self._record(start)
            self.log.advance_log_start(topics.GROUPS, offset)
            self.deletions += 1

        await self._change(move)

    async def replay_registry(self) -> None:
        """Rebuild the registry from the log; name the cluster if it is new.

        Raises:
            StorageError: the log cannot be read, or written.
            BadRegistryError: an event cannot be understood.
            DamagedLogError: the log lacks records that never were in it.
        """
        found = self._replay = await replay(self.log, self.registry)
        self._superseded, self._applied = found.superseded, found.applied
        self._apply_broker_configs()
        if not found.is_new:
            self.leases.wait_for_predecessor()
        repairs = self._explain(found)
        live = dict(live_topics(self.log, self.registry, found))
        self.log.settle(live)
        self.producers.keep_partitions(live.keys())
        await self._settle_registry(found, repairs)
        self._begin_producer_ids()
        self.log.keep_section(SECTION, self._copy)

    def _explain(self, found: Replay) -> list[Event]:
        """Give a place to what the registry has lost; returns the events that make it durable."""
        missing = unexplained(self.log, self.registry, found)
        events = [topics.changed(topic) for topic in missing.grown]
        events += [topics.created(topic) for topic in missing.restored]
        for event in events:
            log.error(
                "topic %r: an event of the registry is lost; it has %d partitions by its records",
                event["name"], event["partitions"],
            )  # fmt: skip
        for unnamed, partitions in missing.unnamed.items():
            log.error(
                "a topic of org %d with %d partitions has lost its name; its records are kept "
                "(hash %s): it is served again as soon as a client asks for it by its name, or "
                "`quafka wal repair --name` gives it",
                unnamed.org, partitions, unnamed.hash.hex(),
            )  # fmt: skip
            if found.pin is None:  # else the lost events may come back
                events.append(topics.kept_unnamed(unnamed, partitions))
            self.registry.unnamed[unnamed] = partitions
        for event in events:
            self.registry.apply(event)
        return events

    async def _settle_registry(self, found: Replay, repairs: list[Event]) -> None:
        """Record what the replay has mended, and leave damage that cost nothing behind."""
        if repairs:
            try:
                self._applied = await self._append(repairs) + len(repairs)
            except StorageError as e:
                log.warning("the topic registry cannot be mended now: %s", e)
        if not self.registry.cluster_id:
            await self._record(topics.new_cluster())
        self.registry.producer_ids_up_to = producer_ids_past(
            self.registry, found, topics.producer_id_space(self.registry.cluster_id)
        )
        if found.pin is None and self.log.is_damaged(topics.REGISTRY):
            await self._restate()

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """The registry for a checkpoint; it does not change meanwhile."""
        async with self._changing:
            pin = self._replay.pin or Pin(self._applied, self.log.next_id)
            for block in copy_of(self.registry.restate(), pin, _EVENTS_PER_SLICE):
                yield block

    def _begin_producer_ids(self) -> None:
        ours = self._producer_ids = topics.producer_id_space(self.registry.cluster_id)
        # Ids of the last block may have been handed out: begin behind it.
        self._next_producer_id = max(ours.start, self.registry.producer_ids_up_to)
        self.producers.begin_ids(range(self._next_producer_id, ours.stop))
        self.producers.restored_below = self.registry.restored_ids_below
        self.producers.may_lack = self._may_lack

    def _may_lack(self, id_: PartitionId, offset: int) -> bool:
        """Whether what followed a record may be lost: the log is a copy, and it is from before."""
        try:
            global_id = self.log.partition(id_).global_id_at(offset)
        except (OffsetGoneError, IndexError):
            return False
        return global_id < self.log.epochs.skipped_before(SKIPPED)

    async def start_groups(self) -> None:
        """Rebuild the consumer groups from the log, behind the registry, and let them run.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be understood.
        """
        with _groups_understood():
            await self.groups.start()

    async def replay_groups(self) -> None:
        """Rebuild the consumer groups from the log, but do not let them run.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be understood.
        """
        with _groups_understood():
            await self.groups.journal.replay()

    async def _record(self, *events: Event) -> None:
        """Make changes to the registry durable, then real. Must not be cancelled in between.

        Raises:
            StorageError: the log did not take them; nothing has changed.
        """
        first = await self._append(events)
        for event in events:
            self.registry.apply(event)
        self._applied = first + len(events)
        self._superseded += len(events)
        self.log.checkpoint_soon()
        if self._superseded > max(self.events_kept, self.registry.size):
            await self._restate()

    async def _restate(self) -> None:
        """Keep the registry's part of the log short: what came before a snapshot is dead.

        But not while some of it cannot be read: it may be restored from a copy of the disk.
        """
        if self._replay.pin is not None:
            return
        events: list[Event] = []
        slices = Slices(_EVENTS_PER_SLICE)
        for event in self.registry.restate():
            events.append(event)
            await slices.done()
        parts = topics.snapshot_parts(events)
        try:
            first = await self._append(parts, per_batch=1)
        except StorageError:
            return  # the events are still there; the next change tries again
        self._applied = first + len(parts)
        self.log.advance_log_start(topics.REGISTRY, first)
        self.deletions += 1
        self._superseded = 0

    async def _append(self, events: Sequence[Event], per_batch: int = _EVENTS_PER_SLICE) -> int:
        """Events to the log, all or none of them; returns the first one's offset."""
        values = map(topics.encode_event, events)
        batches: list[tuple[BatchHeader, memoryview]] = []
        for some in event_batches.batches(values, time_ns() // 1_000_000, per_batch):
            batches += some
            await asyncio.sleep(0)
        # What makes room on a full disk is an event.
        registry = self.log.partition(topics.REGISTRY)
        return (await self.log.append(registry, batches, urgent=True))[0]

    async def create_topic(
        self, org: int, name: str, partitions: int, configs: dict[str, str] | None = None
    ) -> tuple[Topic, bool]:
        """The topic of that name, and whether this call created it. Durable on return.

        Raises:
            OrgFullError: the org's partitions would be too many.
            StorageError: nothing was created.
        """

        async def create() -> tuple[Topic, bool]:
            found = self.registry.by_name(org, name) or await self._name_again(org, name)
            if found is not None:
                return found, False
            limit = self.config.max_partitions_per_org
            self.registry.org(org).check_room(partitions, limit)
            topic = self.registry.plan_topic(org, name, partitions, configs)
            await self._record(topics.created(topic))
            return topic, True

        return await self._change(create)

    def is_unnamed(self, org: int, name: str) -> bool:
        """Whether there are records of a topic of this name, which the registry has lost."""
        return self.registry.unnamed_of(org, name) is not None

    async def _name_again(self, org: int, name: str) -> Topic | None:
        """A topic that had lost its name, if this is it. Its records are served from now on."""
        unnamed = self.registry.unnamed_of(org, name)
        if unnamed is None:
            return None
        partitions = self.registry.unnamed[unnamed]
        topic = restored(self.registry, unnamed, name, partitions)
        await self._record(topics.created(topic))
        log.warning("topic %r of org %d has its name again", name, org)
        return topic

    async def drop_unnamed(self, unnamed: Unnamed) -> None:
        """Give up the records of a topic whose name is lost. Durable on return.

        Raises:
            StorageError: they are still there.
        """

        async def drop() -> None:
            partitions = self.registry.unnamed[unnamed]
            await self._record(topics.dropped_unnamed(unnamed))
            for partition in range(partitions):
                self.log.drop_partition(unnamed.partition_id(partition))
            self.deletions += 1

        await self._change(drop)

    async def change_topic(self, topic: Topic, change: Callable[[Topic], Topic]) -> bool:
        """Change a topic's partitions or configs; False where it is gone. Durable on return.

        `change` makes the topic as it is to be of what it is when its turn has come. What it
        raises is raised here.

        Raises:
            StorageError: nothing was changed.
        """

        async def make() -> bool:
            before = self.registry.by_id(topic.org, topic.uuid)
            if before is None:
                return False
            after = change(before)
            if after == before:
                return True
            await self._record(topics.changed(after))
            was, now = self.policy(before), self.policy(after)
            if (was.retention_ms, was.retention_bytes) != (now.retention_ms, now.retention_bytes):
                self.retention_changed.set()
            return True

        return await self._change(make)

    async def delete_topic(self, topic: Topic) -> bool:
        """Delete a topic; False where another call has done so already. Durable on return.

        Raises:
            StorageError: it is still there.
        """

        async def delete() -> bool:
            present = self.registry.by_id(topic.org, topic.uuid)
            if present is None:
                return False
            await self._record(topics.deleted(present))
            # It may have grown while it waited for its turn.
            gone = [topic.partition_id(number) for number in range(present.partitions)]
            for partition in gone:
                self.log.drop_partition(partition)
            self.producers.drop_partitions(gone)
            self.groups.forget_topic(topic)
            self._policies.pop(topic.uuid, None)
            self.deletions += 1
            self.parked_fetches.wake(gone)
            return True

        changes = {topic.org: [Change(topic.name, topic.uuid)]}
        return await self._change(delete, self.leases.changing(changes))

    async def delete_records(
        self, starts: Mapping[Topic, Mapping[int, int]], *, if_unchanged: bool = False
    ) -> None:
        """Move log starts up, by topic and partition. Durable on return.

        What moves no log start, or is about a topic that has gone meanwhile, changes nothing; nor,
        with `if_unchanged`, what is about one that has been changed.

        Raises:
            StorageError: nothing was deleted.
        """

        async def delete() -> None:
            moves: dict[PartitionId, int] = {}
            events: list[Event] = []
            for topic, wanted in starts.items():
                present = self.registry.by_id(topic.org, topic.uuid)
                if present is None or (if_unchanged and present != topic):
                    continue
                ahead = self._ahead(topic, wanted)
                if ahead:
                    events += topics.log_start_events(topic, ahead)
                    moves.update((topic.partition_id(p), offset) for p, offset in ahead.items())
            if not events:
                return
            await self._record(*events)
            for partition, offset in moves.items():
                self.log.advance_log_start(partition, offset)
            self.deletions += 1
            self.parked_fetches.wake(moves)

        announced: dict[int, list[Change]] = {}
        for topic, wanted in starts.items():
            moved = [Change(topic.name, topic.uuid, number) for number in wanted]
            announced.setdefault(topic.org, []).extend(moved)
        await self._change(delete, self.leases.changing(announced) if announced else None)

    def _ahead(self, topic: Topic, starts: Mapping[int, int]) -> dict[int, int]:
        """Those of the offsets that are above the log start of their partitions."""
        return {
            partition: offset
            for partition, offset in starts.items()
            if offset > self.log.partition(topic.partition_id(partition)).log_start
        }

    def is_handed_out(self, producer_id: int) -> bool:
        """Whether this broker has, or may have, handed out this id."""
        return self._producer_ids.start <= producer_id < self.registry.producer_ids_up_to

    async def next_producer_id(self) -> int:
        """An id that is never handed out again, whatever crashes, by this broker or another.

        Raises:
            StorageError: no new block of ids could be recorded.
        """

        async def take() -> int:
            if self._next_producer_id >= self.registry.producer_ids_up_to:
                up_to = self._next_producer_id + topics.PRODUCER_ID_BLOCK
                await self._record({"event": "producer_ids", "up_to": up_to})
            self._next_producer_id += 1
            return self._next_producer_id - 1

        return await self._change(take)

    async def put_back(self, topic: Topic) -> None:
        """Let a topic be as it was, in place of any of its name. Durable on return.

        Raises:
            StorageError: nothing was changed.
        """

        async def put() -> None:
            await self._record(topics.created(topic))

        await self._change(put)

    async def skip_producer_ids(self, count: int) -> None:
        """This log is a copy: hand out none of the next `count` ids. Durable on return.

        Raises:
            StorageError: they may be handed out.
        """

        async def skip() -> None:
            up_to = min(self._next_producer_id + count, self._producer_ids.stop)
            await self._record({"event": "producer_ids", "up_to": up_to, "restored": True})
            self._begin_producer_ids()

        await self._change(skip)

    async def _change(
        self,
        change: Callable[[], Coroutine[Any, Any, T]],
        announced: AbstractAsyncContextManager[None] | None = None,
    ) -> T:
        """Change the registry, one at a time: of two creations of one name, one wins.

        It runs in a task of its own, to its end: a caller that goes away half-way must not leave
        the registry other than the log has it.
        """

        async def in_turn() -> T:
            async with announced or nullcontext(), self._changing:
                return await change()

        task = asyncio.create_task(in_turn())
        task.add_done_callback(_seen)
        return await asyncio.shield(task)

    def rrl(self, topic: Topic) -> str:
        """Where a topic is, for people: org/env/cluster/topics/slug."""
        cluster = self.config.cluster_name or self.registry.cluster_id
        return f"{topic.org}/{self.config.cluster_env}/{cluster}/topics/{topic.slug}"

    @property
    def dynamic_configs(self) -> DynamicConfigs:
        """What clients have set of the broker while it runs."""
        scopes = self.registry.broker_configs
        return DynamicConfigs(self._static_config, scopes["cluster"], scopes["own"])

    async def change_broker_configs(
        self, scope: str, change: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> None:
        """Change what clients have set of the broker. Durable, and in effect, on return.

        `change` is given what is set now in the scope, "cluster" or "own". What it raises is
        raised.

        Raises:
            StorageError: nothing has changed.
        """

        async def make() -> None:
            before = self.registry.broker_configs[scope]
            after = change(before)
            if after != before:
                await self._record(topics.broker_configs_event(scope, after))
                self._apply_broker_configs()
                self.retention_changed.set()

        await self._change(make)

    def _apply_broker_configs(self) -> None:
        self.config = self.dynamic_configs.effective()
        self._policies.clear()

    def policy(self, topic: Topic) -> TopicPolicy:
        """What a topic's configs mean."""
        configs, known = self._policies.get(topic.uuid, (None, None))
        if known is None or configs is not topic.configs:  # who asks may have an older topic
            known = topic_configs.policy(self.config, topic.configs)
            self._policies[topic.uuid] = topic.configs, known
        return known

    def find(self, org: int, name: str, uuid: bytes) -> Topic | None:
        """The topic addressed by name or, where the name is empty, by id."""
        if uuid and not name:
            return self.registry.by_id(org, uuid)
        return self.registry.by_name(org, name)


@contextmanager
def _groups_understood() -> Generator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as e:
        raise BadRegistryError(f"an event of the consumer groups is bad: {e!r}") from e


def _seen(task: asyncio.Task[Any]) -> None:
    """A failure that nobody waits for any more is not worth a warning: the caller is gone."""
    if not task.cancelled():
        task.exception()
