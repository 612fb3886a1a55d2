"""Which ops a gateway sends to a broker, and when: one org never waits for another. Pure.

Each kind of op has a scheduler of its own. Within an org ops are sent in their order; an op that
may not be sent yet delays no other org's. Two things are bounded:

*Turns*, of ops that a broker serves at once. It reads the ops of a gateway in the order in which
they were sent. While several orgs send, each may therefore have only as much work under way as a
broker does in a few milliseconds (docs/adr/0071), and of the orgs that wait, the one that has had
the least work comes next (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). An op with
more work than that is sent when its org has nothing else under way; its org's next op waits until
the others have had as much.

*Memory*, which ops take at the broker from their arrival until their answer. What the broker parks
takes nothing else, for as long as it likes: an org may fill the memory of such a kind, but gives
its latest parked ops up when another org that is within its equal share has no room. Of the other
kinds, a part is kept free of large ops.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, NamedTuple, Protocol, TypeVar

from quafka_loop import clock
from quafka_mesh_ops.errors import OpTooLargeError
from quafka_mesh_ops.ops.base import AnyOp, OpKind


class Bounds(NamedTuple):
    """The bounds of one kind.

    Attributes:
        ops: unanswered ops of all orgs.
        size: their bytes, with the memory that they take once decoded (`weight`).
        largest: bytes of one op; a larger one is refused.
        share: units of work that an org may have under way while others send, too; 0: of ops that
            the broker parks.
        shares: the same for all orgs together: with more than a few, each may have less.
        cost: units of an op, besides those of its items, bytes and records.
    """

    ops: int
    size: int
    largest: int
    share: int = 0
    shares: int = 0
    cost: int = 0


BOUNDS = {
    OpKind.SMALL_OPS: Bounds(2_048, 72 << 20, 64 << 20, share=32, shares=64, cost=1),
    OpKind.FETCHES: Bounds(12_288, 96 << 20, 96 << 20),
    OpKind.RECORDS: Bounds(2_048, 176 << 20, 144 << 20, share=96, shares=320, cost=5),
    OpKind.GROUP_WAITS: Bounds(10_240, 96 << 20, 48 << 20),
}
"""Their sum stays below the limits of a broker (`gateway_session.py`), so a broker never closes a
connection because of what a gateway's clients do."""

LARGE = 1 << 20
"""Bytes above which an op may not use what is kept free: the difference of `size` and `largest`."""
UNIT_SECONDS = 25e-6
"""What a broker takes for a unit of work, about."""
_BYTES_PER_UNIT = 12_500
_RECORDS_PER_UNIT = 250
_MOST_FACTOR = 1_000.0
_LATEST_SECONDS = 2.0
_ALONE_SECONDS = 1.0
"""An org that has been the only one for this long may have more than a share under way."""
_ALONE_WORK = 4_000
"""Units of work of such an org: the first op of another one waits for a tenth of a second."""


class Schedulable(Protocol):
    """As much of a call as a scheduler looks at.

    Attributes:
        size: bytes, with the memory of the decoded op.
        op: the op itself.
        turn: units of work that it has under way, for the scheduler alone; 0: it takes no turn.
    """

    request_id: int
    org_id: int
    size: int
    op: AnyOp
    turn: int


C = TypeVar("C", bound=Schedulable)


def work_of(call: Schedulable) -> int:
    """Units that an op costs a broker, besides its kind's `cost`: for its items and its bytes, and
    for records that are packed."""
    op = call.op
    return op.parts + call.size // _BYTES_PER_UNIT + op.packed_records // _RECORDS_PER_UNIT


class _Least:
    """The least of the latest values: an org's own ops do not make it grow as they would a mean."""

    def __init__(self) -> None:
        self._now = self._before = 0.0
        self._until = 0.0

    def add(self, value: float) -> None:
        """Note a value, which is not 0."""
        now = clock.monotonic()
        if now >= self._until:
            self._before = self._now if now < self._until + _LATEST_SECONDS else value
            self._now = value
            self._until = now + _LATEST_SECONDS
        self._now = min(self._now, value)

    @property
    def least(self) -> float:
        """The value; 0 before the first one."""
        return min(self._before, self._now)


class _Org(Generic[C]):
    """What one org has sent and not been answered, and what waits.

    Attributes:
        ops, size, work: of the unanswered ops.
        parked: the unanswered ones of a kind that the broker parks, by request id.
        waiting: its ops that are not sent yet, by request id, in their order.
        begins: the virtual time at which its next op begins.
        factor: how much more work its ops were than they looked.
    """

    __slots__ = ("begins", "factor", "ops", "parked", "size", "waiting", "work")

    def __init__(self) -> None:
        self.ops = self.size = self.work = 0
        self.parked: dict[int, C] = {}
        self.waiting: OrderedDict[int, C] = OrderedDict()
        self.begins = 0
        self.factor = 1.0


class Scheduler(Generic[C]):
    """The ops of one kind: those that wait to be sent, and those that are unanswered.

    Attributes:
        bounds: of the kind.
        unanswered: the number of ops that are sent and unanswered.
        used: their bytes.
        waiting: the number of ops that wait.
        round_trip: seconds of the path to the broker, without queues.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.unanswered = self.used = self.waiting = 0
        self.round_trip = 0.0
        self._commits = _Least()
        self._orgs: dict[int, _Org[C]] = {}
        self._queues: dict[int, _Org[C]] = {}
        """The orgs with ops that wait."""
        self._ahead: set[int] = set()
        """Those without ops here that have had more work than others, or than it looked."""
        self._busy = 0
        """The number of orgs with unanswered ops that take turns."""
        self._now = 0
        """The virtual time: when the op that was sent last began."""
        self._last_org = 0
        self._several_until = 0.0

    # --- ops come and go --------------------------------------------------------------------

    def check(self, call: C) -> None:
        """Raise OpTooLargeError for an op that can never be sent."""
        if call.size > self.bounds.largest:
            largest = self.bounds.largest
            raise OpTooLargeError(f"an op of {call.size} bytes; at most {largest} are sent")

    def admits(self, call: C) -> bool:
        """Whether a call may be sent now. It overtakes none of its org."""
        if self._queues and call.size > LARGE and self.bounds.share:
            return False  # `pop_next` decides which of several has the room
        org = self._orgs.get(call.org_id)
        if org is None:
            return self._fits(call)
        return not org.waiting and self._fits(call) and self._has_turn(org, call)

    def wait(self, call: C) -> None:
        """Add a call as the last one of its org."""
        org = self._org_of(call)
        org.waiting[call.request_id] = call
        self._queues[call.org_id] = org
        self.waiting += 1

    def pop_next(self) -> C | None:
        """Remove and return the waiting call that may be sent now; None: none may be.

        Of several orgs, it is of the one that has had the least.
        """
        held = False
        for org in self._by_use():
            call = next(iter(org.waiting.values()))
            if not self._fits(call):
                held = bool(self.bounds.share)  # no large op takes the room that it waits for
            elif self._has_turn(org, call) and not (held and call.size > LARGE):
                self._dequeue(org, call)
                return call
        return None

    def displaced_by(self, call: C) -> list[C]:
        """The parked calls to be given up for a call of an org within its share, if it is to fit.

        They are the latest ones of the orgs that have the most. Empty: the call has to wait.
        """
        bounds, orgs = self.bounds, len(self._orgs) + (call.org_id not in self._orgs)
        asking = self._orgs.get(call.org_id) or _Org[C]()
        if (
            bounds.share
            or asking.waiting
            or asking.ops >= bounds.ops // orgs
            or asking.size + call.size > bounds.size // orgs
        ):
            return []
        ops, size = self.unanswered + 1 - bounds.ops, self.used + call.size - bounds.size
        ops_of = {org: org.ops for org in self._orgs.values()}
        size_of = {org: org.size for org in self._orgs.values()}
        latest = {org: reversed(org.parked.values()) for org in self._orgs.values()}
        found: list[C] = []
        while ops > 0 or size > 0:
            left = ops_of if ops > 0 else size_of
            most = max(left, key=left.__getitem__)
            parked = next(latest[most])
            found.append(parked)
            ops, size = ops - 1, size - parked.size
            ops_of[most] -= 1
            size_of[most] -= parked.size
        return found

    def remove(self, call: C) -> None:
        """Remove a call that waits, if it does: it is over."""
        org = self._orgs.get(call.org_id)
        if org is not None and call.request_id in org.waiting:
            self._dequeue(org, call)
            self._forget(call.org_id, org)

    def remove_all(self) -> list[C]:
        """Remove and return all calls that wait."""
        calls = [call for org in self._queues.values() for call in org.waiting.values()]
        for call in calls:
            self.remove(call)
        return calls

    def reserve(self, call: C) -> None:
        """Count a call that is being sent."""
        org = self._org_of(call)
        org.ops += 1
        org.size += call.size
        self.unanswered += 1
        self.used += call.size
        if not self.bounds.share:
            org.parked[call.request_id] = call
        elif not call.op.parks:
            self._take_turn(org, call)

    def release(self, call: C, seconds: float = 0.0) -> None:
        """Stop counting a call that was sent and is over. `seconds`: what it has cost the broker,
        if that is known."""
        org = self._orgs[call.org_id]
        org.ops -= 1
        org.size -= call.size
        self.unanswered -= 1
        self.used -= call.size
        if call.turn:
            self._end_turn(org, call, round(seconds / UNIT_SECONDS))
        elif not self.bounds.share:
            del org.parked[call.request_id]
        self._forget(call.org_id, org)

    def committed(self, seconds: float) -> None:
        """Note how long an answered op has waited for its commit, which is no work."""
        if seconds:
            self._commits.add(seconds)

    # --- memory -----------------------------------------------------------------------------

    def _fits(self, call: C) -> bool:
        bounds = self.bounds
        size = bounds.size if call.size <= LARGE or not bounds.share else bounds.largest
        return self.unanswered < bounds.ops and self.used + call.size <= size

    def _by_use(self) -> list[_Org[C]]:
        """The orgs that wait, the one that has had the least first."""
        if len(self._queues) == 1:
            return list(self._queues.values())
        if self.bounds.share:
            return sorted(self._queues.values(), key=lambda org: org.begins)
        return sorted(self._queues.values(), key=lambda org: org.size)

    # --- turns ------------------------------------------------------------------------------

    def _has_turn(self, org: _Org[C], call: C) -> bool:
        """Whether an org with ops here may have this one under way, too."""
        if not self.bounds.share or call.op.parks:
            return True
        if not self._are_several():
            return org.work <= _ALONE_WORK
        if org.begins > self._now + self.bounds.share and self._busy > bool(org.work):
            return False  # it is ahead, and others are at work
        return not org.work or org.work + self._work_of(org, call) <= self._share()

    def _share(self) -> int:
        """Units of work that an org may have under way: more on a long path, which holds some, and
        where commits take long."""
        orgs = max(1, self._busy)
        path = int((self.round_trip + self._commits.least) / UNIT_SECONDS)
        return min(self.bounds.share, self.bounds.shares // orgs) + path // orgs

    def _work_of(self, org: _Org[C], call: C) -> int:
        return int((self.bounds.cost + work_of(call)) * org.factor)

    def _are_several(self) -> bool:
        if self._several_until and self._several_until <= clock.monotonic():
            self._several_until = 0.0
        return bool(self._several_until)

    def _take_turn(self, org: _Org[C], call: C) -> None:
        if call.org_id != self._last_org:
            if self._last_org:
                self._several_until = clock.monotonic() + _ALONE_SECONDS
            self._last_org = call.org_id
        call.turn = self._work_of(org, call)
        self._busy += not org.work
        org.work += call.turn
        self._now = max(org.begins, self._now)
        org.begins = self._now + call.turn

    def _end_turn(self, org: _Org[C], call: C, work: int) -> None:
        org.work -= call.turn
        self._busy -= not org.work
        if work:
            org.begins += max(0, work - call.turn)
            factor = org.factor * (1 + work / call.turn) / 2  # half way to what it should have been
            org.factor = max(1.0, min(_MOST_FACTOR, factor))

    # --- orgs -------------------------------------------------------------------------------

    def _org_of(self, call: C) -> _Org[C]:
        org = self._orgs.get(call.org_id)
        if org is None:
            org = self._orgs[call.org_id] = _Org()
        elif self._ahead:
            self._ahead.discard(call.org_id)
        return org

    def _dequeue(self, org: _Org[C], call: C) -> None:
        del org.waiting[call.request_id]
        self.waiting -= 1
        if not org.waiting:
            del self._queues[call.org_id]

    def _forget(self, org_id: int, org: _Org[C]) -> None:
        """Forget an org that has nothing here, unless others do not know yet what it has had."""
        if org.ops or org.waiting:
            return
        several = self._are_several()
        if several and (org.begins > self._now or org.factor > 1):
            self._ahead.add(org_id)
            return
        del self._orgs[org_id]
        if self._ahead and not several:
            for each in self._ahead:
                del self._orgs[each]
            self._ahead.clear()
