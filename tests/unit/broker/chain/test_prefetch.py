"""Objects that are read ahead of a takeover: the same bytes, asked of the store once."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.chain import prefetch
from quafka_broker.chain.objects import ListedObject
from quafka_broker.chain.prefetch import PrefetchedStore
from quafka_loop import clock
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.errors import ObjectNotFoundError
from quafka_proto.chain_format import (
    ENTRIES,
    ChainHeader,
    StoredFile,
    chain_path,
    directory_path,
    encode_directory,
    encode_header,
)
from quafka_proto.errors import Malformed
from tests.support.store_folder import RecordedStore

DATA = bytes(range(256)) * 40
SHARD = 3


class CountingStore(RecordedStore):
    """Objects in memory, and which of them were read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.asked: list[str] = []

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked.append(path)
        return super().read(path, start, length)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "_CHUNK", 1_000)
    monkeypatch.setattr(prefetch, "_MOST_BYTES", 20_000)


def test_every_range_is_what_the_store_has() -> None:
    inner = CountingStore({"x": DATA})
    store = PrefetchedStore(inner)
    store.fetch("x", len(DATA))
    store.fetch("x", len(DATA))
    for start in (0, 1, 999, 1_000, 4_321, len(DATA) - 1, len(DATA), len(DATA) + 5):
        assert store.read("x", start) == DATA[start:]
        for length in (0, 1, 1_000, 2_500, len(DATA) + 9):
            assert store.read("x", start, length) == DATA[start : start + length]
    assert inner.asked == ["x"] * 11
    store.forget()
    assert store.read("x", 5, 5) == DATA[5:10]
    assert len(inner.asked) == 12


def test_what_a_start_reads_of_the_listed_files_is_read_ahead() -> None:
    names = [
        "checkpoint-9", "checkpoint-10", "leader-epoch", "000000000000.log", "000000000000.oidx",
        "000000000001.log@0000000000000000", "000000000001.oidx@0000000000000000",
    ]  # fmt: skip
    files = [StoredFile(name, f"files/{name}", 10) for name in names]
    listing = directory_path(SHARD, 1, 1)
    objects = {file.path: file.name.encode()[:10].ljust(10) for file in files}
    inner = CountingStore({**objects, listing: encode_directory(files)})
    store = PrefetchedStore(inner)
    store.fetch_files(listing)
    assert store.read(listing) == encode_directory(files)
    ahead = [names[1], names[2], *names[5:]]
    until = clock.monotonic() + 30
    while len(inner.asked) < 1 + len(ahead):  # by other threads
        assert clock.monotonic() < until
        clock.sleep(0.001)
    assert sorted(inner.asked) == sorted([listing, *(f"files/{name}" for name in ahead)])
    assert store.read("files/leader-epoch") == b"leader-epo"


def test_what_fails_ahead_is_asked_again() -> None:
    inner = CountingStore({})
    store = PrefetchedStore(inner)
    store.fetch("x", 10)
    store.fetch_files("no list")
    with pytest.raises(ObjectNotFoundError):
        store.read("x")
    inner.objects["x"] = DATA[:10]
    assert store.read("x") == DATA[:10]
    store.forget()


def test_too_much_is_not_read_ahead() -> None:
    inner = CountingStore({"x": bytes(30_000)})
    store = PrefetchedStore(inner)
    store.fetch("x", 30_000)
    assert inner.asked == []
    assert store.read("x", 0, 10) == bytes(10)


async def test_headers_of_the_chain() -> None:
    headers = [
        ChainHeader(ENTRIES, SHARD, seq, 1, bytes(16), entries=0, length=1_500) for seq in range(4)
    ]
    objects = {
        chain_path(SHARD, each.seq): encode_header(each) + bytes(each.length) for each in headers
    }
    inner = CountingStore(objects)
    calls, store = AsyncObjectStore(inner), PrefetchedStore(inner)
    listed = [ListedObject(each.seq, each.size) for each in headers]
    listed[3] = listed[3]._replace(size=1 << 20)
    assert await store.headers(calls, SHARD, listed) == headers
    path = chain_path(SHARD, 1)
    asked = inner.asked.count(path)
    assert await asyncio.to_thread(store.read, path) == objects[path]
    assert inner.asked.count(path) == asked
    inner.objects[chain_path(SHARD, 9)] = bytes(100)
    with pytest.raises(Malformed):
        await store.headers(calls, SHARD, [ListedObject(9, 100)])
    with pytest.raises(ObjectNotFoundError):
        await store.headers(calls, SHARD, [ListedObject(10, 100)])
    store.forget()
    await calls.close()
