"""Parked fetches: who waits for which virtual topics to change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Self

from quafka_broker.partitions.partition import PartitionId


class Purgatory:
    """Wakes parked fetches when one of their virtual topics changes, or the broker drains."""

    def __init__(self) -> None:
        self._parked: dict[PartitionId, set[Parked]] = {}
        self._draining = False
        self.fetches = 0
        """How many are parked."""

    def __len__(self) -> int:
        """How many virtual topics somebody waits for."""
        return len(self._parked)

    @property
    def draining(self) -> bool:
        """Whether nobody may wait any more."""
        return self._draining

    def park(self, partitions: Collection[PartitionId], until: float) -> Parked:
        """Begin to note what happens to these, as a context manager; until loop time `until`."""
        return Parked(self, partitions, until)

    def enter(self, parked: Parked) -> None:
        """For `Parked` only."""
        self.fetches += 1
        for partition in parked.partitions:
            waiting = self._parked.get(partition)
            if waiting is None:
                waiting = self._parked[partition] = set()
            waiting.add(parked)

    def leave(self, parked: Parked) -> None:
        """For `Parked` only."""
        self.fetches -= 1
        for partition in parked.partitions:
            waiting = self._parked[partition]
            waiting.discard(parked)
            if not waiting:
                del self._parked[partition]

    def wake(self, partitions: Iterable[PartitionId]) -> None:
        """These have grown, have another log start, or are gone."""
        for partition in partitions:
            for parked in self._parked.get(partition, ()):
                parked.note(partition)

    def drain(self) -> None:
        """Let nobody wait, for good."""
        self._draining = True
        for parked in {parked for waiting in self._parked.values() for parked in waiting}:
            parked.end()


class Parked:
    """One parked fetch. It holds one timer, and a place in each topic's set of waiters."""

    __slots__ = ("_changed", "_purgatory", "_timer", "_until", "_woken", "over", "partitions")

    def __init__(
        self, purgatory: Purgatory, partitions: Collection[PartitionId], until: float
    ) -> None:
        self.partitions = partitions
        self._purgatory = purgatory
        self._until = until
        self._changed: set[PartitionId] = set()
        self.over = purgatory.draining
        """Whether time is up, or nobody may wait any more."""
        self._woken: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._purgatory.enter(self)
        self._timer = asyncio.get_running_loop().call_at(self._until, self.end)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._purgatory.leave(self)

    async def changed(self) -> set[PartitionId]:
        """Those that have changed since the last call; waits for one, or until it is over."""
        if not self._changed and not self.over:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        changed, self._changed = self._changed, set()
        return changed

    def note(self, partition: PartitionId) -> None:
        """It has changed."""
        self._changed.add(partition)
        self._wake()

    def end(self) -> None:
        """Time is up."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
