"""The table of parked fetches, by the partitions that they wait for. Pure.

The caller that parks a fetch looks at its partitions again when the table marks them as changed,
and ends its wait at the deadline. Futures and timers are in `parked_fetches`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from quafka_broker.partitions.partition import PartitionId

_A_STEP = 200
"""Partitions from which a fetch is removed in one step: a tenth of a millisecond."""


class ParkedFetch:
    """One parked fetch: the partitions that it waits for, and its deadline."""

    __slots__ = ("_changed", "deadline", "ended", "partitions")

    def __init__(self, partitions: Collection[PartitionId], deadline: float) -> None:
        self.partitions = partitions
        self.deadline = deadline
        self.ended = False
        """Whether the broker drains, so that fetches must no longer wait."""
        self._changed: dict[PartitionId, None] = {}

    def mark_changed(self, partition: PartitionId) -> bool:
        """Record that the partition has grown, has another log start, or is deleted.

        Returns whether the fetch must be woken: earlier changes that are not collected yet have
        already woken it.
        """
        is_first = not self._changed
        self._changed[partition] = None
        return is_first

    @property
    def has_changes(self) -> bool:
        """Whether a partition has changed since the last call of `collect_changed`."""
        return bool(self._changed)

    def collect_changed(self) -> Set[PartitionId]:
        """The partitions that have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed.keys()

    def must_wait(self, now: float) -> bool:
        """Whether nothing has changed and the wait is not over."""
        return not self._changed and not self.is_over(now)

    def is_over(self, now: float) -> bool:
        """Whether the deadline has passed, or the broker drains."""
        return self.ended or now >= self.deadline


Parked = TypeVar("Parked", bound=ParkedFetch)


class Purgatory(Generic[Parked]):
    """Parked fetches by partition."""

    def __init__(self) -> None:
        self._parked: dict[PartitionId, dict[Parked, None]] = {}  # in the order of their begins
        self.fetches = 0
        """The number of parked fetches."""
        self.draining = False
        """Whether fetches must no longer wait."""

    def __len__(self) -> int:
        """The number of partitions that fetches wait for."""
        return len(self._parked)

    def __contains__(self, partition: PartitionId) -> bool:
        """Whether a fetch waits for this partition."""
        return partition in self._parked

    def add(self, fetch: Parked) -> None:
        """Park a fetch."""
        fetch.ended = self.draining
        self.fetches += 1
        for partition in fetch.partitions:
            waiting = self._parked.get(partition)
            if waiting is None:
                waiting = self._parked[partition] = {}
            waiting[fetch] = None

    def removal(self, fetch: Parked) -> Iterable[Callable[[], None]]:
        """The steps that remove a parked fetch. Until they have run, it may still be woken."""
        self.fetches -= 1
        partitions = iter(fetch.partitions)
        return [
            partial(self._remove, fetch, islice(partitions, _A_STEP))
            for _ in range(0, len(fetch.partitions), _A_STEP)
        ]

    def _remove(self, fetch: Parked, partitions: Iterable[PartitionId]) -> None:
        for partition in partitions:
            waiting = self._parked[partition]
            waiting.pop(fetch, None)
            if not waiting:
                del self._parked[partition]

    def mark_changed(self, partitions: Iterable[PartitionId]) -> list[Parked]:
        """Mark partitions as changed. Returns the fetches to wake, each once."""
        return [
            fetch
            for partition in partitions
            for fetch in self._parked.get(partition, ())
            if fetch.mark_changed(partition)
        ]

    def drain(self) -> Set[Parked]:
        """End all waits, including those of future fetches. Returns the fetches to wake."""
        self.draining = True
        woken = dict.fromkeys(fetch for waiting in self._parked.values() for fetch in waiting)
        for fetch in woken:
            fetch.ended = True
        return woken.keys()
