"""What is durable of consumer groups: events in the internal virtual topic `__quafka_groups`.

Replaying them, the later one winning, gives the table of groups. An event is applied when it is
durable, in the order of the log, whether or not anybody still waits for it.

So that a restart does not grow with the commits, the log start follows: from time to time every
fact that an old event holds is said once more, a few at a time, oldest first; what lies before is
dead then. Events that delete are never said again: what they delete lies before them.

No batch is written that holds much more than 1 MiB; a larger event is written in parts, of which
a replay takes all or none (event_codec.py). Batches of earlier versions are read at any size.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import chain
from time import time_ns
from typing import NamedTuple, cast

from quafka_broker import event_batches
from quafka_broker.groups.event_codec import EventReader, encode
from quafka_broker.groups.table import Event, Fact, Key, Table, size_of
from quafka_broker.topics import REGISTRY_ORG
from quafka_broker.virtual_topics import VirtualTopicId, topic_hash
from quafka_broker.wal.errors import CorruptError, StorageError
from quafka_broker.wal.log import Log
from quafka_proto.records import BatchHeader, read_header

log = logging.getLogger("quafka.broker.groups")

GROUPS_NAME = "__quafka_groups"
GROUPS = VirtualTopicId(REGISTRY_ORG, topic_hash(REGISTRY_ORG, GROUPS_NAME), 0, 0)

_READ_BYTES = 1 << 20
_WEIGHT_PER_SLICE = 200
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
        self, wal: Log, table: Table, moved: Callable[[], None], facts_kept: int = 10_000
    ) -> None:
        """`moved` is called when the log start has moved. Facts are not said again before there
        have been `facts_kept` of them, and as many as there are live ones."""
        self._wal = wal
        self._table = table
        self._moved = moved
        self.facts_kept = facts_kept
        self._places: OrderedDict[Fact, int] = OrderedDict()  # where each is said, oldest first
        self._queued: Counter[Fact] = Counter()  # on their way to the log
        self._queued_groups: Counter[Key] = Counter()
        self._last: asyncio.Future[list[int]] | None = None
        self._line: deque[tuple[list[Event], _Written]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._superseded = 0  # facts said since the last turn
        self._turn: asyncio.Task[None] | None = None

    # --- reading ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Apply all that is in the log.

        Raises:
            StorageError: it cannot be read.
            ValueError, KeyError, TypeError: an event cannot be understood.
        """
        said = 0
        async for offset, event in self._events():
            facts = self._table.facts(event)
            said += len(facts)
            self._table.apply(event, replaying=True)
            self._note(facts, offset)
        self._superseded = max(0, said - len(self._places))

    async def _events(self) -> AsyncIterator[tuple[int, Event]]:
        virtual = self._wal.topic(GROUPS)
        reader = EventReader()
        offset = virtual.log_start
        while offset < virtual.high_watermark:
            try:
                batches = await self._wal.read(virtual, offset, _READ_BYTES, at_least_one=True)
            except CorruptError:
                end = self._wal.end_of_lost(virtual, offset)
                if end == offset:
                    raise
                log.warning("events %d to %d of the consumer groups are lost", offset, end - 1)
                offset = end
                continue
            for batch in batches:
                offset = read_header(batch).base_offset
                for record in event_batches.records_of(batch):
                    event = reader.feed(offset, record.value or b"")
                    offset += 1
                    if event is not None:
                        yield event

    # --- writing ----------------------------------------------------------------------------

    def append(self, event: Event) -> asyncio.Future[list[int]]:
        """Queue an event; it is applied as soon as it is durable.

        The future raises:
            StorageError: it is not in the log, and nothing has changed.
        """
        facts = self._table.facts(event)
        key: Key = (event["org"], event["group"])
        self._queued.update(facts)
        self._queued_groups[key] += 1
        pending = self._write([event]).appended

        def done(appended: asyncio.Future[list[int]]) -> None:
            for fact in facts:
                _less(self._queued, fact)
            _less(self._queued_groups, key)
            if appended.cancelled() or appended.exception() is not None:
                return
            about = self._table.facts(event)
            self._table.apply(event, replaying=False)
            self._note(about, appended.result()[0])
            self._superseded += len(about)
            self._restate_if_due()

        pending.add_done_callback(done)
        return pending

    def is_queued(self, key: Key) -> bool:
        """Whether events of a group are on their way."""
        return key in self._queued_groups

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

    def _write(self, events: list[Event]) -> _Written:
        """Put events into the log, behind all that were written before them.

        Long ones are encoded a piece at a time, for the sake of everybody else; until they are in
        the log, what comes behind them waits in line.
        """
        if self._writing is None and sum(map(size_of, events)) <= _BYTES_AT_ONCE:
            places: list[int] = []
            batches = chain.from_iterable(_encoded(events, places))
            written = _Written(self._wal.append(self._wal.topic(GROUPS), list(batches)), places)
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
            appended = self._wal.append(self._wal.topic(GROUPS), batches)
            appended.add_done_callback(partial(_pass_on, last))
            if not self._line:
                await asyncio.wait([last])
        self._writing = None

    def _note(self, facts: list[Fact], offset: int) -> None:
        for fact in facts:
            if self._table.has(fact):
                self._places[fact] = offset
                self._places.move_to_end(fact)
            else:
                self._places.pop(fact, None)

    # --- keeping it short -------------------------------------------------------------------

    def _restate_if_due(self) -> None:
        if self._superseded <= max(self.facts_kept, len(self._places)):
            return
        if self._turn is None or self._turn.done():
            self._superseded = 0
            self._turn = asyncio.get_running_loop().create_task(self._restate())
            self._turn.add_done_callback(_seen)

    async def _restate(self) -> None:
        """Say every fact again that was said before now; then move the log start."""
        virtual = self._wal.topic(GROUPS)
        end = virtual.high_watermark
        while self._places and (oldest := next(iter(self._places.values()))) < end:
            await self._wal.wait_for_room()
            some = self._some_before(end)
            if some:
                await self._say_again(some)
            elif self._last is not None:
                # All of them are on their way, and will have been said anew when that has ended.
                await asyncio.wait([self._last])
            self._advance(oldest)
        self._advance(end)

    def _some_before(self, end: int) -> list[tuple[Fact, int]]:
        """The oldest facts, but for those of which another version is on its way already."""
        some: list[tuple[Fact, int]] = []
        weight = 0
        for fact, offset in self._places.items():
            if offset >= end or weight >= _WEIGHT_PER_SLICE:
                break
            weight += self._table.weight(fact)
            if not self._queued[fact] and not self._queued[fact[0], None]:
                some.append((fact, offset))
        return some

    async def _say_again(self, some: list[tuple[Fact, int]]) -> None:
        events = self._table.restated(fact for fact, _ in some)
        written = self._write(events)
        first = (await asyncio.shield(written.appended))[0]
        for (fact, before), place in zip(some, written.places, strict=True):
            if self._places.get(fact) == before:  # else it was deleted, or said anew, meanwhile
                self._note([fact], first + place)

    def _advance(self, offset: int) -> None:
        virtual = self._wal.topic(GROUPS)
        if offset > virtual.log_start:
            self._wal.advance_log_start(GROUPS, offset)
            self._moved()


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


def _less(counter: Counter[Fact] | Counter[Key], item: Fact | Key) -> None:
    counts = cast("Counter[object]", counter)
    counts[item] -= 1
    if not counts[item]:
        del counts[item]


def _seen(task: asyncio.Task[None]) -> None:
    """What could not be said again is still there, and the next turn tries again."""
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, StorageError):
        log.warning("the journal of the consumer groups cannot be shortened: %s", error)
    else:
        log.error("the journal of the consumer groups cannot be shortened", exc_info=error)
