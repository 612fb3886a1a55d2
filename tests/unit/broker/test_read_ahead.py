"""Reading ahead of sequential readers: what is read, once, and what is not."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.virtual_topics import VirtualTopic
from quafka_broker.wal import read_ahead
from quafka_broker.wal.errors import CorruptError
from quafka_broker.wal.read_ahead import ReadAhead
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import append, batch_of, open_log, topic_id

LIMIT = 1 << 20


class Shelf:
    """Batches of one record at each offset; `asked` are the reads that reached it."""

    def __init__(self) -> None:
        self.topic = VirtualTopic(topic_id())
        self.topic.high_watermark = 100
        self.asked: list[tuple[int, int]] = []
        self.failing: set[int] = set()
        self.ahead = ReadAhead(self.read)

    async def read(self, topic: VirtualTopic, offset: int, limit: int) -> list[memoryview]:
        assert topic is self.topic
        self.asked.append((offset, limit))
        await asyncio.sleep(0)
        if offset in self.failing:
            raise CorruptError("lost")
        return [memoryview(offset.to_bytes(8, "big") + batch_of(b"value")[8:])]

    async def get(self, offset: int, limit: int = LIMIT) -> None:
        (batch,) = await self.ahead.read(self.topic, offset, limit)
        assert int.from_bytes(batch[:8], "big") == offset
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_reader_that_goes_on_is_read_ahead_of() -> None:
    shelf = Shelf()
    await shelf.get(0)
    assert shelf.asked == [(0, LIMIT)]  # it may be the only one
    await shelf.get(1)
    assert shelf.asked == [(0, LIMIT), (1, LIMIT), (2, LIMIT)]
    await shelf.get(2)
    assert shelf.asked[3:] == [(3, LIMIT)]  # and 2 was not read again
    await shelf.ahead.close()


async def test_only_the_same_read_gets_what_was_read_ahead() -> None:
    shelf = Shelf()
    for offset in (0, 1):
        await shelf.get(offset)
    await shelf.get(2, LIMIT + 1)
    assert shelf.asked.count((2, LIMIT)) == shelf.asked.count((2, LIMIT + 1)) == 1
    await shelf.ahead.close()


@pytest.mark.parametrize("limit", [read_ahead._LEAST - 1, read_ahead._MOST + 1])
async def test_small_and_huge_reads_are_not_made_ahead(limit: int) -> None:
    shelf = Shelf()
    for offset in range(5):
        await shelf.get(offset, limit)
    assert shelf.asked == [(offset, limit) for offset in range(5)]
    await shelf.ahead.close()


async def test_nothing_is_read_at_the_high_watermark_or_below_the_log_start() -> None:
    shelf = Shelf()
    shelf.topic.high_watermark = 2
    for offset in (0, 1):
        await shelf.get(offset)
    shelf.topic.high_watermark = 100
    for offset in (10, 11, 12):
        await shelf.get(offset)
    assert shelf.asked == [(n, LIMIT) for n in (0, 1, 10, 11, 12, 13)]
    await shelf.ahead.close()


async def test_an_error_is_told_to_whom_it_concerns() -> None:
    shelf = Shelf()
    shelf.failing = {2}
    for offset in (0, 1):
        await shelf.get(offset)
    with pytest.raises(CorruptError):
        await shelf.get(2)
    assert shelf.asked.count((2, LIMIT)) == 1
    await shelf.ahead.close()


async def test_what_is_kept_is_bounded_in_number_and_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "_KEPT_SECONDS", 0.01)
    shelf = Shelf()
    for start in range(0, 100, 10):
        for offset in (start, start + 1):
            await shelf.get(offset)
    assert len(shelf.ahead._ahead) <= read_ahead._CHUNKS
    async with asyncio.timeout(5):
        while shelf.ahead._ahead:
            await asyncio.sleep(0.005)
    await shelf.ahead.close()


async def test_a_log_read_in_order_gives_every_batch_once() -> None:
    """The same batches with and without reading ahead."""
    value = bytes(200_000)
    async with open_log(MemoryDisk(), segment_bytes=1 << 26) as log:
        for _ in range(40):
            await append(log, "t", value)
        topic = log.topic(topic_id("t"))
        seen: list[int] = []
        offset = 0
        while offset < topic.high_watermark:
            batches = await log.read(topic, offset, LIMIT, at_least_one=True)
            assert sum(map(len, batches)) <= LIMIT
            seen += [int.from_bytes(batch[:8], "big") for batch in batches]
            offset = seen[-1] + 1
        assert seen == list(range(40))
