"""The gateway's lease: the broker's word that what was read may be served again.

While it is valid, nothing that was learned under it has changed without this gateway having been
told (`quafka_broker.leases`). It is asked for only while it is of use.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from quafka_gateway.cluster.broker_link import UnavailableError
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.ops.leases import Change, HoldLease, HoldLeaseResp

_UNUSED_SECONDS = 5.0
_RETRY_SECONDS = 0.5
_PACE_SECONDS = 0.02  # a broker that drains answers at once


def boot_clock() -> float:
    """Seconds, also those that the machine was suspended for."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ReadLease:
    """Holds the lease while it is used, and hands on what the broker says has changed."""

    def __init__(
        self,
        ask: Callable[[HoldLease], Awaitable[HoldLeaseResp]],
        on_changes: Callable[[list[Change]], None],
        on_forget: Callable[[], None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._ask = ask
        self._on_changes = on_changes
        self._on_forget = on_forget
        self._clock = clock
        self._holder = os.urandom(16)
        self._incarnation = b""
        self._heard = -1
        self._until = 0.0
        self._used = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def valid(self) -> bool:
        """Whether what is known may be served at this moment."""
        return self._clock() < self._until

    def use(self) -> None:
        """Hold it for the next seconds. It becomes valid a moment later."""
        self._used = self._clock()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Ask no more."""
        self._until = 0.0
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _keep(self) -> None:
        while self._clock() - self._used < _UNUSED_SECONDS:
            asked = self._clock()
            try:
                answer = await self._ask(HoldLease(self._holder, self._incarnation, self._heard))
            except (UnavailableError, OpFailedError):
                # Not invalid yet: the broker waits for us for as long as it said.
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._hear(answer)
            self._until = asked + answer.valid_ms / 1000
            if answer.valid_ms:
                await asyncio.sleep(max(0.0, asked + _PACE_SECONDS - self._clock()))

    def _hear(self, answer: HoldLeaseResp) -> None:
        if answer.forget or answer.incarnation != self._incarnation:
            self._on_forget()
        elif answer.changes:
            self._on_changes(answer.changes)
        self._incarnation = answer.incarnation
        self._heard = answer.serial
