"""The journal of the consumer groups: events in the internal topic `__quafka_groups`.

Replaying the events in order gives the table of groups; later events override earlier ones. An
event is applied once it is durable, in the order of the log, even if its caller no longer waits.

A restart must not take longer with every commit. So the journal restates the facts in old events
from time to time, a few at a time, oldest first; then all events before these are dead. Deletions
are never restated, since the deleted facts lie before them. So the log start is an event of the
registry; otherwise a fact would return once its deletion is freed.

Each checkpoint has a copy of the table, with the place of each fact, and a replay begins with the
copy. So damage to older events loses nothing. After a gap in newer events, facts may be out of
date; then the log start stays below the gap, and each start reads the gap again.

The journal writes no batch of much more than 1 MiB. A larger event is written in parts, and a
replay applies all parts or none (event_codec.py). Batches of earlier versions may have any size.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import Any, cast

from quafka_broker.groups.deferred_work import DeferredWork
from quafka_broker.groups.event_codec import EventAssembler
from quafka_broker.groups.event_writer import EventWriter, QueuedEvents
from quafka_broker.groups.table import Commit, Event, Fact, GroupTable, Key, Part, stated_by
from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import GROUPS
from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_broker.wal.log import Log
from quafka_loop.slices import Slices, in_slices

log = logging.getLogger("quafka.broker.groups")

SECTION = "groups/1"
"""Of a checkpoint: a block [offset], then blocks [event, [the offset of each of its facts, …]].

The copy includes all events below the first offset, and possibly some later ones.
"""

_ROWS = {"offsets": "offsets", "group_members": "members"}
"""The list of facts in an event of a checkpoint."""
_WEIGHT_PER_SLICE = 200
_AT_ONCE = 200
"""Facts whose places are recorded without yielding."""


class GroupJournal:
    """Makes changes of the table durable, and rebuilds the table.

    Attributes:
        facts_kept: the number of superseded facts before facts are restated.
    """

    def __init__(
        self,
        wal: Log,
        table: GroupTable,
        begin_at: Callable[[int], Awaitable[None]],
        facts_kept: int = 10_000,
    ) -> None:
        """`begin_at` moves the log start, durably."""
        self._wal = wal
        self._table = table
        self._begin_at = begin_at
        self.facts_kept = facts_kept
        self._places: OrderedDict[Fact, int] = OrderedDict()  # offset of each fact, oldest first
        self._queued = QueuedEvents()
        self._writer = EventWriter(wal)
        self._bookkeeping = DeferredWork()
        self._unplaced: deque[int] = deque()  # offsets of events that `_places` lacks yet
        self._superseded = 0  # facts written since the last restatement
        self._restating: asyncio.Task[None] | None = None
        self._applied = 0  # the table includes all events below this offset
        self._gap: int | None = None  # the offset of the first unreadable event

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all events in the log.

        Raises:
            StorageError: the log cannot be read.
            ValueError, KeyError, TypeError: an event cannot be decoded.
        """
        partition = self._wal.partitions.get(GROUPS)
        start, written = self._load(self._wal.sections.kept(SECTION), partition.log_start)
        await verify(self._wal, GROUPS, start)
        assembler = EventAssembler()
        async for found in read_values(self._wal, GROUPS, max(start, partition.log_start)):
            if isinstance(found, Gap):
                self._record_gap(found)
                continue
            whole = assembler.feed(found.offset, found.data)
            if whole is None:
                continue
            offset, event = whole
            facts = self._table.facts(event)
            written += len(facts)
            self._table.apply(event)
            self._place(facts, offset)
        self.drop_facts(await in_slices(self._table.restore_groups()))
        # The log may have lost its last events without a trace; their offsets are not used again.
        if start > partition.high_watermark:
            self._wal.partitions.advance_log_start(GROUPS, start)
        self._applied = partition.high_watermark
        self._superseded = max(0, written - len(self._places))
        self._wal.sections.keep(SECTION, self._copy)

    def restate_damaged(self) -> None:
        """Restate all facts after damage to events whose facts the checkpoint had."""
        if self._gap is None and self._wal.partitions.is_damaged(GROUPS):
            self._begin_restating()

    def _load(self, blocks: list[list[Any]], log_start: int) -> tuple[int, int]:
        """Apply a checkpoint's copy; returns where the log continues, and the number of facts.

        Facts from below the log start have since been restated or deleted.
        """
        if not blocks:
            return 0, 0
        placed: list[tuple[Fact, int]] = []
        for event, places in blocks[1:]:
            facts = stated_by(event)
            live: list[bool] = [at >= log_start for at in places]
            rows = _ROWS.get(event["event"])
            if rows is not None:
                event[rows] = list(compress(cast("list[object]", event[rows]), live))
            if any(live):
                self._table.apply(event)
                placed += compress(zip(facts, places, strict=True), live)
        for fact, place in sorted(placed, key=itemgetter(1)):
            self._place([fact], place)
        return blocks[0][0], len(placed)

    def _record_gap(self, gap: Gap) -> None:
        log.error("events %d to %d of the consumer groups are lost", gap.first, gap.end - 1)
        if not gap.settled and self._gap is None:
            self._gap = gap.first

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """Copy the table for a checkpoint. Changes during the copy are in the log."""
        placed = self._unplaced[0] if self._unplaced else self._applied
        yield [placed if self._gap is None else self._gap]
        slices = Slices(_WEIGHT_PER_SLICE)
        for key in list(self._table.entries):
            for facts in self._table.slices_of(key, _WEIGHT_PER_SLICE):
                known = [fact for fact in facts if fact in self._places and self._table.has(fact)]
                if known:
                    places = [self._places[fact] for fact in known]
                    yield [self._table.restated_in_one(known), places]
                await slices.done(len(facts))

    # --- writing ----------------------------------------------------------------------------

    def append(
        self, event: Event, then: Callable[[bool], None] = lambda _stored: None
    ) -> asyncio.Future[list[int]]:
        """Queue an event; it is applied once it is durable, even if the future is cancelled.

        A commit is applied all at once; its bookkeeping follows in slices. `then` is called after
        that, before any answer, with whether the event is in the log.

        The future raises:
            StorageError: the event is not in the log, and nothing changed.
        """
        key: Key = (event["org"], event["group"])
        self._queued.add(key, event)

        def settle(outcome: Outcome) -> None:
            self._queued.remove(key, event)
            if isinstance(outcome, StorageError):
                then(False)
            else:
                self._apply(key, event, outcome[0])
                then(True)

        return self._writer.write([event], settle).appended

    async def as_members(
        self, event: Event, then: Callable[[bool], None]
    ) -> tuple[list[GroupedBatch], Callable[[int | None], None]]:
        """Encode an event as batches for a group of log entries; returns them and a callback.

        The callback gets the offset of the first batch, or None if the group is not in the log.
        Long events are encoded in slices.
        """
        key: Key = (event["org"], event["group"])
        batches = await self._writer.encoded(event)
        self._queued.add(key, event)

        def settle(offset: int | None) -> None:
            self._queued.remove(key, event)
            if offset is not None:
                self._apply(key, event, offset)
            then(offset is not None)

        partition = self._wal.partitions.get(GROUPS)
        return [GroupedBatch(partition, *batch) for batch in batches], settle

    def is_queued(self, key: Key) -> bool:
        """Whether events of a group are on their way to the log."""
        return self._queued.has_group(key)

    def drop_facts(self, facts: list[Fact]) -> None:
        """Stop tracking dropped facts; no event records this."""
        for fact in facts:
            self._places.pop(fact, None)

    async def close(self) -> None:
        """Stop restating, and write the queued events."""
        if self._restating is not None:
            self._restating.cancel()
            await asyncio.gather(self._restating, return_exceptions=True)
        await self._writer.close()
        await self._bookkeeping.wait_until_done()

    def _apply(self, key: Key, event: Event, offset: int) -> None:
        places = self._table.places(event)
        commit = event.get("offsets")
        if isinstance(commit, Commit):
            steps: Iterator[None] = self._table.commit(key, commit)
        else:
            steps = iter(())
            self._table.apply(event)
        self._applied = offset + 1
        self._superseded += len(places)
        self._unplaced.append(offset)
        placing = chain(steps, self._place_in_steps(key, places))
        self._bookkeeping.run(placing, is_long=len(places) > _AT_ONCE)
        self._restate_if_due()

    # --- bookkeeping ------------------------------------------------------------------------

    async def bookkeeping_done(self) -> None:
        """Wait for the bookkeeping of all applied events."""
        await self._bookkeeping.wait_until_done()

    def run_bookkeeping(self, steps: Iterator[None], count: int) -> None:
        """Run `count` short steps after the bookkeeping of all applied events."""
        self._bookkeeping.run(steps, is_long=count > _AT_ONCE)

    def _place_in_steps(self, key: Key, places: Iterable[Part]) -> Iterator[None]:
        """Record the places of the facts of the first event of `_unplaced`."""
        offset = self._unplaced[0]
        try:
            for place in places:
                self._place([(key, place)], offset)
                yield
        finally:
            self._unplaced.popleft()

    def _place(self, facts: list[Fact], offset: int) -> None:
        for fact in facts:
            if self._places.get(fact, -1) > offset:
                continue  # a later event was recorded before this one
            if self._table.has(fact):
                self._places[fact] = offset
                self._places.move_to_end(fact)
            else:
                self._places.pop(fact, None)

    # --- restating --------------------------------------------------------------------------

    def _restate_if_due(self) -> None:
        if self._superseded <= max(self.facts_kept, len(self._places)):
            return
        if self._gap is None:
            self._begin_restating()

    def _begin_restating(self) -> None:
        if self._restating is None or self._restating.done():
            self._superseded = 0
            self._restating = asyncio.get_running_loop().create_task(self._restate())
            self._restating.add_done_callback(_log_failure)

    async def _restate(self) -> None:
        """Restate every fact written before now; then move the log start."""
        partition = self._wal.partitions.get(GROUPS)
        end = partition.high_watermark
        await self._bookkeeping.wait_until_done()  # now every fact below `end` has a place
        while self._places and next(iter(self._places.values())) < end:
            await self._wal.queue.wait_for_room()
            some = self._oldest_facts(end)
            if some:
                await self._restate_some(some)
            else:
                # New versions of all these facts are on their way, which update their places.
                await self._writer.all_settled()
        if end > partition.log_start:
            await self._begin_at(end)

    def _oldest_facts(self, end: int) -> list[tuple[Fact, int]]:
        """The oldest facts below an offset, except those with a new version on its way."""
        some: list[tuple[Fact, int]] = []
        weight = 0
        for fact, offset in self._places.items():
            if offset >= end or weight >= _WEIGHT_PER_SLICE:
                break
            weight += self._table.weight(fact)
            if not self._queued.has_fact(fact):
                some.append((fact, offset))
        return some

    async def _restate_some(self, some: list[tuple[Fact, int]]) -> None:
        events = self._table.restated(fact for fact, _ in some)
        written = self._writer.write(events)
        first = (await written.appended)[0]
        for (fact, before), place in zip(some, written.places, strict=True):
            if self._places.get(fact) == before:  # else it was deleted or changed meanwhile
                self._place([fact], first + place)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the failure: facts that were not restated are still in the log, and are tried again."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, StorageError):
        log.warning("the journal of the consumer groups cannot be shortened: %s", error)
    else:
        log.error("the journal of the consumer groups cannot be shortened", exc_info=error)
