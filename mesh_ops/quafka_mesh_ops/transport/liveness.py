"""Whether a gateway still lives, seen from the broker, to which it is to speak every second.

A gateway pings when it has nothing else to say (broker_session.py). One that has been silent for
as long as two pings is frozen, or cut off. One whose ops are waiting is asked much sooner: if its
process was killed, its host says so at once (ECONNREFUSED).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quafka_mesh_ops.transport.connection import Connection

SILENT_SECONDS = 2.0
NUDGE_SECONDS = 0.12
"""A little more than a gateway with ops in flight lets pass between two pings."""


class Liveness:
    """Watches one connection until `stop`; ends it when its peer has fallen silent.

    `is_busy`: whether ops of the peer are unanswered.
    """

    def __init__(self, connection: Connection, is_busy: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_busy = is_busy
        self._loop = asyncio.get_running_loop()
        self._heard = 0.0
        # Counted in looks, not seconds: while this process stood still, so did its ears.
        self._in_vain = 0
        self._timer = self._loop.call_later(NUDGE_SECONDS, self._look)

    def stop(self) -> None:
        """The connection is over."""
        self._timer.cancel()

    def _look(self) -> None:
        now, heard = self._loop.time(), self._connection.last_received
        again = now + NUDGE_SECONDS
        if heard > self._heard:
            self._heard = heard
            self._in_vain = 0
            if heard + NUDGE_SECONDS > now:
                again = heard + NUDGE_SECONDS
        else:
            self._in_vain += 1
        self._timer = self._loop.call_at(again, self._look)
        if self._in_vain == 1 and self._is_busy():
            self._connection.nudge()  # once: what is lost of it QUIC sends again
        elif self._in_vain * NUDGE_SECONDS >= SILENT_SECONDS:
            # Perhaps it is only we who hear nothing.
            self._connection.close(f"no sign of life for {SILENT_SECONDS:g} s")
