"""The journal of orgs, users, rules and quotas: events in the internal topic `__quafka_security`.

Replaying the events in the order of the log gives the table. Changes are made one at a time: a
change is decided from the present table, made durable, and applied, before the next one is decided.
So the order of the log is the order of the decisions.

Each checkpoint has a copy of the table, and a replay begins with the copy. Events that the copy
already includes may be applied again: each sets or removes whole records.

Lost events matter more than in other journals: one may have removed a user or an "allow" rule, or
have added a "deny" rule, so the rest of the table may permit access that was revoked. While damage
hides events, the journal is *incomplete*: no gateway gets a copy of the table, and nothing can be
changed, until the events are readable again, or `quafka wal repair` has given them up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from quafka_broker.journals import event_batches
from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import SECURITY
from quafka_broker.partitions.errors import StorageError
from quafka_broker.security import events
from quafka_broker.security.events import Event, RulesAdded, RulesRemoved
from quafka_broker.security.table import SecurityTable
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BatchHeader, read_header

log = logging.getLogger("quafka.broker.security")

SECTION = "security/1"
"""Of a checkpoint: a block [offset], then blocks [values of the events that make the table].

The copy includes all events below the offset, and possibly some later ones.
"""

_PER_SLICE = 200
_BLOCK_BYTES = 64 << 10
_EVENTS_A_BATCH, _BATCH_BYTES = 100, 256 << 10
_EVENTS_A_RECORD = 4
"""Events in the journal per record above which the journal is shortened."""
_RESTATE = 1 << 62
"""Events that are enough to restate all records."""

T = TypeVar("T")


class SecurityJournal:
    """Makes events durable, and rebuilds the table.

    Attributes:
        incomplete: why the table must not be used; empty if it may be.
        events_kept: the journal is not shortened before it has this many events.
    """

    def __init__(
        self,
        wal: Log,
        table: SecurityTable,
        begin_at: Callable[[int], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
        events_kept: int = 1_000,
    ) -> None:
        """`begin_at` moves the start of the journal, durably; `changed` is called after changes."""
        self._wal = wal
        self._table = table
        self._begin_at = begin_at
        self._changed = changed
        self.events_kept = events_kept
        self.incomplete = ""
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._applied = 0  # the table includes all events below this offset
        self._written = 0  # events since the journal was last shortened

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all events in the log.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        partition = self._wal.partitions.get(SECURITY)
        start = self._load(self._wal.sections.kept(SECTION))
        await verify(self._wal, SECURITY, start)
        async for found in read_values(self._wal, SECURITY, max(start, partition.log_start)):
            if isinstance(found, Gap):
                self._record_gap(found)
                continue
            self._table.apply(events.decode(found.data))
            self._written += 1
        self._table.forget_removals()
        # The log may have lost its last events without a trace; their offsets are not used again.
        if start > partition.high_watermark:
            self._wal.partitions.advance_log_start(SECURITY, start)
        self._applied = partition.high_watermark
        if self.incomplete:
            return  # the checkpoints keep the copy that this start has read
        if self._wal.partitions.is_damaged(SECURITY):
            self._written = _RESTATE  # the next checkpoint may be the only complete copy
        self._wal.sections.keep(SECTION, self._copy)

    def _load(self, blocks: list[list[Any]]) -> int:
        if not blocks:
            return 0
        for (values,) in blocks[1:]:
            for value in values:
                self._table.apply(events.decode(value))
        return int(blocks[0][0])

    def _record_gap(self, gap: Gap) -> None:
        lost = f"events {gap.first} to {gap.end - 1} of orgs, users, ACLs and quotas are lost"
        if gap.settled:
            log.error(
                "%s: a user or a rule that was removed may be there again, and a rule that denies "
                "may be missing; compare them with what they should be", lost,
            )  # fmt: skip
            return
        self.incomplete = lost
        log.error(
            "%s: no gateway gets users or ACLs until they are readable again, or `quafka wal "
            "repair` gives them up", lost,
        )  # fmt: skip

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """Copy the table for a checkpoint. Changes during the copy are in the log."""
        yield [self._applied]
        slices = Slices(_PER_SLICE)
        block: list[bytes] = []
        size = 0
        for event in self._table.restated():
            block.append(events.encode(event))
            size += len(block[-1])
            if size >= _BLOCK_BYTES:
                yield [block]
                block, size = [], 0
            await slices.done(_weight(event))
        yield [block]

    # --- writing ----------------------------------------------------------------------------

    async def in_turn(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change after all earlier ones, to its end, even if the caller is cancelled."""

        async def run() -> T:
            async with self._changing:
                return await change()

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a cancelled caller no longer waits for it

    async def record(self, made: Sequence[Event]) -> None:
        """Make events durable, all or none of them, then apply them. Only within `in_turn`.

        Raises:
            StorageError: nothing changed.
        """
        if self.incomplete:
            raise StorageError(self.incomplete)
        partition = self._wal.partitions.get(SECURITY)
        slices = Slices(_PER_SLICE)
        values: list[bytes] = []
        for event in made:
            values.append(events.encode(event))
            await slices.done(_weight(event))
        head, *others = _parts(values)
        members = [GroupedBatch(partition, *_batch(part, 0)) for part in others]
        await self._wal.queue.wait_for_room()
        # Urgent, so that rights can be revoked on a full disk.
        first, *_ = await self._wal.queue.append(
            partition, [_batch(head, len(members))], urgent=True, members=members
        )
        for event in made:
            self._table.apply(event)
            await slices.done(_weight(event))
        self._applied = first + len(made)
        self._written += len(made)
        self._wal.checkpoint_soon()
        self._changed()

    async def shorten(self) -> None:
        """Restate all records once most events are superseded; older events are dead.

        Raises:
            StorageError: the journal was not shortened.
        """
        if self._is_long() and not self.incomplete:
            await self.in_turn(self._restate)

    def _is_long(self) -> bool:
        return self._written > max(self.events_kept, _EVENTS_A_RECORD * len(self._table))

    async def _restate(self) -> None:
        partition = self._wal.partitions.get(SECURITY)
        first = partition.high_watermark
        slices = Slices(_PER_SLICE)
        made: list[bytes] = []
        for event in self._table.restated():
            made.append(events.encode(event))
            await slices.done(_weight(event))
        for batches in event_batches.batches(made, clock.time_ns() // 1_000_000):
            await self._wal.queue.wait_for_room()
            await self._wal.queue.append(partition, batches)
        self._applied = partition.high_watermark
        self._written = 0
        await self._begin_at(first)

    async def close(self) -> None:
        """Wait for the changes under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _weight(event: Event) -> int:
    return len(event.rules) if isinstance(event, (RulesAdded, RulesRemoved)) else 5


def _parts(values: Sequence[bytes]) -> list[list[bytes]]:
    """The events of each batch."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for value in values:
        if parts[-1] and (len(parts[-1]) >= _EVENTS_A_BATCH or size >= _BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(value)
        size += len(value)
    return parts


def _batch(values: Sequence[bytes], followers: int) -> tuple[BatchHeader, memoryview]:
    now_ms = clock.time_ns() // 1_000_000
    records = [Record(0, now_ms, None, value, []) for value in values]
    data = build_batch(records, base_sequence=followers or -1)
    return read_header(data), memoryview(data)
