"""The time of one event loop, shared between parties that all have more to do than there is time.

In each turn of the loop a party may use a quantum. What it has beyond waits, in the order of its
arrival; in the next turns every party that waits has a quantum, so the work of one party delays
another by a quantum, however much it is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from time import perf_counter

QUANTUM_SECONDS = 0.001
_SHORTEST = 0.0002
"""Of a quantum where many parties wait: their quanta together are a turn."""

Work = Callable[[], None]


class FairTurns:
    """Decides when work runs. For one event loop."""

    def __init__(self) -> None:
        self._used: dict[Hashable, float] = {}  # seconds in this turn
        self._waiting: OrderedDict[Hashable, deque[Work]] = OrderedDict()
        self._scheduled = False
        self.deferred = 0
        """How often work had to wait for a later turn."""

    def run(self, party: Hashable, work: Work) -> bool:
        """Run work now if the party has time left in this turn, otherwise in a later one.

        Returns whether it has run. It must not raise.
        """
        if party in self._waiting or self._used.get(party, 0.0) >= QUANTUM_SECONDS:
            self.defer(party, work)
            return False
        began = perf_counter()
        work()
        self.spent(party, perf_counter() - began)
        return True

    def defer(self, party: Hashable, work: Work) -> None:
        """Run work in the party's turn."""
        self.deferred += 1
        self._waiting.setdefault(party, deque()).append(work)
        self._schedule()

    def spent(self, party: Hashable, seconds: float) -> None:
        """Count time that a party has used in this turn."""
        self._used[party] = self._used.get(party, 0.0) + seconds
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn has begun: each party that waits has its quantum."""
        self._scheduled = False
        self._used.clear()
        waiting = self._waiting
        parties = len(waiting)
        if not parties:
            return
        quantum = max(_SHORTEST, QUANTUM_SECONDS / parties)
        for _ in range(parties):
            party, line = next(iter(waiting.items()))
            began = now = perf_counter()
            while line and now - began < quantum:
                line.popleft()()
                now = perf_counter()
            self._used[party] = now - began
            if line:
                waiting.move_to_end(party)
            else:
                del waiting[party]
        self._schedule()
