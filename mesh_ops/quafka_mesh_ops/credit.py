"""Bounds on the ops, and their bytes, that a gateway has unanswered at a broker, by kind of op.

Each kind waits for itself alone: small ops pass parked fetches, fetches pass produced records, and
members of groups that wait for each other delay no heartbeat. The sum of all kinds, each with the
largest op that it accepts, stays below the limits of the broker (`gateway_session.py`), so a
broker never closes a connection because of what the gateway's clients do.

Ops that wait are sent org by org in turn, so an org with thousands of them delays the first op of
another org by one op.
"""

from __future__ import annotations

from collections import OrderedDict

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

    def first(self) -> Call:
        """The call whose turn it is. There must be one."""
        return next(iter(next(iter(self._orgs.values())).values()))

    def take(self) -> Call:
        """Remove and return the call whose turn it is; next is another org's turn."""
        call = self.first()
        self._orgs.move_to_end(call.org_id)
        self.remove(call)
        return call

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

    def __init__(self, most: int, budget: int, largest: int) -> None:
        self._most = most
        self.budget = budget
        self._largest = largest
        self.waiting = WaitingCalls()
        self.unanswered = 0
        self.used = 0

    def check(self, call: Call) -> None:
        """Raise OpTooLargeError for an op that can never be sent."""
        if call.size > self._largest:
            raise OpTooLargeError(f"an op of {call.size} bytes; at most {self._largest} are sent")

    def admits(self, call: Call) -> bool:
        """Whether a call may be sent now: no earlier one waits, and it fits the bounds."""
        return not self.waiting and self._fits(call)

    def pop_next(self) -> Call | None:
        """Remove and return the waiting call whose turn it is, if it may be sent now."""
        if not self.waiting or not self._fits(self.waiting.first()):
            return None
        return self.waiting.take()

    def _fits(self, call: Call) -> bool:
        if self.unanswered >= self._most:
            return False
        return not self.used or self.used + call.size <= self.budget

    def reserve(self, call: Call) -> None:
        """Count a call that is being sent."""
        self.unanswered += 1
        self.used += call.size

    def release(self, call: Call) -> None:
        """Stop counting a call that was sent and is over."""
        self.unanswered -= 1
        self.used -= call.size
