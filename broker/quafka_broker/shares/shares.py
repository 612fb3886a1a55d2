"""The share groups' records at one broker: windows, their journal, and lock timeouts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.shares import events
from quafka_broker.shares.events import EVERY, Began, Changed, Dropped, Event
from quafka_broker.shares.journal import ShareJournal
from quafka_broker.shares.limits import ShareLimits, Terms
from quafka_broker.shares.ranges import NEVER
from quafka_broker.shares.states import (
    Acknowledge,
    Acknowledgement,
    Holder,
    JustAcquired,
    OffsetSpan,
    RangeChange,
    RecordState,
    RecordStateError,
    check_order,
)
from quafka_broker.shares.table import GroupKey, PartitionPlace, SharePartition, SharePartitionTable
from quafka_broker.sources.source import PartitionSource
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.deadlines import Deadlines
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.shares import EARLIEST, LATEST
from quafka_proto.errors import ErrorCode, Malformed

log = logging.getLogger("quafka.broker.shares")

_SHORTEN_SECONDS = 1.0
_WINDOWS_PER_SLICE = 20
_BATCHES_PER_SLICE = 200
_AT_ONCE = 200
"""Beginnings that share one write."""


class Abandoned(Protocol):
    """An op that acquires records and can be abandoned."""

    def abandon(self) -> None:
        """Stop taking records."""
        ...


class Beginning(NamedTuple):
    """Where a group that has no state in a partition begins; `reset`: as in `ShareConfigs`."""

    place: PartitionPlace
    source: PartitionSource
    reset: int


class BrokerShares:
    """All share partitions of one broker. For one event loop."""

    def __init__(
        self,
        wal: Log,
        limits: ShareLimits,
        parked: ParkedFetches,
        begin_at: Callable[[int], Awaitable[None]],
        find_topic: Callable[[int, bytes], Topic | None],
        *,
        keeps_unknown: bool,
    ) -> None:
        """`begin_at` durably moves the journal's start; `find_topic` looks up by org and id;
        `keeps_unknown`: topics that are unknown now may be known after another start."""
        self.limits = limits
        self.table = SharePartitionTable()
        self.journal = ShareJournal(wal, self.table, begin_at)
        self._keeps_unknown = keeps_unknown
        self._wal = wal
        self._parked = parked
        self._find_topic = find_topic
        self._deadlines: Deadlines | None = None
        self._due: dict[SharePartition, float] = {}
        self._beginning: set[asyncio.Future[dict[PartitionPlace, ErrorCode]]] = set()
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._acquiring: dict[tuple[GroupKey, Holder], dict[Abandoned, None]] = {}
        self.acquired = 0
        self.acknowledged: Counter[Acknowledge] = Counter()
        self.expired = 0
        self.exhausted = 0
        """Records archived since the start because they were delivered too often."""

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the table from the log, after the registry.

        Raises:
            StorageError: the log cannot be read.
            ValueError, TypeError, IndexError: an event cannot be decoded.
        """
        await self.journal.replay()
        if not self._keeps_unknown:
            gone = dict.fromkeys(
                (found.group, found.place.topic_id)
                for found in self.table
                if self._find_topic(found.group[0], found.place.topic_id) is None
            )
            for group, topic_id in gone:
                self.table.drop_topic(group, topic_id)

    async def run(self) -> None:
        """Shorten the journal now and then."""
        while True:
            await asyncio.sleep(_SHORTEN_SECONDS)
            if self.journal.is_long:
                try:
                    await self.journal.shorten()
                except StorageError as e:
                    log.warning("the journal of share groups cannot be shortened now: %s", e)

    def close(self) -> None:
        """Stop ending locks."""
        if self._deadlines is not None:
            self._deadlines.close()

    # --- beginning --------------------------------------------------------------------------

    async def begin(
        self, group: GroupKey, wanted: Sequence[Beginning]
    ) -> dict[PartitionPlace, ErrorCode]:
        """Begin a group's share partitions, unless they exist already.

        Returns the errors of those that cannot begin. Durable on return.
        """
        # Runs to its end even if the caller is cancelled: a second beginning would discard the
        # first.
        task = asyncio.ensure_future(self._begin(group, wanted))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return await asyncio.shield(task)

    async def _begin(
        self, group: GroupKey, wanted: Sequence[Beginning]
    ) -> dict[PartitionPlace, ErrorCode]:
        errors: dict[PartitionPlace, ErrorCode] = {}
        starts: list[tuple[PartitionPlace, int]] = []
        slices = Slices(_WINDOWS_PER_SLICE)
        async with self._locks.setdefault(group[0], asyncio.Lock()):
            for place, source, reset in wanted:
                await slices.done()
                if self.table.find(group, place) is not None:
                    continue
                if not self.has_room(group[0], len(starts) + 1):
                    errors[place] = ErrorCode.POLICY_VIOLATION
                    continue
                try:
                    starts.append((place, await _first_offset(source, reset)))
                except (StorageError, Malformed):
                    errors[place] = ErrorCode.KAFKA_STORAGE_ERROR
            for at in range(0, len(starts), _AT_ONCE):
                try:
                    await self.put(group, starts[at : at + _AT_ONCE])
                except StorageError:
                    rest = starts[at : at + _AT_ONCE]
                    errors |= {place: ErrorCode.KAFKA_STORAGE_ERROR for place, _ in rest}
        return errors

    def has_room(self, org: int, new: int) -> bool:
        """Whether an org may have this many more share partitions."""
        return self.table.usage(org).partitions + new <= self.limits.org_partitions

    async def put(self, group: GroupKey, starts: Sequence[tuple[PartitionPlace, int]]) -> None:
        """Make a group continue at these offsets, discarding the states of its records. Durable.

        Raises:
            StorageError: nothing changed.
        """
        made = [Began(*group, *place, start, []) for place, start in starts]

        def settle(stored: bool) -> None:
            for event in made:
                if stored and self._find_topic(group[0], event.topic_id) is not None:
                    self.table.apply(event)

        await self._wal.queue.wait_for_room(group[0])
        await self.journal.append(made, settle)

    # --- records ----------------------------------------------------------------------------

    def look(self, found: SharePartition, source: PartitionSource, terms: Terms) -> int | None:
        """The first offset that a member might acquire, or None at present."""
        window = found.window
        found.most_deliveries = terms.most_deliveries
        window.move_start(source.log_start)
        self._expire(found)
        self.table.recount(found)
        offset = window.next_offset
        if offset >= source.end(terms.committed):
            return None
        if offset == window.end and window.in_flight >= self._room(found, terms):
            found.is_full = True
            return None
        return offset

    def _room(self, found: SharePartition, terms: Terms) -> int:
        """The number of offsets that the window may hold."""
        left = self.limits.org_in_flight - self.table.usage(found.group[0]).in_flight
        return min(terms.most_in_flight, found.window.in_flight + max(0, left))

    def take(
        self,
        found: SharePartition,
        holder: Holder,
        spans: Iterable[OffsetSpan],
        since: int,
        most: int,
        terms: Terms,
        *,
        exact: bool,
    ) -> list[JustAcquired]:
        """Give records of batches to a member; `since`: the first offset of the read of `spans`."""
        until = asyncio.get_running_loop().time() + terms.lock
        acquired = found.window.acquire(
            holder,
            until,
            spans,
            most,
            since=since,
            room=self._room(found, terms),
            exact=exact,
            most_deliveries=terms.most_deliveries,
        )
        self.table.recount(found)
        self.acquired += sum(part.end - part.first for part in acquired)
        if acquired:
            self._watch(found)
        return acquired

    async def acknowledge(
        self,
        found: SharePartition,
        holder: Holder,
        batches: Sequence[Acknowledgement],
        terms: Terms,
    ) -> None:
        """Acknowledge a member's records, durably, all or none. Renewed ones are the holder's.

        Raises:
            BadAcknowledgementError, RecordStateError: nothing changed; see `Window.acknowledge`.
            StorageError: the records are available again, or this is in doubt.
        """
        found.most_deliveries = terms.most_deliveries
        self._expire(found)
        check_order(batches)
        window, changes = found.window, list[RangeChange]()
        try:
            await self._put_pending(found, holder.member, batches, terms, changes)
        except BaseException:  # also if the caller is cancelled: all of them count, or none
            window.undo(changes)
            self._watch(found)
            raise
        lasting = [each for each in changes if each.state is not RecordState.ACQUIRED]
        if len(lasting) < len(changes):
            renewed = [each for each in changes if each.state is RecordState.ACQUIRED]
            window.renew(renewed, holder, asyncio.get_running_loop().time() + terms.lock)
            self._watch(found)
        self._count(batches, lasting)
        if lasting:
            await self._write(found, lasting)

    async def _put_pending(
        self,
        found: SharePartition,
        member: str,
        batches: Sequence[Acknowledgement],
        terms: Terms,
        changes: list[RangeChange],
    ) -> None:
        """Acknowledge records, some at a time, and add the pending changes to `changes`.

        Raises:
            BadAcknowledgementError, RecordStateError: see `Window.acknowledge`.
        """
        window = found.window
        for at in range(0, len(batches), _BATCHES_PER_SLICE):
            if at:
                await asyncio.sleep(0)
            some = batches[at : at + _BATCHES_PER_SLICE]
            changes += window.acknowledge(member, some, terms.most_deliveries)
        if self.table.find(found.group, found.place) is not found or found.window is not window:
            raise RecordStateError("the group's offsets were set or deleted meanwhile")

    def _write(self, found: SharePartition, changes: list[RangeChange]) -> Awaitable[object]:
        window = found.window

        def settle(stored: bool) -> None:
            if stored:
                window.settle(changes)
            else:
                window.revert(changes)
            if found.window is window:
                self.table.recount(found)
            released = not stored or any(each.state is RecordState.AVAILABLE for each in changes)
            if released or found.is_full:
                found.is_full = False
                self._wake(found)

        # One event: a crash keeps all of it or nothing.
        event = Changed(*found.group, *found.place, window.start, events.rows(changes))
        return self.journal.append([event], settle)

    def _count(self, batches: Iterable[Acknowledgement], changes: Iterable[RangeChange]) -> None:
        released = 0
        for first, end, types in batches:
            if len(types) == 1:
                self.acknowledged[Acknowledge(types[0])] += end - first
                released += types[0] == Acknowledge.RELEASE
            else:
                for kind, number in Counter(types).items():
                    self.acknowledged[Acknowledge(kind)] += number
                    released += kind == Acknowledge.RELEASE
        if released:
            self.exhausted += _exhausted(changes, batches)

    # --- giving back ------------------------------------------------------------------------

    async def release(self, group: GroupKey, holder: Holder) -> int:
        """Take back all records of a member's session; returns their number.

        Ops that are acquiring records in it stop: their client is gone or leaving, and ops may
        arrive in another order than they were sent. What the member has acquired or renewed in
        another session, perhaps at another gateway, stays with it.
        """
        for acquiring in self._acquiring.get((group, holder), ()):
            acquiring.abandon()
        released = 0
        slices = Slices(_WINDOWS_PER_SLICE)
        for found in self.table.of(group):
            changes = found.window.release(holder, self._most(found))
            released += self._given_back(found, changes)
            await slices.done()
        return released

    @contextmanager
    def acquires(self, group: GroupKey, holder: Holder, acquiring: Abandoned) -> Generator[None]:
        """Register an op that acquires records for a holder; `release` abandons it."""
        key = group, holder
        its = self._acquiring.setdefault(key, {})
        its[acquiring] = None
        try:
            yield
        finally:
            its.pop(acquiring, None)
            if not its:
                self._acquiring.pop(key, None)

    def give_back(self, found: SharePartition, holder: Holder, first: int, end: int) -> int:
        """Take back a holder's records in [first, end), which it has not seen."""
        changes = found.window.give_back(holder, first, end, self._most(found))
        return self._given_back(found, changes)

    def _most(self, found: SharePartition) -> int:
        return found.most_deliveries or self.limits.most_deliveries

    def _given_back(self, found: SharePartition, changes: list[RangeChange]) -> int:
        """Record changes that are already in effect; a restart may repeat them."""
        if not changes:
            return 0
        self.table.recount(found)
        event = Changed(*found.group, *found.place, found.window.start, events.rows(changes))
        self._forget(self.journal.append([event], lambda _stored: None))
        self.exhausted += sum(
            each.end - each.first for each in changes if each.state is RecordState.ARCHIVED
        )
        self._wake(found)
        return sum(each.end - each.first for each in changes)

    def _forget(self, written: asyncio.Future[list[int]]) -> None:
        written.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _wake(self, found: SharePartition) -> None:
        topic = self._find_topic(found.group[0], found.place.topic_id)
        if topic is not None:
            self._parked.wake([topic.partition_id(found.place.partition)])

    # --- locks ------------------------------------------------------------------------------

    def _watch(self, found: SharePartition) -> None:
        """Schedule a look at the window for the end of its next lock."""
        when = found.window.wake_at
        if when >= self._due.get(found, NEVER):
            return
        if self._deadlines is None:
            self._deadlines = Deadlines(asyncio.get_running_loop())
        self._due[found] = when
        self._deadlines.add(when, partial(self._lock_ends, found, when))

    def _lock_ends(self, found: SharePartition, when: float) -> None:
        if self._due.get(found) != when:
            return
        del self._due[found]
        if self.table.find(found.group, found.place) is found:
            self._expire(found)
            self._watch(found)

    def _expire(self, found: SharePartition) -> None:
        now = asyncio.get_running_loop().time()
        changes = found.window.expire(now, self._most(found))
        self.expired += self._given_back(found, changes)

    # --- forgetting -------------------------------------------------------------------------

    async def drop(self, group: GroupKey, places: Iterable[PartitionPlace]) -> None:
        """Drop a group's state in these places, or without places, everywhere. Durable on return.

        Raises:
            StorageError: the state is as before.
        """
        made: list[Event] = [Dropped(*group, *place) for place in places]
        if not self.table.of(group):
            return
        made = made or [Dropped(*group, b"", EVERY)]

        def settle(stored: bool) -> None:
            for event in made if stored else ():
                self.table.apply(event)

        await self._wal.queue.wait_for_room(group[0])
        await self.journal.append(made, settle)

    def drop_topics(self, topics: Collection[Topic]) -> None:
        """Drop the groups' state in deleted topics, whose ids are never reused."""
        for topic in topics:
            for group in [key for key in self.table.groups if key[0] == topic.org]:
                self.table.drop_topic(group, topic.uuid)


async def _first_offset(source: PartitionSource, reset: int) -> int:
    """The offset at which a group begins. Raises StorageError, Malformed."""
    if reset == EARLIEST:
        return source.log_start
    if reset != LATEST:
        found = await source.first_from(max(0, round(clock.time() * 1000) - reset))
        if found is not None:
            return found.offset
    return source.high_watermark


def _exhausted(changes: Iterable[RangeChange], batches: Iterable[Acknowledgement]) -> int:
    """The number of records that were to be released but are archived."""
    rejected = sum(
        end - first
        if len(types) == 1 and types[0] in _ARCHIVING
        else sum(kind in _ARCHIVING for kind in types)
        for first, end, types in batches
    )
    archived = sum(each.end - each.first for each in changes if each.state is RecordState.ARCHIVED)
    return max(0, archived - rejected)


_ARCHIVING = frozenset({Acknowledge.GAP, Acknowledge.REJECT})
