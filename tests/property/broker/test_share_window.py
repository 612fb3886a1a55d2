"""A share partition beside a model with one entry for each record, over restarts at any point."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quafka_broker.shares.states import (
    Acknowledge,
    Acknowledgement,
    BadAcknowledgementError,
    Holder,
    OffsetSpan,
    RangeChange,
    RecordState,
    RecordStateError,
)
from quafka_broker.shares.window import Window
from tests.support.suites import examples

MEMBERS = st.sampled_from(["a", "b", "c"])
SESSIONS = st.sampled_from([b"", b"one", b"two"])
MOST_DELIVERIES = 3
LOCK = 10.0
ROOM = 12
TYPES = [Acknowledge.ACCEPT, Acknowledge.RELEASE, Acknowledge.REJECT, Acknowledge.GAP]


@dataclass
class Log:
    """The journal: what is written, and how much of it is durable."""

    events: list[list[RangeChange]] = field(default_factory=list[list[RangeChange]])
    start: int = 0
    durable: int = 0


class ShareWindow(RuleBasedStateMachine):
    """One window, its journal, and what its members know."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.end = 0  # of the partition
        self.spans: list[OffsetSpan] = []
        self.window = Window(0)
        self.log = Log()
        self.unsettled: list[tuple[int, list[RangeChange]]] = []  # number of events after it
        self.begun: list[list[RangeChange]] = []  # acknowledgements of which more may be refused
        self.held: dict[int, tuple[Holder, float]] = {}
        self.in_doubt: dict[int, tuple[Holder, float]] = {}  # by `begun` acknowledgements
        self.accepted: set[int] = set()  # answered
        self.ended: set[int] = set()  # answered otherwise: never delivered again
        self.deliveries: dict[int, int] = {}  # by the consumers' own count
        self.hidden: set[int] = set()
        self.log_start = 0
        self.found: tuple[int, list[OffsetSpan]] = (0, [])

    # --- the partition ----------------------------------------------------------------------

    @rule(size=st.integers(1, 6), hidden=st.booleans(), gap=st.integers(0, 2))
    def produce(self, size: int, hidden: bool, gap: int) -> None:
        hidden = hidden and size == 1
        first = self.end + gap
        self.spans.append(OffsetSpan(first, first + size, size, hidden))
        self.hidden |= set(range(self.end, first))
        if hidden:
            self.hidden |= set(range(first, first + size))
        self.end = first + size

    @rule(step=st.integers(0, 3))
    def retention(self, step: int) -> None:
        offset = min(self.window.start + step, self.end)
        self.window.move_start(offset)
        self.log_start = max(self.log_start, offset)
        self.ended |= set(range(offset))
        for held in (self.held, self.in_doubt):
            for at in [at for at in held if at < offset]:
                del held[at]

    # --- members ----------------------------------------------------------------------------

    @rule()
    def read(self) -> None:
        """Batches are read from the log for a member; meanwhile anything may happen."""
        since = self.window.next_offset
        self.found = since, [span for span in self.spans if span.end > since]

    @rule(
        member=MEMBERS,
        session=SESSIONS,
        most=st.integers(1, 5),
        exact=st.booleans(),
        now=st.booleans(),
    )
    def acquire(self, member: str, session: bytes, most: int, exact: bool, now: bool) -> None:
        self.expire()
        if now:
            self.read()
        since, spans = self.found
        until = self.now + LOCK
        often = {
            at
            for each in self.window.ranges()
            for at in range(each.first, each.end)
            if each.deliveries >= MOST_DELIVERIES - 1
        }
        found = self.window.acquire(
            Holder(member, session),
            until,
            spans,
            most,
            since=since,
            room=ROOM,
            exact=exact,
            most_deliveries=MOST_DELIVERIES,
        )
        assert all(part.deliveries <= MOST_DELIVERIES for part in found)
        taken = [at for part in found for at in range(part.first, part.end)]
        if exact:
            assert len(taken) <= most
        assert self.window.in_flight <= ROOM
        assert len(set(taken)) == len(taken)
        assert len(taken) == 1 or not often & set(taken)
        for at in taken:
            assert at not in self.hidden | self.held.keys() | self.accepted | self.ended
            assert at not in self.in_doubt
            self.held[at] = Holder(member, session), until
            self.deliveries[at] = self.deliveries.get(at, 0) + 1

    @rule(
        member=MEMBERS,
        first=st.integers(0, 20),
        types=st.lists(st.sampled_from(TYPES), min_size=1, max_size=4),
        one=st.booleans(),
        more=st.booleans(),
    )
    def acknowledge(
        self, member: str, first: int, types: list[Acknowledge], one: bool, more: bool
    ) -> None:
        """`more`: the request has further acknowledgements, which may be refused."""
        self.expire()
        end = first + len(types)
        if one:
            types = types[:1] * len(types)
        batch = Acknowledgement(first, end, types[:1] if one else types)
        held = all(
            at in self.held and self.held[at][0].member == member
            for at in range(max(first, self.window.start), end)
        )
        before = self.window.dump(settled=True)
        try:
            changes = self.window.acknowledge(member, [batch], MOST_DELIVERIES)
        except RecordStateError:
            assert not held
            assert not self.window.start < self.window.end < end
            assert self.window.dump(settled=True) == before
            return
        except BadAcknowledgementError:
            assert self.window.start < self.window.end < end
            assert self.window.dump(settled=True) == before
            return
        assert held or end <= self.window.start
        for at in range(first, end):
            if at in self.held:
                self.in_doubt[at] = self.held.pop(at)
        if changes:
            self.begun.append(changes)
            if not more:
                self._complete(changes)

    @rule()
    def complete(self) -> None:
        """All acknowledgements of a request are possible: they wait for the log."""
        if self.begun:
            self._complete(self.begun[0])

    def _complete(self, changes: list[RangeChange]) -> None:
        self.begun.remove(changes)
        for at in _offsets(changes):
            self.in_doubt.pop(at, None)
        self.log.events.append(changes)
        self.unsettled.append((len(self.log.events), changes))

    @rule()
    def refuse_the_rest(self) -> None:
        """A later acknowledgement of a request is refused: none has happened."""
        if self.begun:
            changes = self.begun.pop(0)
            self.window.undo(changes)
            for at in _offsets(changes):
                if at in self.in_doubt:
                    self.held[at] = self.in_doubt.pop(at)

    @rule(member=MEMBERS, session=SESSIONS, undone=st.booleans())
    def renew(self, member: str, session: bytes, undone: bool) -> None:
        self.expire()
        mine = sorted(at for at, lock in self.held.items() if lock[0].member == member)
        for at in mine[:2]:
            batch = Acknowledgement(at, at + 1, [Acknowledge.RENEW])
            changes = self.window.acknowledge(member, [batch], MOST_DELIVERIES)
            assert [each.state for each in changes] == [RecordState.ACQUIRED]
            if undone:
                self.window.undo(changes)
            else:
                self.window.renew(changes, Holder(member, session), self.now + LOCK)
                self.held[at] = Holder(member, session), self.now + LOCK

    @rule(member=MEMBERS, session=SESSIONS)
    def leave(self, member: str, session: bytes) -> None:
        holder = Holder(member, session)
        changes = self.window.release(holder, MOST_DELIVERIES)
        mine = {at for at, lock in self.held.items() if lock[0] == holder}
        assert set(_offsets(changes)) == mine
        self._given_back(changes)

    @rule(member=MEMBERS, session=SESSIONS, first=st.integers(0, 20), size=st.integers(1, 9))
    def give_back(self, member: str, session: bytes, first: int, size: int) -> None:
        holder = Holder(member, session)
        changes = self.window.give_back(holder, first, first + size, MOST_DELIVERIES)
        for at in _offsets(changes):
            assert first <= at < first + size
            assert self.held[at][0] == holder
            self.deliveries[at] -= 1
        self._given_back(changes)

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        changes = self.window.expire(self.now, MOST_DELIVERIES)
        due = {at for at, lock in self.held.items() if lock[1] <= self.now}
        assert set(_offsets(changes)) == due
        self._given_back(changes)

    def _given_back(self, changes: list[RangeChange]) -> None:
        if changes:
            self.log.events.append(changes)
        for each in changes:
            for at in range(each.first, each.end):
                del self.held[at]
            if each.state is RecordState.ARCHIVED:
                assert each.deliveries >= MOST_DELIVERIES

    # --- the log ----------------------------------------------------------------------------

    @rule(keep=st.integers(0, 3))
    def commit(self, keep: int) -> None:
        """All but the last events become durable, and those who wait for them are answered."""
        self.log.durable = max(self.log.durable, len(self.log.events) - keep)
        while self.unsettled and self.unsettled[0][0] <= self.log.durable:
            _, changes = self.unsettled.pop(0)
            self.window.settle(changes)
            self._answered(changes)

    def _answered(self, changes: list[RangeChange]) -> None:
        for each in changes:
            its = set(range(each.first, each.end))
            if each.state is RecordState.ACKNOWLEDGED:
                self.accepted |= its
            elif each.state is RecordState.ARCHIVED:
                self.ended |= its

    @rule()
    def refuse(self) -> None:
        """The log takes no events: nothing that waits has happened."""
        if self.log.durable == len(self.log.events):
            return
        kept = self.log.events[self.log.durable :]
        waiting = [changes for _, changes in self.unsettled]
        self.log.events[self.log.durable :] = [each for each in kept if each not in waiting]
        for changes in waiting:
            self.window.revert(changes)
        self.unsettled.clear()

    @rule(copied=st.booleans())
    def restart(self, copied: bool) -> None:
        """Replay the log from a point on; what was held is lost, what was answered is not."""
        since = 0
        window = Window(self.log.start)
        if copied:  # a checkpoint's copy, which may be newer than the events that follow it
            since = max(0, self.log.durable - 2)
            window = Window(self.window.start)
            window.apply(self.window.dump(settled=False))
        for changes in self.log.events[since : self.log.durable]:
            window.apply(changes)
        window.move_start(self.log_start)
        del self.log.events[self.log.durable :]
        if copied:  # and all events before the restart are freed
            self.log.start = window.start
            self.log.events = [window.dump(settled=True)]
            self.log.durable = 1
        self.window = window
        self.held.clear()
        self.in_doubt.clear()
        self.begun.clear()
        self.unsettled.clear()
        self.ended |= set(range(self.log.start)) - self.accepted

    # --- what must hold ---------------------------------------------------------------------

    @invariant()
    def ranges_are_whole(self) -> None:
        ranges = list(self.window.ranges())
        assert [each.first for each in ranges][:1] == ([self.window.start] if ranges else [])
        assert all(a.end == b.first for a, b in pairwise(ranges))
        assert all(each.first < each.end for each in ranges)
        assert not any(b.continues(a) for a, b in pairwise(ranges))
        assert (ranges[-1].end if ranges else self.window.start) == self.window.end
        held = {
            at: (each.holder, each.until)
            for each in ranges if each.is_held for at in range(each.first, each.end)
        }  # fmt: skip
        assert held == self.held
        assert self.window.acquired == len(held)
        free = [each.first for each in ranges if each.is_free]
        assert self.window.next_offset == (free[0] if free else self.window.end)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Below the start everything was dealt with; a poison record ends."""
        for at in range(self.window.start):
            poison = self.deliveries.get(at, 0) >= MOST_DELIVERIES
            changed = any(each.first <= at < each.end for some in self.log.events for each in some)
            assert at in self.accepted | self.ended | self.hidden or poison or changed


def _offsets(changes: list[RangeChange]) -> list[int]:
    return [at for each in changes for at in range(each.first, each.end)]


TestShareWindow = ShareWindow.TestCase
TestShareWindow.settings = examples(150, stateful_step_count=40)


def test_a_batch_that_ends_past_the_acquired_records_is_bad_whatever_is_in_it() -> None:
    state = ShareWindow()
    state.produce(gap=0, hidden=False, size=3)
    state.retention(step=3)
    state.produce(gap=2, hidden=False, size=6)
    state.acquire(exact=True, member="a", session=b"", most=1, now=True)
    types = [Acknowledge.ACCEPT, Acknowledge.RELEASE]
    state.acknowledge(first=10, member="a", one=False, types=types, more=False)
    state.teardown()
