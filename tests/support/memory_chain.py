"""A chain in memory: its objects exist when a test says so, or after a latency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quafka_broker.wal.disk import Buffer
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import APPENDED, INDEX_MAGIC, LOG_MAGIC, FileHeader, encode_file_header
from tests.unit.broker.memory_disk import MemoryDisk


class Object(NamedTuple):
    segment: int
    position: int
    first_id: int
    salt: int
    entries: bytes
    rows: bytes
    entry_count: int


class MemoryChain:
    """Objects under way are `created` in order: by calls, or after `latency()` seconds each."""

    def __init__(self, latency: Callable[[], float] | None = None, most: int = 8) -> None:
        self.objects: list[Object] = []
        self.under_way: list[tuple[Object, asyncio.Future[None]]] = []
        self.failure: str | None = None
        self.trouble: str | None = None
        self.epoch = 1
        self._latency = latency
        self._most = most
        self._exists: set[int] = set()
        self._begun = 0
        self._moved = asyncio.Event()

    async def room(self) -> None:
        while len(self.under_way) >= self._most and self.failure is None:
            self._moved.clear()
            await self._moved.wait()

    def append(
        self,
        segment: int,
        position: int,
        first_id: int,
        salt: int,
        entries: Sequence[Buffer],
        rows: bytes,
        count: int,
    ) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        made = Object(segment, position, first_id, salt, b"".join(entries), rows, count)
        self.under_way.append((made, done))
        number, self._begun = self._begun, self._begun + 1
        if self._latency is not None:
            loop.call_later(self._latency(), self._created, number)
        return done

    def _created(self, number: int) -> None:
        self._exists.add(number)
        while self.under_way and len(self.objects) in self._exists:
            self.create()

    def create(self, count: int = 1) -> None:
        """The first objects under way exist."""
        for _ in range(count):
            made, done = self.under_way.pop(0)
            self.objects.append(made)
            done.set_result(None)
        self._moved.set()

    def fail(self, reason: str) -> None:
        """Another owner's object has the next number."""
        self.failure = reason
        for _, done in self.under_way:
            done.set_exception(RuntimeError(reason))
        self.under_way.clear()
        self._moved.set()

    def disk(self) -> MemoryDisk:
        """A folder with the segments that the objects make."""
        disk = MemoryDisk()
        for made in self.objects:
            names = ((log_name, LOG_MAGIC, made.entries), (index_name, INDEX_MAGIC, made.rows))
            for name, magic, data in names:
                path, header = name(made.segment), FileHeader(made.salt, APPENDED)
                if not disk.exists(path):
                    disk.create(path).append([encode_file_header(magic, made.segment, *header)])
                file = disk.open(path)
                if name is log_name:
                    assert file.size() == made.position, "objects follow one another"
                file.append([data])
        return disk
