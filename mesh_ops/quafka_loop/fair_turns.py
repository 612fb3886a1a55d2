"""Shares the time of one event loop between parties that have more work than there is time.

In each turn of the loop a party may use a quantum. Its further work waits, in the order of arrival.
At the end of the turn every waiting party has a quantum, one after the other, so the work of one
party delays another by a quantum, however much work it is.

Waiting work runs after all ready sockets are read and their output is sent: data that arrives
meanwhile is read before the next quantum.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable
from functools import partial
from typing import Final

from quafka_loop import clock
from quafka_loop.turn_end import turn_end

QUANTUM_SECONDS = 0.001
_SHORTEST = 0.0002
"""The least time of a waiting party in each turn, however many wait and whatever it has used."""
PIECE_SECONDS = QUANTUM_SECONDS / 4
"""How long one piece of work should take at most while parties share the turns."""

Work = Callable[[], None]
_NOBODY: Final = object()


class FairTurns:
    """Decides when work runs. For one event loop.

    Attributes:
        shared: whether there are several parties; otherwise all work runs at once.
        deferred: how often work had to wait for its party's turn.
    """

    def __init__(self) -> None:
        self.shared = False
        self.deferred = 0
        self._used: dict[Hashable, float] = {}  # seconds in this turn
        self._waiting: OrderedDict[Hashable, deque[Work]] = OrderedDict()
        self._scheduled = False
        self._running: Hashable = _NOBODY
        self._until = 0.0  # the end of the quantum of the party that runs

    @property
    def waiting(self) -> Container[Hashable]:
        """The parties with waiting work: a view that stays current."""
        return self._waiting

    def run(self, party: Hashable, work: Work) -> bool:
        """Run work now if the party has time left in this turn, otherwise in its next quantum.

        Returns whether it has run. It must not raise.
        """
        if not self.shared and not self._waiting:
            work()
            return True
        now = clock.perf_counter()
        if party == self._running:  # a part of what runs
            if now < self._until:
                work()
                return True
        elif party not in self._waiting:
            left = QUANTUM_SECONDS - self._used.get(party, 0.0)
            if left > 0:
                self._run(party, work, now, left)
                return True
        self.defer(party, work)
        return False

    def defer(self, party: Hashable, work: Work) -> None:
        """Run work in a quantum of the party, after its waiting work."""
        self.deferred += 1
        self._waiting.setdefault(party, deque()).append(work)
        self._schedule()

    def _run(self, party: Hashable, work: Work, began: float, seconds: float) -> None:
        outer = self._running, self._until
        self._running, self._until = party, began + seconds
        try:
            work()
        finally:
            self._running, self._until = outer
            self._used[party] = self._used.get(party, 0.0) + clock.perf_counter() - began
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            turn_end(asyncio.get_running_loop()).call_last(self._end_turn)

    def _end_turn(self) -> None:
        """Give each waiting party the unused rest of its quantum in this turn."""
        self._scheduled = False
        used, self._used = self._used, {}
        parties = len(self._waiting)
        if not parties:
            return
        for _ in range(parties):
            party, line = next(iter(self._waiting.items()))
            left = QUANTUM_SECONDS / parties - used.get(party, 0.0)
            quantum = max(_SHORTEST, left)
            self._run(party, partial(self._work_off, line), clock.perf_counter(), quantum)
            if line:
                self._waiting.move_to_end(party)
            else:
                del self._waiting[party]
        self._used.clear()
        if self._waiting:
            self._schedule()

    def _work_off(self, line: deque[Work]) -> None:
        while line:
            line.popleft()()
            if clock.perf_counter() >= self._until:
                break
