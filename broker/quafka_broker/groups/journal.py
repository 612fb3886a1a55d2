"""What is durable of consumer groups: events in the internal virtual topic `__quafka_groups`.

Replaying them, the later one winning, gives the table of groups. An event is applied when it is
durable, in the order of the log, whether or not anybody still waits for it.

So that a restart does not grow with the commits, the log start follows: from time to time every
fact that an old event holds is restated, a few at a time, oldest first; what lies before is dead
then. Events that delete are never restated: what they delete lies before them. So the log start
is an event of the registry: without it, a fact whose deletion has been freed would come back.

Each checkpoint has a copy of the table, with the place of each fact, and a replay begins with it.
Damage to older events costs nothing. Behind a gap in newer ones, facts may be older than they
were; then the log start stays below the gap, and the gap is read again at each start.

No batch is written that holds much more than 1 MiB; a larger event is written in parts, of which
a replay takes all or none (event_codec.py). Batches of earlier versions are read at any size.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from functools import partial
from itertools import chain, compress
from operator import itemgetter
from time import time_ns
from typing import Any, NamedTuple, cast

from quafka_broker.groups.afterwards import Afterwards
from quafka_broker.groups.event_codec import EventReader, encode
from quafka_broker.groups.table import Commit, Event, Fact, Key, Place, Table, size_of
from quafka_broker.journals import event_batches
from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import GROUPS
from quafka_broker.partitions.errors import StorageError
from quafka_broker.wal.log import Log
from quafka_proto.records import BatchHeader
from quafka_telemetry.slices import Slices

log = logging.getLogger("quafka.broker.groups")

SECTION = "groups/1"
"""Of a checkpoint: a block [offset], then blocks [event, [the offset of each of its facts, …]].

Events below the first offset are in the copy; some of those behind it may be.
"""

_WEIGHT_PER_SLICE = 200
_AT_ONCE = 200  # facts that are noted in one go
_BYTES_AT_ONCE = 256 << 10
"""Bytes of events that are encoded in one go."""


class _Written(NamedTuple):
    """Events on their way to the log.

    Attributes:
        appended: gives the offset of each batch.
        places: where each event begins, counted from the first batch's offset.
    """

    appended: asyncio.Future[list[int]]
    places: list[int]


class Journal:
    """The table's way to the log and back."""

    def __init__(
        self,
        wal: Log,
        table: Table,
        begin_at: Callable[[int], Awaitable[None]],
        facts_kept: int = 10_000,
    ) -> None:
        """`begin_at` moves the log start, durably. Facts are not restated before there have been
        `facts_kept` of them, and as many as there are live ones."""
        self._wal = wal
        self._table = table
        self._begin_at = begin_at
        self.facts_kept = facts_kept
        self._places: OrderedDict[Fact, int] = OrderedDict()  # where each is said, oldest first
        self._queued: dict[
            Key, list[tuple[Event, Container[Place | None]]]
        ] = {}  # on their way to the log
        self._afterwards = Afterwards()
        self._unnoted: deque[int] = deque()  # where events are that `_places` does not know yet
        self._last: asyncio.Future[list[int]] | None = None
        self._line: deque[tuple[list[Event], _Written]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._superseded = 0  # facts said since the last turn
        self._turn: asyncio.Task[None] | None = None
        self._applied = 0  # events below this offset are in the table
        self._gap: int | None = None  # where the first one that cannot be read is

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all that is in the log.

        Raises:
            StorageError: it cannot be read.
            ValueError, KeyError, TypeError: an event cannot be understood.
        """
        partition = self._wal.partition(GROUPS)
        start, said = self._load(self._wal.kept_section(SECTION), partition.log_start)
        await verify(self._wal, GROUPS, start)
        reader = EventReader()
        async for found in read_values(self._wal, GROUPS, max(start, partition.log_start)):
            if isinstance(found, Gap):
                self._lost(found)
                continue
            whole = reader.feed(found.offset, found.data)
            if whole is None:
                continue
            offset, event = whole
            facts = self._table.facts(event)
            said += len(facts)
            self._table.apply(event, replaying=True)
            self._note(facts, offset)
        # The log may have lost its last events without a trace; their offsets are not used again.
        if start > partition.high_watermark:
            self._wal.advance_log_start(GROUPS, start)
        self._applied = partition.high_watermark
        self._superseded = max(0, said - len(self._places))
        self._wal.keep_section(SECTION, self._copy)

    def mend(self) -> None:
        """Restate everything where damage has taken events whose facts are known all the same."""
        if self._gap is None and self._wal.is_damaged(GROUPS):
            self._begin_turn()

    def _load(self, blocks: list[list[Any]], log_start: int) -> tuple[int, int]:
        """Apply a checkpoint's copy; returns where the log goes on, and how many facts that were.

        Facts from below the log start were restated or deleted later.
        """
        if not blocks:
            return 0, 0
        placed: list[tuple[Fact, int]] = []
        for event, places in blocks[1:]:
            facts = self._table.facts(event)
            kept: list[bool] = [at >= log_start for at in places]
            if event["event"] == "offsets":
                rows = cast("list[object]", event["offsets"])
                event["offsets"] = list(compress(rows, kept))
            if any(kept):
                self._table.apply(event, replaying=True)
                placed += compress(zip(facts, places, strict=True), kept)
        for fact, place in sorted(placed, key=itemgetter(1)):
            self._note([fact], place)
        return blocks[0][0], len(placed)

    def _lost(self, gap: Gap) -> None:
        log.error("events %d to %d of the consumer groups are lost", gap.first, gap.end - 1)
        if not gap.settled and self._gap is None:
            self._gap = gap.first

    async def _copy(self) -> AsyncGenerator[Sequence[Any]]:
        """The table for a checkpoint, while it changes: what changes is replayed from the log."""
        noted = self._unnoted[0] if self._unnoted else self._applied
        yield [noted if self._gap is None else self._gap]
        slices = Slices(_WEIGHT_PER_SLICE)
        for key in list(self._table.kept):
            for facts in self._table.slices_of(key, _WEIGHT_PER_SLICE):
                known = [fact for fact in facts if fact in self._places and self._table.has(fact)]
                if known:
                    places = [self._places[fact] for fact in known]
                    yield [self._table.restated_in_one(known), places]
                await slices.done(len(facts))

    # --- writing ----------------------------------------------------------------------------

    def append(self, event: Event) -> asyncio.Future[list[int]]:
        """Queue an event; it is applied as soon as it is durable.

        A commit is applied all at once, before the future's other callbacks. What else is kept of
        it follows in slices.

        The future raises:
            StorageError: it is not in the log, and nothing has changed.
        """
        key: Key = (event["org"], event["group"])
        self._queued.setdefault(key, []).append((event, _about(event)))
        pending = self._write([event]).appended

        def done(appended: asyncio.Future[list[int]]) -> None:
            self._no_longer_queued(key, event)
            if not appended.cancelled() and appended.exception() is None:
                self._apply(key, event, appended.result()[0])

        pending.add_done_callback(done)
        return pending

    def _no_longer_queued(self, key: Key, event: Event) -> None:
        queued = self._queued[key]
        queued[:] = [each for each in queued if each[0] is not event]
        if not queued:
            del self._queued[key]

    def _apply(self, key: Key, event: Event, offset: int) -> None:
        places = self._table.places(event)
        commit = event.get("offsets")
        if isinstance(commit, Commit):
            steps: Iterator[None] = self._table.commit(key, commit)
        else:
            steps = iter(())
            self._table.apply(event, replaying=False)
        self._applied = offset + 1
        self._superseded += len(places)
        self._unnoted.append(offset)
        noting = chain(steps, self._noting(key, places))
        self._afterwards.do(noting, is_long=len(places) > _AT_ONCE)
        self._restate_if_due()

    def _noting(self, key: Key, places: Iterable[Place | None]) -> Iterator[None]:
        """Note the places of the facts of the first event of `_unnoted`."""
        offset = self._unnoted[0]
        try:
            for place in places:
                self._note([(key, place)], offset)
                yield
        finally:
            self._unnoted.popleft()

    async def settled(self) -> None:
        """Wait until nothing is left to do of events that are applied."""
        await self._afterwards.done()

    def afterwards(self, steps: Iterator[None], count: int) -> None:
        """Run so many short steps behind what is left to do of events that are applied."""
        self._afterwards.do(steps, is_long=count > _AT_ONCE)

    def is_queued(self, key: Key) -> bool:
        """Whether events of a group are on their way."""
        return key in self._queued

    def _is_on_its_way(self, fact: Fact) -> bool:
        """Whether an event about this fact is."""
        events = self._queued.get(fact[0], ())
        return any(fact[1] in about for _, about in events)

    def forget(self, facts: list[Fact]) -> None:
        """These are gone, and no event needs to say so."""
        for fact in facts:
            self._places.pop(fact, None)

    async def close(self) -> None:
        """Stop saying things again, and write what waits in line."""
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)
        if self._writing is not None:
            await self._writing
        await self._afterwards.done()

    def _write(self, events: list[Event]) -> _Written:
        """Put events into the log, behind all that were written before them.

        Long ones are encoded a piece at a time, for the sake of everybody else; until they are in
        the log, what comes behind them waits in line.
        """
        if self._writing is None and sum(map(size_of, events)) <= _BYTES_AT_ONCE:
            places: list[int] = []
            batches = chain.from_iterable(_encoded(events, places))
            written = _Written(self._wal.append(self._wal.partition(GROUPS), list(batches)), places)
        else:
            written = _Written(asyncio.get_running_loop().create_future(), [])
            self._line.append((events, written))
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write_line())
        self._last = written.appended
        return written

    async def _write_line(self) -> None:
        """Write what waits in line. It ends when all of that is answered: whoever is told at once
        of an event of his must not be told before those whose events are in front of it."""
        last: asyncio.Future[list[int]] | None = None
        while self._line:
            events, (last, places) = self._line.popleft()
            batches: list[tuple[BatchHeader, memoryview]] = []
            for some in _encoded(events, places):
                batches += some
                await asyncio.sleep(0)
            appended = self._wal.append(self._wal.partition(GROUPS), batches)
            appended.add_done_callback(partial(_pass_on, last))
            if not self._line:
                await asyncio.wait([last])
        self._writing = None

    def _note(self, facts: list[Fact], offset: int) -> None:
        for fact in facts:
            if self._places.get(fact, -1) > offset:
                continue  # a later event was noted before this one
            if self._table.has(fact):
                self._places[fact] = offset
                self._places.move_to_end(fact)
            else:
                self._places.pop(fact, None)

    # --- keeping it short -------------------------------------------------------------------

    def _restate_if_due(self) -> None:
        if self._superseded <= max(self.facts_kept, len(self._places)):
            return
        if self._gap is None:
            self._begin_turn()

    def _begin_turn(self) -> None:
        if self._turn is None or self._turn.done():
            self._superseded = 0
            self._turn = asyncio.get_running_loop().create_task(self._restate())
            self._turn.add_done_callback(_seen)

    async def _restate(self) -> None:
        """Restate every fact that was said before now; then move the log start."""
        partition = self._wal.partition(GROUPS)
        end = partition.high_watermark
        await asyncio.sleep(0)  # events before it may be durable and not applied yet
        await asyncio.sleep(0)
        await self._afterwards.done()  # every fact that is said before it has its place
        while self._places and next(iter(self._places.values())) < end:
            await self._wal.wait_for_room()
            some = self._some_before(end)
            if some:
                await self._say_again(some)
            elif self._last is not None:
                # All of them are on their way, and will have been said anew when that has ended.
                await asyncio.wait([self._last])
        if end > partition.log_start:
            await self._begin_at(end)

    def _some_before(self, end: int) -> list[tuple[Fact, int]]:
        """The oldest facts, but for those of which another version is on its way already."""
        some: list[tuple[Fact, int]] = []
        weight = 0
        for fact, offset in self._places.items():
            if offset >= end or weight >= _WEIGHT_PER_SLICE:
                break
            weight += self._table.weight(fact)
            if not self._is_on_its_way(fact):
                some.append((fact, offset))
        return some

    async def _say_again(self, some: list[tuple[Fact, int]]) -> None:
        events = self._table.restated(fact for fact, _ in some)
        written = self._write(events)
        first = (await asyncio.shield(written.appended))[0]
        for (fact, before), place in zip(some, written.places, strict=True):
            if self._places.get(fact) == before:  # else it was deleted, or said anew, meanwhile
                self._note([fact], first + place)


def _encoded(
    events: list[Event], places: list[int]
) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
    """Events as batches, each made when it is asked for. `places`: is told where events begin."""

    def values() -> Iterator[bytes]:
        count = 0
        for event in events:
            places.append(count)
            for value in encode(event):
                count += 1
                yield value

    return event_batches.batches(values(), time_ns() // 1_000_000, most=_BYTES_AT_ONCE)


def _pass_on(answer: asyncio.Future[list[int]], appended: asyncio.Future[list[int]]) -> None:
    if answer.done():
        return
    error = None if appended.cancelled() else appended.exception()
    if error is not None:
        answer.set_exception(error)
        answer.exception()  # seen: its caller may be gone
    elif appended.cancelled():
        answer.cancel()
    else:
        answer.set_result(appended.result())


class _Everything:
    """Contains all there is of a group."""

    def __contains__(self, place: object) -> bool:
        return True


def _about(event: Event) -> Container[Place | None]:
    """Which facts of its group an event changes."""
    kind = event["event"]
    if kind == "group_deleted":
        return _Everything()
    if kind == "group":
        return (None,)
    if kind == "offsets_deleted":
        return {(topic, partition) for topic, partition in event["partitions"]}
    found: Commit | list[list[Any]] = event["offsets"]
    if isinstance(found, Commit):
        return found.offsets
    return {(topic, partition) for topic, _, partition, *_ in found}


def _seen(task: asyncio.Task[None]) -> None:
    """What could not be said again is still there, and the next turn tries again."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, StorageError):
        log.warning("the journal of the consumer groups cannot be shortened: %s", error)
    else:
        log.error("the journal of the consumer groups cannot be shortened", exc_info=error)
