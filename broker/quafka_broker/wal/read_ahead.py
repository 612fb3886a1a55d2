"""The next chunk of a sequential read, read while the one before it is on its way.

Stored batches are immutable, and whether an offset may be read is asked before anything is read:
a chunk that was read early is the same chunk. Its key holds the topic's generation and the limit,
so that it is used only for the read that it was made for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from quafka_broker.virtual_topics import VirtualTopic, VirtualTopicId

_LEAST, _MOST = 512 << 10, 4 << 20
"""Limits of the reads that are worth it, and that are bounded enough, to be made ahead."""
_CHUNKS = 4
_READERS = 64
_KEPT_SECONDS = 1.0

Read = Callable[[VirtualTopic, int, int], Awaitable[list[memoryview]]]
_Place = tuple[VirtualTopicId, int]


class ReadAhead:
    """Reads for all who read; what is read ahead is at most `_CHUNKS * _MOST` bytes."""

    def __init__(self, read: Read) -> None:
        """`read(topic, offset, max_bytes)` gives whole batches, the first however large."""
        self._read = read
        self._expected: OrderedDict[_Place, None] = OrderedDict()  # where readers have stopped
        self._ahead: OrderedDict[tuple[_Place, int], asyncio.Task[list[memoryview]]] = OrderedDict()

    async def read(self, topic: VirtualTopic, offset: int, max_bytes: int) -> list[memoryview]:
        """As the read that this was made with. Raises what that raises."""
        place = topic.id, offset
        task = self._ahead.pop((place, max_bytes), None)
        sequential = place in self._expected
        self._expected.pop(place, None)
        if task is not None:
            batches = await task
        else:
            batches = await self._read(topic, offset, max_bytes)
        if batches:
            self._expect(topic, _end(batches[-1]), max_bytes, sequential)
        return batches

    async def close(self) -> None:
        """Drop what was read ahead."""
        tasks = list(self._ahead.values())
        self._ahead.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _expect(self, topic: VirtualTopic, end: int, max_bytes: int, sequential: bool) -> None:
        """A reader will go on at `end`; if it has come from such a place, read for it."""
        place = topic.id, end
        self._expected[place] = None
        if len(self._expected) > _READERS:
            self._expected.popitem(last=False)
        key = place, max_bytes
        if (
            not sequential
            or not _LEAST <= max_bytes <= _MOST
            or not topic.log_start <= end < topic.high_watermark
            or key in self._ahead
        ):
            return
        loop = asyncio.get_running_loop()
        task = self._ahead[key] = loop.create_task(self._chunk(topic, end, max_bytes))
        task.add_done_callback(_seen)
        loop.call_later(_KEPT_SECONDS, self._drop, key, task)
        if len(self._ahead) > _CHUNKS:
            self._ahead.popitem(last=False)[1].cancel()

    async def _chunk(self, topic: VirtualTopic, offset: int, max_bytes: int) -> list[memoryview]:
        return await self._read(topic, offset, max_bytes)

    def _drop(self, key: tuple[_Place, int], task: asyncio.Task[list[memoryview]]) -> None:
        """Nobody came for it."""
        if self._ahead.get(key) is task:
            del self._ahead[key]
            task.cancel()


def _seen(task: asyncio.Task[list[memoryview]]) -> None:
    """An error is whoever's comes for the chunk; if nobody does it is nobody's."""
    if not task.cancelled():
        task.exception()


def _end(batch: memoryview) -> int:
    """The offset behind a batch."""
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
