"""Ops for which nobody waits in a hurry leave together, with the next op to the same broker.

An op alone costs both processes several times as much as one of many in a packet: turns of the
event loop, packets, acknowledgements and timers are per packet. Members of groups send a heartbeat
every three seconds and do not wait for the answer.
"""

from __future__ import annotations

import asyncio
from functools import partial

from quafka_gateway.cluster.parked_time import add_parked
from quafka_telemetry.eager_task import DirectFuture
from quafka_telemetry.wakeups import Wakeups

HOLD_SECONDS = 0.1
"""How long an op is held at most. A rebalance is announced so much later."""
_MOST = 16
"""Ops that leave at once: more in a packet save little."""


class HeldOps:
    """The ops that are held for one broker."""

    def __init__(self) -> None:
        self.waiting: list[DirectFuture[None]] = []
        self._wakeups = Wakeups()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Wait for other ops, up to HOLD_SECONDS, which count as parked."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        released: DirectFuture[None] = DirectFuture(loop=loop)
        self.waiting.append(released)
        if len(self.waiting) >= _MOST:
            self.release()
        elif self._timer is None:  # it stays when ops are released earlier: later ones leave sooner
            self._timer = loop.call_later(HOLD_SECONDS, self._time_is_over)
        await released
        add_parked(loop.time() - began)

    def release(self) -> None:
        """Let all leave, in their order."""
        waiting, self.waiting = self.waiting, []
        self._wakeups.wake(partial(_release, each) for each in waiting)

    def _time_is_over(self) -> None:
        self._timer = None
        self.release()


def _release(held: DirectFuture[None]) -> None:
    if not held.done():  # cancelled
        held.set_result(None)
