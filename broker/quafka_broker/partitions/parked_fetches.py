"""Waits of parked fetches: one future and one timer each, around the table in `purgatory`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Self

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.purgatory import ParkedFetch, Purgatory


class ParkedFetches:
    """Wakes parked fetches when one of their partitions changes, or the broker drains."""

    def __init__(self) -> None:
        self._purgatory: Purgatory[WaitingFetch] = Purgatory()

    def __len__(self) -> int:
        """The number of parked fetches."""
        return self._purgatory.fetches

    @property
    def partitions(self) -> int:
        """The number of partitions that fetches wait for."""
        return len(self._purgatory)

    def park(self, partitions: Collection[PartitionId], deadline: float) -> WaitingFetch:
        """A context manager that parks a fetch until loop time `deadline`."""
        return WaitingFetch(self._purgatory, partitions, deadline)

    def wake(self, partitions: Iterable[PartitionId]) -> None:
        """Wake the fetches of partitions that have grown, have another log start or are deleted."""
        for fetch in self._purgatory.mark_changed(partitions):
            fetch.wake()

    def drain(self) -> None:
        """End all waits, including those of fetches to come."""
        for fetch in self._purgatory.drain():
            fetch.wake()


class WaitingFetch(ParkedFetch):
    """One parked fetch and its wait."""

    __slots__ = ("_purgatory", "_timer", "_woken")

    def __init__(
        self,
        purgatory: Purgatory[WaitingFetch],
        partitions: Collection[PartitionId],
        deadline: float,
    ) -> None:
        super().__init__(partitions, deadline)
        self._purgatory = purgatory
        self._woken: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._purgatory.add(self)
        self._arm()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._purgatory.remove(self)

    async def changed(self) -> set[PartitionId]:
        """Wait until a partition changes, or the wait is over.

        Returns the partitions that have changed since the last call.
        """
        loop = asyncio.get_running_loop()
        while self.must_wait(loop.time()):
            self._woken = loop.create_future()
            await self._woken
        return self.collect_changed()

    @property
    def over(self) -> bool:
        """Whether the deadline has passed, or the broker drains."""
        return self.is_over(asyncio.get_running_loop().time())

    def wake(self) -> None:
        """End `changed`'s wait."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self.deadline, self._expire)

    def _expire(self) -> None:
        if self.is_over(asyncio.get_running_loop().time()):
            self.wake()
        else:  # timers may fire early by the resolution of the clock
            self._arm()
