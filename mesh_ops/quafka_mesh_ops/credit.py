"""What a gateway may have unanswered at a broker: ops and bytes, by kind of op.

Each kind waits for itself alone: small ops pass parked fetches, fetches pass produced records, and
members of groups that wait for each other keep nobody's heartbeat back. The sum of all kinds, each
with the largest op that it takes, stays below what the broker bears with (`server.py`), so that a
gateway is never closed for what its clients do.
"""

from __future__ import annotations

from collections import OrderedDict

from quafka_mesh_ops.errors import OpTooLargeError
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.groups import JoinGroup, SyncGroup
from quafka_mesh_ops.ops.records import FetchOps, ProduceOps
from quafka_mesh_ops.transport.broker_session import Call

SMALL_OPS, FETCHES, RECORDS, GROUP_WAITS = range(4)
MAX_OPS = (2_048, 12_288, 2_048, 10_240)
BUDGETS = (16 << 20, 96 << 20, 64 << 20, 96 << 20)
"""Bytes of ops that are sent and unanswered, with what they take once decoded (`weight`). A single
larger one goes alone."""
LARGEST = (96 << 20, 96 << 20, 144 << 20, 32 << 20)
"""Bytes of one op, counted in the same way; larger ones are refused. Joins are parked for as long
as a rebalance lasts, so none of them may hold its kind alone."""


def kind_of(op: AnyOp, lane: int | None) -> int:
    """Which of these an op is. Ops of the lanes are ordered, so they are of one kind."""
    if lane is not None or isinstance(op, ProduceOps):
        return RECORDS
    if isinstance(op, JoinGroup) or (isinstance(op, SyncGroup) and not op.assignments):
        return GROUP_WAITS  # a leader's assignments are what the others wait for: they pass
    return FETCHES if isinstance(op, FetchOps) else SMALL_OPS


class Credit:
    """The ops of one kind: those that wait, and how much is unanswered of those that were sent."""

    def __init__(self, most: int, budget: int, largest: int) -> None:
        self._most = most
        self.budget = budget
        self._largest = largest
        self.waiting: OrderedDict[int, Call] = OrderedDict()
        self.unanswered = 0
        self.used = 0

    def check(self, call: Call) -> None:
        """Raise OpTooLargeError for an op that is never sent."""
        if call.size > self._largest:
            raise OpTooLargeError(f"an op of {call.size} bytes; at most {self._largest} are sent")

    def next(self) -> Call | None:
        """Take the first that waits, if it may be sent now."""
        if not self.waiting or self.unanswered >= self._most:
            return None
        head = next(iter(self.waiting.values()))
        if self.used and self.used + head.size > self.budget:
            return None
        del self.waiting[head.request_id]
        return head

    def take(self, call: Call) -> None:
        """It is sent."""
        self.unanswered += 1
        self.used += call.size

    def give(self, call: Call) -> None:
        """It was sent, and its caller is gone."""
        self.unanswered -= 1
        self.used -= call.size
