"""Bounds on the ops, and their bytes, that a gateway has unanswered at a broker, by kind of op.

Each kind waits for itself alone: small ops pass parked fetches, fetches pass produced records, and
members of groups that wait for each other delay no heartbeat. The sum of all kinds, each with the
largest op that it accepts, stays below the limits of the broker (`gateway_session.py`), so a
broker never closes a connection because of what the gateway's clients do.

Ops that wait are sent org by org in turn, so an org with thousands of them delays the first op of
another org by one op. The broker reads ops in the order in which they were sent: while several orgs
produce, each may therefore have only as much record work under way as a broker does in a few
milliseconds (docs/adr/0071).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from quafka_loop import clock
from quafka_mesh_ops.broker_session import Call
from quafka_mesh_ops.errors import OpTooLargeError

MAX_OPS = (2_048, 12_288, 2_048, 10_240)
"""Indexed by CreditKind, as are the tables below."""
BUDGETS = (16 << 20, 96 << 20, 64 << 20, 96 << 20)
"""Bytes of ops that are sent and unanswered, with the memory that they take once decoded
(`weight`). A single op above the budget is sent alone."""
LARGEST = (96 << 20, 96 << 20, 144 << 20, 32 << 20)
"""Bytes of one op, counted in the same way; larger ones are refused. Joins are parked for as long
as a rebalance lasts, so none of them may use the budget of its kind alone."""

SHARE = 96
"""Work that an org may have under way while others produce, too. A broker takes about 25 µs for a
unit, so an op of another org waits for some 2.5 ms of it."""
_OP_WORK = 5
_BYTES_PER_WORK = 12_500
_ALONE_SECONDS = 1.0
"""An org that has been the only one for this long is not limited to a share."""


def work_of(call: Call) -> int:
    """What an op with records costs a broker: for itself, for each partition, and for its bytes."""
    return _OP_WORK + call.op.parts + call.size // _BYTES_PER_WORK


class Shares:
    """What each org has under way, while there are several."""

    def __init__(self) -> None:
        self._work: dict[int, int] = {}
        self._last_org = 0
        self._several_until = 0.0

    def add(self, call: Call) -> None:
        """Count an op that is being sent."""
        org = call.org_id
        if org != self._last_org:
            if self._last_org:
                self._several_until = clock.monotonic() + _ALONE_SECONDS
            self._last_org = org
        self._work[org] = self._work.get(org, 0) + work_of(call)

    def remove(self, call: Call) -> None:
        """Stop counting an op."""
        left = self._work[call.org_id] - work_of(call)
        if left:
            self._work[call.org_id] = left
        else:
            del self._work[call.org_id]

    def has_room(self, call: Call) -> bool:
        """Whether the call's org may have it under way, too. One op is always allowed."""
        used = self._work.get(call.org_id)
        if used is None or used + work_of(call) <= SHARE:
            return True
        if self._several_until and self._several_until <= clock.monotonic():
            self._several_until = 0.0
        return not self._several_until


class WaitingCalls:
    """Calls that wait to be sent: first come, first served within an org, and orgs in turn."""

    def __init__(self) -> None:
        self._orgs: OrderedDict[int, OrderedDict[int, Call]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, call: Call) -> None:
        """Add a call as the last one of its org."""
        its = self._orgs.get(call.org_id)
        if its is None:
            its = self._orgs[call.org_id] = OrderedDict()
        its[call.request_id] = call
        self._count += 1

    def has(self, org: int) -> bool:
        """Whether a call of this org waits."""
        return org in self._orgs

    def firsts(self) -> Iterator[Call]:
        """The first call of each org, in the order of their turns."""
        for its in self._orgs.values():
            yield next(iter(its.values()))

    def take(self, call: Call) -> None:
        """Remove the first call of an org, whose next turn comes after those of the others."""
        self._orgs.move_to_end(call.org_id)
        self.remove(call)

    def remove(self, call: Call) -> None:
        """Remove a call, if it waits."""
        its = self._orgs.get(call.org_id)
        if its is not None and its.pop(call.request_id, None) is not None:
            self._count -= 1
            if not its:
                del self._orgs[call.org_id]

    def remove_all(self) -> list[Call]:
        """Remove and return all calls."""
        calls = [call for its in self._orgs.values() for call in its.values()]
        self._orgs.clear()
        self._count = 0
        return calls


class Credit:
    """The ops of one kind: those that wait to be sent, and the sum of those unanswered."""

    def __init__(self, most: int, budget: int, largest: int, *, shared: bool = False) -> None:
        """`shared`: the orgs have a share of the broker's work each."""
        self._most = most
        self.budget = budget
        self._largest = largest
        self._shares = Shares() if shared else None
        self.waiting = WaitingCalls()
        self.unanswered = 0
        self.used = 0

    def check(self, call: Call) -> None:
        """Raise OpTooLargeError for an op that can never be sent."""
        if call.size > self._largest:
            raise OpTooLargeError(f"an op of {call.size} bytes; at most {self._largest} are sent")

    def admits(self, call: Call) -> bool:
        """Whether a call may be sent now: it fits the bounds, and overtakes none that also fits."""
        if self.waiting:
            if self.waiting.has(call.org_id):
                return False
            if any(map(self._has_room, self.waiting.firsts())):
                return False
        return self._has_room(call) and self._fits(call)

    def pop_next(self) -> Call | None:
        """Remove and return the waiting call whose turn it is, if it may be sent now."""
        call = next(filter(self._has_room, self.waiting.firsts()), None)
        if call is None or not self._fits(call):
            return None
        self.waiting.take(call)
        return call

    def _has_room(self, call: Call) -> bool:
        return self._shares is None or self._shares.has_room(call)

    def _fits(self, call: Call) -> bool:
        if self.unanswered >= self._most:
            return False
        return not self.used or self.used + call.size <= self.budget

    def reserve(self, call: Call) -> None:
        """Count a call that is being sent."""
        self.unanswered += 1
        self.used += call.size
        if self._shares is not None:
            self._shares.add(call)

    def release(self, call: Call) -> None:
        """Stop counting a call that was sent and is over."""
        self.unanswered -= 1
        self.used -= call.size
        if self._shares is not None:
            self._shares.remove(call)
