"""Ranges of objects through the cache: few requests, shared, ahead of a sequential reader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from quafka_broker.chain.block_cache import BLOCK, BlockCache
from quafka_broker.chain.errors import StoreUnavailableError
from quafka_broker.chain.object_reader import ObjectReader, StoredRange
from quafka_broker.chain.patience import Patience
from quafka_loop import clock, threads
from quafka_objects.errors import ObjectNotFoundError
from tests.support.store_folder import RecordedStore

SIZE = 10 * (1 << 20) + 123
DATA = random.Random(1).randbytes(SIZE)
STORED = StoredRange("files/x", SIZE)


class Requests(RecordedStore):
    """A store that notes the ranges that are read; `gate` holds them up."""

    def __init__(self) -> None:
        super().__init__({STORED.path: DATA})
        self.ranges: list[tuple[int, int]] = []
        self.gate = threads.Event()
        self.gate.set()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.ranges.append((start, length or 0))
        self.gate.wait()
        return super().read(path, start, length)


@pytest.fixture
def store() -> Requests:
    return Requests()


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return BlockCache(tmp_path / "blocks", 64 << 20)


@pytest.fixture
def reader(store: Requests, cache: BlockCache) -> Iterator[ObjectReader]:
    reader = ObjectReader(store, cache, Patience(0.001), deadline_seconds=0.05)
    reader.serve()
    yield reader
    reader.close()
    cache.close()


def test_any_range_is_read_right(reader: ObjectReader) -> None:
    rng = random.Random(2)
    for _ in range(60):
        at, size = rng.randrange(SIZE + 10), rng.choice((1, 5_000, BLOCK, 3 * BLOCK + 7))
        assert reader.read(STORED, at, size) == DATA[at : at + size]
        cached = reader.read_cached(STORED, at, size)
        assert cached is None or cached == DATA[at : at + size]


def test_a_range_is_one_request_and_none_the_next_time(
    reader: ObjectReader, store: Requests
) -> None:
    reader.read(STORED, 3 * BLOCK + 1, 4 * BLOCK)
    assert store.ranges == [(3 * BLOCK, 5 * BLOCK)]
    reader.read(STORED, 5 * BLOCK, 10)
    assert len(store.ranges) == 1


def test_readers_share_a_request(reader: ObjectReader, store: Requests) -> None:
    store.gate.clear()
    with threads.ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(reader.read, STORED, 100, 50) for _ in range(4)]
        store.gate.set()
        assert {read.result() for read in reads} == {DATA[100:150]}
    # A reader that finds neither the block nor the request that has just ended makes another one.
    assert set(store.ranges) == {(0, BLOCK)}
    assert len(store.ranges) <= 2


def test_a_sequential_reader_finds_what_follows(
    reader: ObjectReader, store: Requests, cache: BlockCache
) -> None:
    step = 64 << 10
    for at in range(0, 2 << 20, step):
        assert reader.read(STORED, at, step) == DATA[at : at + step]
    until = clock.monotonic() + 30
    while not cache.has((STORED.path, (3 << 20) // BLOCK)):
        assert clock.monotonic() < until
        clock.sleep(0.001)
    assert len(store.ranges) < 10


def test_a_large_range_passes_the_cache(store: Requests, cache: BlockCache) -> None:
    large = random.Random(3).randbytes(40 << 20)
    store.objects["files/large"] = large
    reader = ObjectReader(store, cache, Patience())
    assert reader.read(StoredRange("files/large", len(large)), 5, len(large)) == large[5:]
    assert cache.held == 0
    reader.close()


def test_a_silent_store_is_an_error_after_the_deadline(
    reader: ObjectReader, store: Requests
) -> None:
    store.down = True
    with pytest.raises(StoreUnavailableError):
        reader.read(STORED, 0, 1)
    store.down = False
    assert reader.read(STORED, 0, 1) == DATA[:1]


def test_a_missing_or_short_object_is_an_error_not_damage(
    reader: ObjectReader, store: Requests
) -> None:
    with pytest.raises(ObjectNotFoundError):
        reader.read(StoredRange("files/y", 10), 0, 10)
    store.objects["files/z"] = b"short"
    with pytest.raises(OSError, match="is cut short"):
        reader.read(StoredRange("files/z", 10), 0, 10)


def test_announced_ranges_are_requested_together(
    reader: ObjectReader, store: Requests, cache: BlockCache
) -> None:
    ranges = [(at * 3 * BLOCK, 1_000) for at in range(8)]
    store.gate.clear()
    reader.request(STORED, ranges)
    until = clock.monotonic() + 30
    while len(store.ranges) < 8:
        assert clock.monotonic() < until
        clock.sleep(0.001)
    assert sorted(store.ranges) == [(at, BLOCK) for at, _ in ranges]
    store.gate.set()
    for at, size in ranges:
        assert reader.read(STORED, at, size) == DATA[at : at + size]


def test_a_closed_reader_refuses(store: Requests, cache: BlockCache) -> None:
    reader = ObjectReader(store, cache, Patience())
    reader.close()
    reader.request(STORED, [(0, 10)])
    with pytest.raises(StoreUnavailableError):
        reader.read(STORED, 0, 10)


def test_until_it_serves_a_read_waits_for_the_end_of_an_outage(cache: BlockCache) -> None:
    """A takeover that gave up would have raised the epoch, and would have to be made again."""
    store = Requests()
    reader = ObjectReader(store, cache, Patience(0.001), deadline_seconds=0.0)
    store.down = True
    with threads.ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.read, STORED, 100, 50)
        while store.failed < 20:
            clock.sleep(0.001)
        assert not read.done()
        store.down = False
        assert read.result(10) == DATA[100:150]
    reader.close()


def test_an_object_that_is_cut_short_is_no_outage(cache: BlockCache) -> None:
    store = Requests()
    reader = ObjectReader(store, cache, Patience(0.001))
    store.objects[STORED.path] = DATA[:BLOCK]
    with pytest.raises(OSError, match="is cut short"):
        reader.read(STORED, BLOCK - 10, 20)
    reader.close()
