"""The journal of share partitions: events in the internal topic `__quafka_shares`.

Once an event is durable, it is applied, or its pending changes are settled, in the order of the
log, even if its caller no longer waits.

A restart must not take longer with every acknowledgement. So once most events are superseded, the
journal restates all share partitions; the events before that are dead. Each checkpoint has a copy
of the table, and a replay begins with the copy. A record's state is that of its last change, so
events that the copy already includes may be applied again.

Damage causes redeliveries, not lost records: records acknowledged in lost events are delivered
again. While a copy of the disk may undo the damage, each start reads the gap again, and nothing is
restated.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from quafka_broker.journals import event_batches
from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import SHARES
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.shares import events
from quafka_broker.shares.events import Dropped, Event
from quafka_broker.shares.table import SharePartition, SharePartitionTable
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.eager_task import DirectFuture
from quafka_loop.slices import Slices

log = logging.getLogger("quafka.broker.shares")

SECTION = "shares/1"
"""Of a checkpoint: a block [offset], then blocks [values of the events that make the table].

The copy includes all events below the offset, and possibly some later ones.
"""

_WEIGHT_PER_SLICE = 200
_EVENTS_A_PARTITION = 8
"""Events in the journal per share partition above which the journal is shortened."""
_CHANGES_A_WEIGHT = 50
_RESTATE = 1 << 62
"""Events that are enough to restate the whole table."""


class ShareJournal:
    """Makes events durable, and rebuilds the table.

    Attributes:
        events_kept: the journal is not shortened before it has this many events.
    """

    def __init__(
        self,
        wal: Log,
        table: SharePartitionTable,
        begin_at: Callable[[int], Awaitable[None]],
        events_kept: int = 10_000,
    ) -> None:
        """`begin_at` moves the start of the journal, durably."""
        self._wal = wal
        self._table = table
        self._begin_at = begin_at
        self.events_kept = events_kept
        self._applied = 0  # the table includes all events below this offset
        self._written = 0  # the weight of events since the journal was last shortened
        self._gap: int | None = None  # the offset of the first unreadable event

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all events in the log.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        partition = self._wal.partitions.get(SHARES)
        start = self._load(self._wal.sections.kept(SECTION))
        await verify(self._wal, SHARES, start)
        async for found in read_values(self._wal, SHARES, max(start, partition.log_start)):
            if isinstance(found, Gap):
                log.error(
                    "events %d to %d of share groups are lost: records that were acknowledged in "
                    "them are delivered again", found.first, found.end - 1,
                )  # fmt: skip
                if not found.settled and self._gap is None:
                    self._gap = found.first
                continue
            event = events.decode(found.data)
            self._table.apply(event)
            self._written += _weight(event)
        # The log may have lost its last events without a trace; their offsets are not used again.
        if start > partition.high_watermark:
            self._wal.partitions.advance_log_start(SHARES, start)
        self._applied = partition.high_watermark
        if self._wal.partitions.is_damaged(SHARES):
            self._written = _RESTATE  # the next checkpoint may be the only complete copy
        self._wal.sections.keep(SECTION, self._copy)

    def _load(self, blocks: list[list[Any]]) -> int:
        if not blocks:
            return 0
        for (values,) in blocks[1:]:
            for value in values:
                self._table.apply(events.decode(value))
        return int(blocks[0][0])

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """Copy the table for a checkpoint. Changes during the copy are in the log."""
        yield [self._applied if self._gap is None else self._gap]
        slices = Slices(_WEIGHT_PER_SLICE)
        for some in self._in_slices():
            made = [each.began(settled=False) for each in some]
            yield [[events.encode(event) for event in made]]
            await slices.done(sum(map(_weight, made)))

    def _in_slices(self) -> Iterator[list[SharePartition]]:
        """Yield the present share partitions, some at a time."""
        some: list[SharePartition] = []
        weight = 0
        for found in self._table:
            if self._table.find(found.group, found.place) is not found:
                continue
            some.append(found)
            weight += 1 + found.window.in_flight // _CHANGES_A_WEIGHT
            if weight >= _WEIGHT_PER_SLICE:
                yield [each for each in some if self._table.find(each.group, each.place) is each]
                some, weight = [], 0
        yield some

    # --- writing ----------------------------------------------------------------------------

    def append(
        self, made: Sequence[Event], settled: Callable[[bool], None]
    ) -> DirectFuture[list[int]]:
        """Queue events in one write. `settled` is called in the order of the log, before any
        answer, with whether the events are in the log.

        The future raises:
            StorageError: the events are not in the log, or this is in doubt.
        """
        batches = [
            batch
            for some in event_batches.batches(
                map(events.encode, made), clock.time_ns() // 1_000_000
            )
            for batch in some
        ]
        last = batches[-1][0].record_count

        def settle(outcome: Outcome) -> None:
            if isinstance(outcome, StorageError):
                settled(False)
                return
            self._applied = outcome[-1] + last
            self._written += sum(map(_weight, made))
            settled(True)

        return self._wal.queue.append(self._wal.partitions.get(SHARES), batches, settle=settle)

    # --- shortening -------------------------------------------------------------------------

    @property
    def is_long(self) -> bool:
        """Whether most events are superseded."""
        if self._gap is not None:
            return False
        return self._written > max(self.events_kept, _EVENTS_A_PARTITION * len(self._table))

    async def shorten(self) -> None:
        """Restate all share partitions, after which older events are dead.

        Pending changes are restated as if they were durable: their own events come before.

        Raises:
            StorageError: the journal was not shortened.
        """
        first = self._wal.partitions.get(SHARES).high_watermark
        before = self._written
        self._written = 0
        try:
            for some in self._in_slices():
                if some:
                    await self.append([each.began() for each in some], lambda _stored: None)
                await self._wal.queue.wait_for_room()
            await self._begin_at(first)
        except StorageError:
            self._written += before
            raise


def _weight(event: Event) -> int:
    return 1 if isinstance(event, Dropped) else 1 + len(event.changes) // _CHANGES_A_WEIGHT
