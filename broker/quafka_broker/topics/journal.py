"""Writes the registry's events to the log, and replays them.

A change is first recorded in the log, then applied to the registry: one change at a time, so of two
creations of one name, one wins. From time to time the journal restates the registry; events before
that snapshot are dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar

from quafka_broker.journals import event_batches
from quafka_broker.journals.internal_topics import INTERNAL_NAMES, REGISTRY
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.topics import events as registry_events
from quafka_broker.topics.events import Event
from quafka_broker.topics.identity import new_cluster_id
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.replay import SECTION, Pin, Replay, copy_of, replay
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_proto.records import BatchHeader

log = logging.getLogger("quafka.broker.registry")

_EVENTS_PER_SLICE = 100  # of work on the event loop and of the log

T = TypeVar("T")


class RegistryJournal:
    """Makes changes of the registry durable.

    Attributes:
        deletions: counts deletions; the log's rewrite task compares it.
        events_kept: the number of superseded events before the registry is restated.
    """

    def __init__(
        self, wal: Log, registry: Registry, cluster_id: str = "", events_kept: int = 1_000
    ) -> None:
        """`cluster_id`: the name of a new log; empty: a random one."""
        self._wal = wal
        self._registry = registry
        self.deletions = 0
        self.events_kept = events_kept
        self._cluster_id = cluster_id
        self._changing = asyncio.Lock()
        self._superseded = 0  # events since the last snapshot of the registry
        self._applied = 0  # the registry includes all events below this offset
        self._replay = Replay()

    # --- start ------------------------------------------------------------------------------

    async def replay(self) -> Replay:
        """Rebuild the registry from the log and the checkpoint's copy.

        Raises:
            StorageError: the log cannot be read.
            BadRegistryError: an event cannot be decoded.
        """
        found = self._replay = await replay(self._wal, self._registry)
        self._superseded, self._applied = found.superseded, found.applied
        return found

    async def record_repairs(self, repairs: Sequence[Event]) -> None:
        """Record events that the registry already includes; name the cluster if it is new.

        Raises:
            StorageError: the new cluster's id cannot be recorded.
        """
        if repairs:
            try:
                self._applied = await self._append(repairs) + len(repairs)
            except StorageError as e:
                log.warning("the topic registry cannot be mended now: %s", e)
        if not self._registry.cluster_id:
            await self.record(registry_events.cluster_named(self._cluster_id or new_cluster_id()))

    async def settle(self) -> None:
        """Supersede damaged events without effect; from now on checkpoints have a copy."""
        if self._replay.pin is None and self._wal.partitions.is_damaged(REGISTRY):
            await self._restate()
        self._wal.sections.keep(SECTION, self._copy)

    # --- changes ----------------------------------------------------------------------------

    def start(
        self,
        change: Callable[[], Coroutine[Any, Any, T]],
        announced: AbstractAsyncContextManager[None] | None = None,
    ) -> asyncio.Task[T]:
        """Start a change of the registry; it runs alone, within `announced`.

        The change runs in a separate task, to its end: a caller that is cancelled half-way must not
        leave the registry different from the log. Changes run in the order of the calls.
        """

        async def run() -> T:
            async with announced or nullcontext(), self._changing:
                return await change()

        task = asyncio.create_task(run())
        task.add_done_callback(_retrieve_error)
        return task

    async def in_turn(
        self,
        change: Callable[[], Coroutine[Any, Any, T]],
        announced: AbstractAsyncContextManager[None] | None = None,
    ) -> T:
        """Run a change of the registry; see `start`."""
        return await asyncio.shield(self.start(change, announced))

    async def record(self, *events: Event) -> None:
        """Make events durable, then apply them. Only within `in_turn`, or before the broker serves.

        Raises:
            StorageError: the log refused them; nothing changed.
        """
        first = await self._append(events)
        for event in events:
            self._registry.apply(event)
        self._applied = first + len(events)
        self._superseded += len(events)
        self._wal.checkpoint_soon()
        if self._superseded > max(self.events_kept, self._registry.size):
            await self._restate()

    async def begin_journal_at(self, id_: PartitionId, offset: int) -> None:
        """Declare another journal's events below an offset dead. Durable on return.

        Raises:
            StorageError: they are still live.
        """

        async def move() -> None:
            moved = registry_events.journal_start_moved(INTERNAL_NAMES[id_], offset)
            await self.record(moved)
            self._wal.partitions.advance_log_start(id_, offset)
            self.deletions += 1

        await self.in_turn(move)

    async def _append(self, events: Sequence[Event], per_batch: int = _EVENTS_PER_SLICE) -> int:
        """Append events to the log, all or none of them; returns the first one's offset."""
        values = map(registry_events.encode_event, events)
        batches: list[tuple[BatchHeader, memoryview]] = []
        for some in event_batches.batches(values, clock.time_ns() // 1_000_000, per_batch):
            batches += some
            await asyncio.sleep(0)
        # Urgent, because events free space on a full disk.
        registry = self._wal.partitions.get(REGISTRY)
        return (await self._wal.queue.append(registry, batches, urgent=True))[0]

    # --- snapshots --------------------------------------------------------------------------

    async def _restate(self) -> None:
        """Shorten the registry's part of the log: events before a snapshot are dead.

        Not while some events cannot be read: a copy of the disk may restore them.
        """
        if self._replay.pin is not None:
            return
        events: list[Event] = []
        slices = Slices(_EVENTS_PER_SLICE)
        for event in self._registry.restate():
            events.append(event)
            await slices.done()
        parts = registry_events.snapshot_parts(events)
        try:
            first = await self._append(parts, per_batch=1)
        except StorageError:
            return  # the events still exist; the next change tries again
        self._applied = first + len(parts)
        self._wal.partitions.advance_log_start(REGISTRY, first)
        self.deletions += 1
        self._superseded = 0

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """The registry for a checkpoint; it does not change meanwhile."""
        async with self._changing:
            pin = self._replay.pin or Pin(self._applied, self._wal.next_id)
            for block in copy_of(self._registry.restate(), pin, _EVENTS_PER_SLICE):
                yield block


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Mark a task's failure as seen: a cancelled caller no longer waits for it."""
    if not task.cancelled():
        task.exception()
