"""Readings that several open pages and people share: read again only when they are old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from quafka_loop import clock

T = TypeVar("T")
_MOST = 200


@dataclass(frozen=True, slots=True)
class _Reading(Generic[T]):
    began: float
    task: asyncio.Task[T]


class Recent(Generic[T]):
    """Results by key, at most `seconds` old; one reading serves all who wait for a key.

    What a user may see differs, so keys of what the cluster decides about name the user. Bounded
    by `most` keys: a new one replaces the oldest reading.
    """

    def __init__(self, seconds: float, most: int = _MOST) -> None:
        self._seconds, self._most = seconds, most
        self._readings: dict[Hashable, _Reading[T]] = {}

    async def read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """The result for a key, by `read` if there is none that is fresh; raises what that does."""
        now, reading = clock.monotonic(), self._readings.get(key)
        if reading is None or now - reading.began > self._seconds:
            self._readings.pop(key, None)
            while len(self._readings) >= self._most:
                del self._readings[next(iter(self._readings))]
            task = asyncio.create_task(_awaited(read))
            task.add_done_callback(_seen)
            reading = self._readings[key] = _Reading(now, task)
        return await asyncio.shield(reading.task)  # one who leaves does not end the others' reading


async def _awaited(read: Callable[[], Awaitable[T]]) -> T:
    return await read()


def _seen(task: asyncio.Task[T]) -> None:
    """Nobody may wait any more for an error."""
    if not task.cancelled():
        task.exception()
