"""Leases: gateways answer fetches from memory, and changes wait until the gateways know of them.

A gateway that holds a lease may serve the records that it has read without another request to the
broker. So before a topic is deleted or a log start moves, every holder in its org must have
confirmed the change, or its lease must have expired: the change itself waits. For another org's
change, a holder sees only that the serial has moved. docs/adr has the proof that no stale byte is
served.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp, LeaseChange

LEASE_SECONDS = 2.0
_PARKED_PART = 4  # of a lease, so that a holder that renews it always has one
_REMEMBERED = 1_000  # changes, for holders whose lease has expired meanwhile


Changes = Mapping[int, Collection[LeaseChange]]
"""Changes by org."""


@dataclass(slots=True, eq=False)
class _Holder:
    """A gateway that may serve from memory until `until` (loop time).

    `heard`: the serial of the last change that it has confirmed.
    """

    until: float
    heard: int
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Leases:
    """The holders of leases, and the changes that wait for them."""

    def __init__(self, seconds: float = LEASE_SECONDS) -> None:
        self._seconds = seconds
        self._incarnation = os.urandom(8)
        self._holders: dict[tuple[int, str, bytes], _Holder] = {}
        self._serial = 0
        self._changes: deque[tuple[int, Changes]] = deque(maxlen=_REMEMBERED)
        self._under_way = 0
        self._version = 0
        self._progress = asyncio.Event()
        self._others_until = 0.0
        self._draining = False

    def wait_for_predecessor(self) -> None:
        """Make changes wait for the length of a lease: the previous run may have granted leases."""
        self._others_until = asyncio.get_running_loop().time() + self._seconds

    # --- for holders ------------------------------------------------------------------------

    async def hold(self, org: int, peer: str, op: HoldLease) -> HoldLeaseResp:
        """Grant or extend a lease. Parked until there is news, or the lease must be renewed."""
        now = asyncio.get_running_loop().time()
        heard = min(op.heard, self._serial) if op.incarnation == self._incarnation else -1
        self._drop_ended(now)
        holder = self._holders.get((org, peer, op.holder))
        if holder is None:
            # It serves nothing from memory until it has this answer, which includes all changes.
            holder = self._holders[org, peer, op.holder] = _Holder(
                now + self._seconds, self._serial
            )
        elif heard == self._serial:
            holder.until = now + self._seconds
            holder.heard = heard
            self._progress.set()
            if not self._draining:
                await self._wait_for_news(holder)
        else:
            # Not extended: a holder that never confirms must not delay changes.
            holder.heard = heard
            return self._answer(org, heard, 0.0)
        return self._answer(org, heard, self._seconds)

    def drain(self) -> None:
        """Answer the parked requests, and park no more."""
        self._draining = True
        for holder in self._holders.values():
            holder.news.set()

    async def _wait_for_news(self, holder: _Holder) -> None:
        holder.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds / _PARKED_PART):
                await holder.news.wait()

    def _answer(self, org: int, heard: int, valid: float) -> HoldLeaseResp:
        oldest = self._changes[0][0] if self._changes else self._serial + 1
        forget = heard < oldest - 1
        changes = [
            change
            for serial, some in self._changes
            if serial > heard
            for change in some.get(org, ())
        ]
        return HoldLeaseResp(
            self._incarnation,
            self._serial,
            round(valid * 1000),
            forget,
            [] if forget else changes,
        )

    def _drop_ended(self, now: float) -> None:
        for key in [key for key, holder in self._holders.items() if holder.until <= now]:
            del self._holders[key]

    # --- for changes ------------------------------------------------------------------------

    @asynccontextmanager
    async def changing(self, changes: Changes) -> AsyncGenerator[None]:
        """Guard a change of these partitions: no gateway serves deleted records from memory.

        Entering waits for the holders, for the length of a lease at most.
        """
        self._serial += 1
        self._under_way += 1
        self._version += 1
        self._changes.append((self._serial, changes))
        for holder in self._holders.values():
            holder.news.set()
        try:
            await self._all_heard(changes, self._serial)
            yield
        finally:
            self._under_way -= 1
            self._version += 1

    async def _all_heard(self, changes: Changes, serial: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ends = [
                holder.until
                for (whose, _, _), holder in self._holders.items()
                if whose in changes and holder.heard < serial
            ]
            until = max([self._others_until, *ends])
            if until <= loop.time():
                return
            self._progress.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._progress.wait()

    # --- for reads --------------------------------------------------------------------------

    def stamp(self) -> int | None:
        """A stamp for `unchanged_since`, taken before a read; None while a change is under way."""
        return None if self._under_way else self._version

    def unchanged_since(self, stamp: int | None) -> bool:
        """Whether a gateway may keep, under a lease, records read since the stamp."""
        return stamp is not None and stamp == self._version
