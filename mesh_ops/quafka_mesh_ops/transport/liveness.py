"""Detects dead gateways at the broker: a live gateway sends something every second.

A gateway pings when it has nothing else to send (broker_session.py). A gateway that has been silent
for the time of two pings is frozen or cut off. A silent gateway with unanswered ops is probed much
sooner: if its process was killed, its host answers at once (ECONNREFUSED).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quafka_mesh_ops.transport.connection import QuicSocketConnection
from quafka_mesh_ops.transport.silence import Silence

SILENT_SECONDS = 2.0
NUDGE_SECONDS = 0.12
"""A little more than the interval of pings of a gateway with ops in flight."""


class Liveness:
    """Watches one connection until `stop`; closes it when its peer is silent.

    `is_busy`: returns whether ops of the peer are unanswered.
    """

    def __init__(self, connection: QuicSocketConnection, is_busy: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_busy = is_busy
        self._loop = asyncio.get_running_loop()
        self._silence = Silence(NUDGE_SECONDS, self._loop.time())
        self._nudged = False
        self._timer = self._loop.call_later(NUDGE_SECONDS, self._look)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _look(self) -> None:
        now, heard = self._loop.time(), self._connection.last_received
        silent = self._silence.observe(now, heard)
        again = (heard if not silent and heard + NUDGE_SECONDS > now else now) + NUDGE_SECONDS
        self._timer = self._loop.call_at(again, self._look)
        if not silent:
            self._nudged = False
        elif not self._nudged and self._is_busy():
            self._nudged = True  # once: QUIC retransmits a lost PING
            self._connection.nudge()
        elif silent >= SILENT_SECONDS:
            # The path may be broken in one direction only, so the close is sent, too.
            self._connection.close(f"no sign of life for {SILENT_SECONDS:g} s")
