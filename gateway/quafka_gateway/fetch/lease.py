"""The gateway's lease: the broker's promise that what the gateway has read may be served again.

While the lease is valid, the broker changes nothing that the gateway has read under it before the
gateway has heard of the change (`quafka_broker.leases`). The gateway holds the lease only while
fetches use it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.fetch.cache import FetchCache
from quafka_loop import clock
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp

_UNUSED_SECONDS = 5.0
_RETRY_SECONDS = 0.5
_PACE_SECONDS = 0.02  # a broker that drains answers at once


class LeaseGrantor(Protocol):
    """The broker that grants the lease."""

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        """Confirm the last answer. The broker answers with changes, or to prolong the lease."""
        ...


class ReadLease:
    """Holds the lease while fetches use it, and drops from the cache what the broker changes."""

    def __init__(
        self,
        broker: LeaseGrantor,
        cache: FetchCache,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.generation = 0
        """How many times the broker has changed something. A read that began in an earlier
        generation is neither kept nor shared."""
        self._broker = broker
        self._cache = cache
        self._now = now or clock.since_boot
        self._holder = os.urandom(16)
        self._incarnation = b""
        self._serial = -1
        self._until = 0.0
        self._used = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def valid(self) -> bool:
        """Whether the cache may be served at this moment."""
        return self._now() < self._until

    def use(self) -> None:
        """Hold the lease for the next seconds. It becomes valid with the broker's answer."""
        self._used = self._now()
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop holding the lease."""
        self._until = 0.0
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def _keep(self) -> None:
        while self._now() - self._used < _UNUSED_SECONDS:
            asked = self._now()
            op = HoldLease(self._holder, self._incarnation, self._serial)
            try:
                answer = await self._broker.hold_lease(op)
            except BrokerUnavailableError:
                # The lease stays valid until its end: the broker changes nothing before that.
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._apply(answer)
            self._until = asked + answer.valid_ms / 1000
            if answer.valid_ms:
                await asyncio.sleep(max(0.0, asked + _PACE_SECONDS - self._now()))

    def _apply(self, answer: HoldLeaseResp) -> None:
        if answer.forget or answer.incarnation != self._incarnation:
            self.generation += 1
            self._cache.clear()
        elif answer.changes:
            self.generation += 1
            for change in answer.changes:
                self._cache.drop(change.topic, change.topic_id, change.partition)
        self._incarnation = answer.incarnation
        self._serial = answer.serial
