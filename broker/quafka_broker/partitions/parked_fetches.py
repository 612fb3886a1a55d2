"""Waits of parked fetches: a future and a deadline for each, around the table in `purgatory`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Set
from functools import partial
from typing import Self

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.purgatory import ParkedFetch, Purgatory
from quafka_loop.deadlines import Deadline, Deadlines
from quafka_loop.eager_task import DirectFuture
from quafka_loop.wakeups import Wakeups

_TICK = 0.005
"""Seconds by which a wait may exceed the one that the client requested."""


class ParkedFetches:
    """Wakes parked fetches when one of their partitions changes, or the broker drains."""

    def __init__(self) -> None:
        self._purgatory: Purgatory[WaitingFetch] = Purgatory()
        self._wakeups = Wakeups()
        self._removals = Wakeups()
        self._deadlines: Deadlines | None = None

    def __len__(self) -> int:
        """The number of parked fetches."""
        return self._purgatory.fetches

    @property
    def partitions(self) -> int:
        """The number of partitions that fetches wait for."""
        return len(self._purgatory)

    def park(self, partitions: Collection[PartitionId], deadline: float) -> WaitingFetch:
        """A context manager that parks a fetch until loop time `deadline`."""
        return WaitingFetch(self, partitions, deadline)

    def wake(self, partitions: Iterable[PartitionId]) -> None:
        """Wake the fetches of partitions that have grown, have a new log start or are deleted.

        They continue within the call for a slice, the rest in later turns of the loop.
        """
        woken = self._purgatory.mark_changed(partitions)
        if woken:
            self._wakeups.wake(fetch.wake for fetch in woken)

    def waits_for(self, partition: PartitionId) -> bool:
        """Whether a fetch is parked for this partition."""
        return partition in self._purgatory

    def drain(self) -> None:
        """End all waits, including those of future fetches."""
        self._wakeups.wake(fetch.wake for fetch in self._purgatory.drain())

    def wake_one(self, fetch: WaitingFetch) -> None:
        """Wake one fetch, as `wake` does: a fetch that wakes another does not call it."""
        self._wakeups.wake((fetch.wake,))

    def add(self, fetch: WaitingFetch) -> Deadline:
        """Park a fetch; returns its deadline."""
        self._purgatory.add(fetch)
        if self._deadlines is None:
            self._deadlines = Deadlines(asyncio.get_running_loop(), _TICK)
        return self._deadlines.add(fetch.deadline, partial(self._expire, fetch))

    def _expire(self, fetch: WaitingFetch) -> None:
        """End a wait. Rounding may put the clock just before the deadline, whose timer is gone."""
        fetch.deadline = min(fetch.deadline, asyncio.get_running_loop().time())
        self.wake_one(fetch)

    def remove(self, fetch: WaitingFetch) -> None:
        """Remove a parked fetch, one of many partitions in slices: hundreds may end together."""
        self._removals.wake(self._purgatory.removal(fetch))


class WaitingFetch(ParkedFetch):
    """One parked fetch and its wait."""

    __slots__ = ("_expiry", "_fetches", "_woken")

    def __init__(
        self, fetches: ParkedFetches, partitions: Collection[PartitionId], deadline: float
    ) -> None:
        super().__init__(partitions, deadline)
        self._fetches = fetches
        self._woken: DirectFuture[None] | None = None
        self._expiry: Deadline | None = None

    def __enter__(self) -> Self:
        self._expiry = self._fetches.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        expiry, self._expiry = self._expiry, None  # it refers to this: a cycle
        if expiry is not None:
            expiry.cancel()
        self._fetches.remove(self)

    async def changed(self) -> Set[PartitionId]:
        """Wait until a partition changes, or the wait is over.

        Returns the partitions that have changed since the last call.
        """
        loop = asyncio.get_running_loop()
        while self.must_wait(loop.time()):
            self._woken = DirectFuture(loop=loop)
            await self._woken
        return self.collect_changed()

    @property
    def over(self) -> bool:
        """Whether the deadline has passed, or the broker drains."""
        return self.is_over(asyncio.get_running_loop().time())

    def wake_in_turn(self) -> None:
        """End the wait of `changed`, after fetches that are already woken."""
        self._fetches.wake_one(self)

    def wake(self) -> None:
        """End the wait of `changed`."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
