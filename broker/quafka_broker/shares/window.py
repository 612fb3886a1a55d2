"""A share partition: the records of one partition that one share group has in flight. Pure.

The window is the offsets [start, end). All records below `start` (Kafka's SPSO) are done, and all
from `end` on are available. Between them the window has ranges of records with equal states:
thousands of records that a member acquires and accepts together are one range.

The changes of an acknowledgement are *pending*: their records can be neither acquired nor
acknowledged, and their locks do not end, until the changes are durable (`settle`), cannot become
durable (`revert`), or one of the acknowledgements is refused (`undo`). At a restart, `apply`
applies the changes; the last change of a record counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from quafka_broker.shares.ranges import NEVER, Range, Ranges
from quafka_broker.shares.states import (
    NOBODY,
    Acknowledge,
    Acknowledgement,
    BadAcknowledgementError,
    Holder,
    JustAcquired,
    OffsetSpan,
    RangeChange,
    RecordState,
    RecordStateError,
    alone_at_once,
    alone_from,
)

Part = TypeVar("Part", JustAcquired, RangeChange)
_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_ARCHIVED, _ACKNOWLEDGED = RecordState.ARCHIVED, RecordState.ACKNOWLEDGED


class Window:
    """The state of a share partition. Times are in seconds, by one clock that the caller reads."""

    __slots__ = ("_free_from", "_ranges", "acquired", "end", "start", "wake_at")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.acquired = 0
        """Records under a lock."""
        self.wake_at = NEVER
        """No lock ends before this time."""
        self._ranges = Ranges()  # over [start, end)
        self._free_from = start  # no record of the window below this offset is free

    @property
    def in_flight(self) -> int:
        """The offsets of the window."""
        return self.end - self.start

    @property
    def next_offset(self) -> int:
        """The first record that may be free."""
        for at in range(self._ranges.place(self._free_from), len(self._ranges)):
            found = self._ranges[at]
            if found.is_free:
                self._free_from = max(found.first, self._free_from)
                return self._free_from
        self._free_from = self.end
        return self.end

    def comes_alone(self, most_deliveries: int) -> bool:
        """Whether the first free record must be delivered alone; see `alone_from`."""
        offset = self.next_offset
        if offset >= self.end:
            return False
        found = self._ranges[self._ranges.place(offset)]
        return found.deliveries >= alone_from(most_deliveries)

    def ranges(self) -> Iterator[Range]:
        """The ranges of the window, by offset."""
        return iter(self._ranges)

    def done_from(self, offset: int) -> Iterator[Range]:
        """The finished ranges from an offset on, behind records that are not finished."""
        for here in self._ranges:
            if here.end > offset and here.state.is_final and not here.pending:
                yield here

    # --- taking -----------------------------------------------------------------------------

    def acquire(
        self,
        holder: Holder,
        until: float,
        spans: Iterable[OffsetSpan],
        most: int,
        *,
        since: int,
        room: int,
        exact: bool,
        most_deliveries: int,
    ) -> list[JustAcquired]:
        """Give free records of batches to a member, which holds them until `until`.

        `spans` are the batches of the partition from `since` on. Offsets between them no longer
        have a record, and are archived, like hidden batches. `most`: the number of records to give,
        rounded up to whole batches; with `exact` never more, and a batch may be cut. `room`: the
        window holds at most this many offsets. A record whose last delivery was interrupted by a
        restart is delivered once more as its last. Records that were delivered often are delivered
        alone; see `alone_from`.
        """
        found: list[JustAcquired] = []
        taken = 0
        alone = alone_from(most_deliveries)
        position = max(self.next_offset, since)
        for span in spans:
            if taken >= most or (found and found[-1].deliveries > alone):
                break
            limit = self.start + room
            if span.end <= position:
                continue
            first = max(span.first, position)
            if first > position:
                self._archive_free(position, min(first, max(limit, self.end)))
            end = min(span.end, max(limit, self.end))
            if end <= first:
                break
            position = end
            if span.hidden:
                self._archive_free(first, end)
                continue
            left = most - taken if exact else NEVER
            for part in self._take(
                holder, until, first, end, left, most_deliveries, is_first=not found
            ):
                taken += part.end - part.first
                found.append(part)
        self._trim()
        if found:
            self.wake_at = min(self.wake_at, until)
        return joined(found)

    def _take(
        self,
        holder: Holder,
        until: float,
        first: int,
        end: int,
        most: float,
        most_deliveries: int,
        *,
        is_first: bool,
    ) -> Iterator[JustAcquired]:
        if first >= self.end or end > self.end:
            self._extend(end)
        alone = alone_from(most_deliveries)
        for at in self._ranges.carve(first, end):
            here = self._ranges[at]
            if not here.is_free or most <= 0:
                continue
            comes_alone = here.deliveries >= alone
            if comes_alone:
                size = alone_at_once(here.end - here.first, here.deliveries, most_deliveries)
                most = min(most, size) if is_first else 0
                if not most:
                    continue
            if here.end - here.first > most:
                self._ranges.split(at, here.first + int(most))
                here = self._ranges[at]
            here.state, here.holder, here.until = _ACQUIRED, holder, until
            here.deliveries += here.deliveries < most_deliveries
            size = here.end - here.first
            self.acquired += size
            most = 0 if comes_alone else most - size
            is_first = False
            yield JustAcquired(here.first, here.end, here.deliveries)
        self._ranges.merge(first, end)

    def _archive_free(self, first: int, end: int) -> None:
        """Archive those of these records that no member holds."""
        if first >= end:
            return
        if end > self.end:
            self._extend(end)
        for at in self._ranges.carve(first, end):
            if self._ranges[at].is_free:
                self._ranges[at].state = _ARCHIVED
        self._ranges.merge(first, end)

    # --- acknowledging ----------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Sequence[Acknowledgement], most_deliveries: int
    ) -> list[RangeChange]:
        """Acknowledge records that a member holds, all or none. The changes are pending.

        The batches ascend (`check_order`). Records below the start of the window are done, and left
        out. Changes to ACQUIRED are renewals, which `renew` completes.

        Raises:
            BadAcknowledgementError: a batch is invalid.
            RecordStateError: the member does not hold one of the records.
        """
        runs = [run for batch in batches for run in _runs(batch)]
        for batch in batches:
            self._check_acquired(batch.end)
            self._check_held(member, max(batch.first, self.start), batch.end)
        changes: list[RangeChange] = []
        for first, end, kind in runs:
            first = max(first, self.start)
            if first < end:
                changes += self._put_pending(first, end, kind, most_deliveries)
        self._merge(changes)
        return joined(changes)

    def _check_acquired(self, end: int) -> None:
        if end > self.end > self.start:
            raise BadAcknowledgementError(f"offset {end - 1} is past the acquired records")
        if end > self.end:
            raise RecordStateError(f"offset {end - 1} was never acquired")

    def _check_held(self, member: str, first: int, end: int) -> None:
        for at in range(self._ranges.place(first), len(self._ranges)):
            here = self._ranges[at]
            if here.first >= end:
                break
            if not here.is_held or here.holder.member != member:
                raise RecordStateError(f"the member does not hold offset {max(first, here.first)}")

    def _put_pending(
        self, first: int, end: int, kind: Acknowledge, most_deliveries: int
    ) -> Iterator[RangeChange]:
        for at in self._ranges.carve(first, end):
            here = self._ranges[at]
            here.state = _after(kind, here.deliveries, most_deliveries)
            here.pending = True
            if here.state is not _ACQUIRED:
                self.acquired -= here.end - here.first
            yield RangeChange(here.first, here.end, here.state, here.deliveries)

    def renew(self, changes: Sequence[RangeChange], holder: Holder, until: float) -> None:
        """Complete renewals: the holder has the records until this time."""
        for here in self._end_pending(changes):
            here.holder, here.until = holder, until
            self.wake_at = min(self.wake_at, until)

    def settle(self, changes: Sequence[RangeChange]) -> None:
        """Complete pending changes, which are durable now."""
        for here in self._end_pending(changes):
            here.holder, here.until = NOBODY, NEVER

    def revert(self, changes: Sequence[RangeChange]) -> None:
        """Undo pending changes that are not in the log: the records are available again."""
        for here in self._end_pending(changes):
            here.state, here.holder, here.until = _AVAILABLE, NOBODY, NEVER

    def undo(self, changes: Sequence[RangeChange]) -> None:
        """Undo pending changes as if they had not been asked for: members hold the records."""
        for here in self._end_pending(changes):
            if here.state is not _ACQUIRED:
                self.acquired += here.end - here.first
            here.state = _ACQUIRED
            self.wake_at = min(self.wake_at, here.until)

    def _end_pending(self, changes: Sequence[RangeChange]) -> Iterator[Range]:
        """End the wait of pending changes; the caller gives each range its state."""
        for first, end, _, _ in changes:
            first, end = max(first, self.start), min(end, self.end)
            for at in self._ranges.carve(first, end) if first < end else ():
                here = self._ranges[at]
                if here.pending:
                    here.pending = False
                    yield here
                    if here.is_free:
                        self._free_from = min(self._free_from, here.first)
        self._merge(changes)
        self._trim()

    def _merge(self, changes: Sequence[RangeChange]) -> None:
        if changes:
            self._ranges.merge(changes[0].first, changes[-1].end)

    # --- giving back ------------------------------------------------------------------------

    def expire(self, now: float, most_deliveries: int) -> list[RangeChange]:
        """End the locks whose time is over; returns the changes, which are in effect."""
        if now < self.wake_at:
            return []
        changes: list[RangeChange] = []
        self.wake_at = NEVER
        for here in self._ranges:
            if here.is_held:
                if here.until <= now:
                    changes.append(self._give_back(here, here.deliveries, most_deliveries))
                else:
                    self.wake_at = min(self.wake_at, here.until)
        return self._given_back(changes)

    def release(self, holder: Holder, most_deliveries: int) -> list[RangeChange]:
        """Take back a holder's records; their deliveries count. Returns the changes, in effect."""
        changes = [
            self._give_back(here, here.deliveries, most_deliveries)
            for here in self._ranges
            if here.is_held and here.holder == holder
        ]
        return self._given_back(changes)

    def give_back(
        self, holder: Holder, first: int, end: int, most_deliveries: int
    ) -> list[RangeChange]:
        """Take back a holder's records in [first, end) without counting a delivery."""
        first, end = max(first, self.start), min(end, self.end)
        if first >= end:
            return []
        changes: list[RangeChange] = []
        for at in self._ranges.carve(first, end):
            here = self._ranges[at]
            if here.is_held and here.holder == holder:
                changes.append(self._give_back(here, here.deliveries - 1, most_deliveries))
        self._ranges.merge(first, end)
        return self._given_back(changes)

    def _give_back(self, here: Range, deliveries: int, most_deliveries: int) -> RangeChange:
        state = _after(Acknowledge.RELEASE, deliveries, most_deliveries)
        self.acquired -= here.end - here.first
        here.state, here.deliveries, here.holder, here.until = state, deliveries, NOBODY, NEVER
        return RangeChange(here.first, here.end, state, deliveries)

    def _given_back(self, changes: list[RangeChange]) -> list[RangeChange]:
        if changes:
            self._free_from = min(self._free_from, changes[0].first)
            self._merge(changes)
            self._trim()
        return changes

    # --- the start --------------------------------------------------------------------------

    def move_start(self, offset: int) -> None:
        """Move the start: the partition no longer has records below this offset."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self._ranges.clear()
            self.start = self.end = self._free_from = offset
            self.acquired = 0
            return
        self._ranges.split(self._ranges.place(offset), offset)
        gone = self._ranges.place(offset)
        for here in self._ranges[:gone]:
            if here.state is _ACQUIRED:
                self.acquired -= here.end - here.first
        del self._ranges[:gone]
        self.start = offset
        self._free_from = max(self._free_from, offset)
        self._trim()

    # --- the log ----------------------------------------------------------------------------

    def apply(self, changes: Iterable[RangeChange]) -> None:
        """Apply changes of an earlier run: each record has the state of its last change."""
        for first, end, state, deliveries in changes:
            first = max(first, self.start)
            if first >= end:
                continue
            if end > self.end:
                self._extend(end)
            for at in self._ranges.carve(first, end):
                here = self._ranges[at]
                if here.state is _ACQUIRED:
                    self.acquired -= here.end - here.first
                here.state, here.deliveries, here.holder = state, deliveries, NOBODY
                here.until, here.pending = NEVER, False
            self._free_from = min(self._free_from, first)
            self._ranges.merge(first, end)
        self._trim()

    def dump(self, *, settled: bool) -> list[RangeChange]:
        """The records of the window that are not new, in their states after a restart.

        `settled`: pending changes count as durable; otherwise, they are left out.
        """
        found: list[RangeChange] = []
        for here in self._ranges:
            lost = here.state is _ACQUIRED or (here.pending and not settled)
            state = _AVAILABLE if lost else here.state
            if state is not _AVAILABLE or here.deliveries:
                found.append(RangeChange(here.first, here.end, state, here.deliveries))
        return joined(found)

    def _extend(self, end: int) -> None:
        """Extend the window to `end`."""
        self._ranges.extend_to(self.end, end)
        self._free_from = min(self._free_from, self.end)
        self.end = end

    def _trim(self) -> None:
        """Move the start past all finished records."""
        gone = 0
        for here in self._ranges:
            if here.pending or not here.state.is_final:
                break
            gone += 1
        if gone:
            self.start = self._ranges[gone - 1].end
            del self._ranges[:gone]
            self._free_from = max(self._free_from, self.start)


def _after(kind: Acknowledge, deliveries: int, most_deliveries: int) -> RecordState:
    """The state of a record after an acknowledgement and `deliveries` deliveries."""
    if kind is Acknowledge.ACCEPT:
        return _ACKNOWLEDGED
    if kind is Acknowledge.RENEW:
        return _ACQUIRED
    if kind is Acknowledge.RELEASE and deliveries < most_deliveries:
        return _AVAILABLE
    return _ARCHIVED


def _runs(batch: Acknowledgement) -> Iterator[tuple[int, int, Acknowledge]]:
    """Split a batch into ranges with one type each."""
    first, end, types = batch
    if not 0 <= first < end:
        raise BadAcknowledgementError("the batch has no records")
    if len(types) not in (1, end - first):
        raise BadAcknowledgementError("the batch has neither one type nor one for each record")
    for kind, run in groupby(types):
        try:
            known = Acknowledge(kind)
        except ValueError as e:
            raise BadAcknowledgementError(f"the type {kind} is not known") from e
        if len(types) == 1:
            yield first, end, known
            return
        size = sum(1 for _ in run)
        yield first, first + size, known
        first += size


def joined(parts: Iterable[Part]) -> list[Part]:
    """Merge neighbours that differ in their offsets only."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if last is not None and last.end == part.first and last[2:] == part[2:]:
            found[-1] = last._replace(end=part.end)
        else:
            found.append(part)
    return found
