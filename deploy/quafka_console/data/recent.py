"""Readings that several open pages and people share: read again only when they are old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import ref

from quafka_client.cluster import ClientCluster
from quafka_loop import clock

T = TypeVar("T")
_MOST = 200


@dataclass(frozen=True, slots=True)
class _Reading(Generic[T]):
    began: float
    task: asyncio.Task[T]


class Recent(Generic[T]):
    """Results by key, at most `seconds` old; one reading serves all who wait for a key.

    What people may see differs: `whose(cluster)` is the key of what the cluster decides. Bounded by
    `most` keys: a new one replaces the oldest reading.
    """

    def __init__(self, seconds: float, most: int = _MOST) -> None:
        self._seconds, self._most = seconds, most
        self._readings: dict[Hashable, _Reading[T]] = {}

    async def read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """The result for a key, by `read` if there is none that is fresh; raises what that does."""
        now, reading = clock.monotonic(), self._readings.get(key)
        if reading is None or now - reading.began > self._seconds:
            self._readings.pop(key, None)
            self._forget(now)
            task = asyncio.create_task(_awaited(read))
            task.add_done_callback(_seen)
            reading = self._readings[key] = _Reading(now, task)
        return await asyncio.shield(reading.task)  # one who leaves does not end the others' reading

    def _forget(self, now: float) -> None:
        """Drop the readings that are old, and those that are too many."""
        while self._readings:
            oldest = next(iter(self._readings))
            is_old = now - self._readings[oldest].began > self._seconds
            if not is_old and len(self._readings) < self._most:
                break
            del self._readings[oldest]


def whose(cluster: ClientCluster) -> Hashable:
    """A key for what one sign-in may see, which keeps nobody's connection alive.

    Names of users do not suffice: two orgs may have users of the same name.
    """
    return ref(cluster)


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()


def _seen(task: asyncio.Task[T]) -> None:
    """Nobody may wait any more for an error."""
    if not task.cancelled():
        task.exception()
