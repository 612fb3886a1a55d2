"""A simulated object store, and the network between it and a process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
)
from quafka_objects.store import Buffer, ETag, ObjectInfo, StoredObject

T = TypeVar("T")

_MEDIAN_S, _SIGMA = 0.010, 0.6
LATE_S = 10.0
"""The longest time that a request may be under way after its sender has given up."""


class Objects:
    """The store itself: each operation takes effect at one moment.

    A condition that is not met is always refused: a retried request meets its own object.
    """

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.writes = 0

    def get(self, path: str) -> StoredObject:
        if path not in self.objects:
            raise ObjectNotFoundError(path)
        return self.objects[path]

    def create(self, path: str, data: bytes) -> ETag:
        if path in self.objects:
            raise ObjectExistsError(path)
        return self.put(path, data)

    def replace(self, path: str, data: bytes, expected: ETag) -> ETag:
        found = self.objects.get(path)
        if found is None or found.etag != expected:
            raise ObjectChangedError(path)
        return self.put(path, data)

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def list_objects(self, folder: str, after: str) -> Sequence[ObjectInfo]:
        return [
            ObjectInfo(path, len(found.data))
            for path, found in sorted(self.objects.items())
            if path.startswith(f"{folder}/") and path > after
        ]

    def put(self, path: str, data: bytes) -> ETag:
        self.writes += 1
        self.objects[path] = StoredObject(data, f"{self.writes}")
        return f"{self.writes}"


@dataclass
class Weather:
    """How bad things are, the same for all processes; shares of all requests.

    Attributes:
        lost: requests that never arrive; half of them are noticed only by a deadline.
        unanswered: requests that take effect, but whose answer is lost.
        late: requests that fail, and take effect a long time after that.
        twice: requests that take effect a second time, later.
        refused: conditional writes that are refused as if something were there.
        slow_down: requests that the store refuses for now.
        nap: steps at which a process is stopped for a while.
        outage: nothing gets through.
    """

    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    refused: float = 0.0
    slow_down: float = 0.0
    nap: float = 0.0
    outage: bool = False


class Process:
    """A process that can sleep, die, and have a wrong clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.steps_left = math.inf
        self.clock_error_s = 0.0
        self._asleep_until = 0.0

    def pause(self, seconds: float) -> None:
        """As SIGSTOP does."""
        now = asyncio.get_running_loop().time()
        self._asleep_until = max(self._asleep_until, now + seconds)

    async def step(self) -> None:
        """Wait while the process sleeps; for ever if it is dead."""
        self.steps_left -= 1
        if self.steps_left <= 0:
            self.is_dead = True
        loop = asyncio.get_running_loop()
        while self.is_dead or loop.time() < self._asleep_until:
            if self.is_dead:
                await loop.create_future()
            await asyncio.sleep(self._asleep_until - loop.time())

    def wall_clock(self) -> float:
        """Seconds since 1970."""
        return 1e9 + asyncio.get_running_loop().time() + self.clock_error_s


class SimulatedStore:
    """The store as one process sees it: a `ChainStore`."""

    def __init__(self, objects: Objects, process: Process, weather: Weather, random: Random):
        self._objects = objects
        self._process = process
        self._weather = weather
        self._random = random

    async def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        data = (await self.get(path)).data
        return data[start:] if length is None else data[start : start + length]

    async def get(self, path: str) -> StoredObject:
        return await self._request(lambda: self._objects.get(path))

    async def put(self, path: str, data: Buffer) -> None:
        await self._request(lambda: self._objects.put(path, bytes(data)))

    async def create(self, path: str, data: Buffer) -> ETag:
        refused = ObjectExistsError(path)
        return await self._request(lambda: self._objects.create(path, bytes(data)), refused)

    async def replace(self, path: str, data: Buffer, expected: ETag) -> ETag:
        refused = ObjectChangedError(path)
        return await self._request(
            lambda: self._objects.replace(path, bytes(data), expected), refused
        )

    async def delete(self, path: str) -> None:
        await self._request(lambda: self._objects.delete(path))

    async def list_objects(self, folder: str = "", after: str = "") -> Sequence[ObjectInfo]:
        return await self._request(lambda: self._objects.list_objects(folder, after))

    async def _request(self, apply: Callable[[], T], refused: Exception | None = None) -> T:
        if self._random.random() < self._weather.nap:
            self._process.pause(self._random.choice((0.2, 3.0, 6.0)))
        await self._process.step()
        try:
            answer = await self._travel(apply, refused)
        except OSError:
            await self._process.step()
            raise
        await self._process.step()
        return answer

    async def _travel(self, apply: Callable[[], T], refused: Exception | None) -> T:
        loop = asyncio.get_running_loop()
        weather, random = self._weather, self._random
        fate = random.random()

        def happens(share: float) -> bool:
            nonlocal fate
            fate -= share
            return -share <= fate < 0

        if weather.outage or happens(weather.lost):
            await asyncio.sleep(random.choice((self._latency(), 1e6)))
            raise ObjectStoreError("the connection was lost")
        if happens(weather.slow_down):
            await asyncio.sleep(self._latency())
            raise ObjectStoreError("503 SlowDown")
        if refused is not None and happens(weather.refused):
            await asyncio.sleep(self._latency())
            raise refused
        answer: asyncio.Future[T] = loop.create_future()
        if happens(weather.late):
            loop.call_later(self._lateness(), _take_effect, apply, answer)
            await asyncio.sleep(self._latency())
            raise ObjectStoreError("the connection was lost")
        loop.call_later(self._latency(), _take_effect, apply, answer)
        if happens(weather.twice):
            loop.call_later(self._lateness(), _take_effect, apply, loop.create_future())
        if happens(weather.unanswered):
            await asyncio.sleep(random.choice((2 * self._latency(), 1e6)))
            raise ObjectStoreError("the connection was lost")
        await asyncio.wait([answer])
        await asyncio.sleep(self._latency())
        return answer.result()

    def _lateness(self) -> float:
        return self._random.uniform(0, self._random.choice((0.2, LATE_S)))

    def _latency(self) -> float:
        return self._random.lognormvariate(math.log(_MEDIAN_S), _SIGMA)


def _take_effect(apply: Callable[[], T], answer: asyncio.Future[T]) -> None:
    try:
        result = apply()
    except OSError as e:
        if not answer.done():
            answer.set_exception(e)
            answer.exception()  # it may be nobody's any more
    else:
        if not answer.done():
            answer.set_result(result)
