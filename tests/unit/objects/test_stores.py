"""Object stores over a local folder; `tests/integration/kernel` has the same suite over S3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from quafka_objects.address import open_store, parse_address
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreAddressError,
)
from quafka_objects.folder import FolderStore, final_path
from quafka_objects.store import ObjectStore

CREATORS = 20
DATA = bytes(range(256)) * 100


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A place of this test's own."""
    return str(tmp_path / "made" / "store")


@pytest.fixture
def store(address: str) -> ObjectStore:
    return open_store(address)


def paths(store: ObjectStore, folder: str = "", after: str = "") -> list[str]:
    return [found.path for found in store.list_objects(folder, after)]


# --- reads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 4_096, 20_000, len(DATA) - 1])
@pytest.mark.parametrize("length", [None, 0, 1, 5_000])
def test_ranges(store: ObjectStore, start: int, length: int | None) -> None:
    store.put("a/b", DATA)
    expected = DATA[start:] if length is None else DATA[start : start + length]
    assert store.read("a/b", start, length) == expected
    assert store.view("a/b", start, length) == expected


def test_several_ranges_at_once(store: ObjectStore) -> None:
    store.put("a/b", DATA)
    ranges = [(20_000, 100), (0, 1), (7, 4_000), (len(DATA) - 3, 3)]
    expected = [DATA[start : start + length] for start, length in ranges]
    assert store.read_ranges("a/b", ranges) == expected
    assert store.read_ranges("a/b", []) == []


def test_a_missing_object(store: ObjectStore) -> None:
    reads: list[Callable[[], object]] = [
        lambda: store.read("a/b"),
        lambda: store.read("a/b", 1, 2),
        lambda: store.view("a/b"),
        lambda: store.read_ranges("a/b", [(0, 1)]),
        lambda: store.get("a/b"),
    ]
    for read in reads:
        with pytest.raises(ObjectNotFoundError, match=re.escape(f"there is no {store.where}/a/b")):
            read()
    assert not store.exists("a/b")
    store.delete("a/b")
    assert (paths(store), store.list_folders("a")) == ([], [])


def test_lists_are_in_order_and_begin_after_a_path(store: ObjectStore) -> None:
    names = ["a.b", "a/1", "a/10", "a/2", "a/b/c", "ab", "b"]
    for size, name in enumerate(reversed(names)):
        store.put(name, b"x" * size)
    assert paths(store) == names
    assert paths(store, "a") == names[1:5], "a folder, not a prefix of names"
    assert paths(store, "a", after="a/10") == ["a/2", "a/b/c"]
    assert paths(store, after="a/11") == ["a/2", "a/b/c", "ab", "b"]
    assert dict(store.list_objects("a"))["a/1"] == 5
    assert store.list_folders("a") == ["b"]


# --- writes -----------------------------------------------------------------------------------


def test_put_replaces_and_streams(store: ObjectStore) -> None:
    store.put("a", b"one")
    store.put("a", (b"x" * 100_000 for _ in range(70)))
    assert store.read("a") == b"x" * 7_000_000
    store.put("a", memoryview(b"two"))
    assert store.get("a").data == b"two"
    store.delete("a")
    assert not store.exists("a")


def test_create_refuses_what_another_has_created(store: ObjectStore) -> None:
    etag = store.create("a/b", b"one")
    assert store.create("a/b", b"one") == etag, "the answer to a first try may have been lost"
    with pytest.raises(ObjectExistsError):
        store.create("a/b", b"two")
    assert store.get("a/b") == (b"one", etag)
    assert paths(store) == ["a/b"]


def test_replace_compares_before_it_swaps(store: ObjectStore) -> None:
    first = store.create("a", b"one")
    second = store.replace("a", b"two", first)
    assert store.get("a") == (b"two", second)
    assert store.replace("a", b"two", first) == second, "the answer may have been lost"
    with pytest.raises(ObjectChangedError):
        store.replace("a", b"three", first)
    store.delete("a")
    with pytest.raises(ObjectChangedError):
        store.replace("a", b"three", second)
    assert paths(store) == []


# --- folders ----------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    def chunks() -> Iterator[bytes]:
        yield b"x" * 1_000
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.put("a", chunks())
    assert paths(store) == []


def test_an_interrupted_write_is_listed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    def chunks() -> Iterator[bytes]:
        yield b"x" * 1_000
        raise KeyboardInterrupt  # as a kill: nothing is cleaned up

    with pytest.raises(KeyboardInterrupt):
        store.put("b/a", chunks())
    (left,) = paths(store)
    assert final_path(left) == "b/a"
    assert final_path("b/a") is None
    assert left.startswith("b/."), "hidden from readers of a folder of Parquet files"


def test_without_hard_links(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with patch("os.link", side_effect=PermissionError):
        store.create("c", b"one")
        with pytest.raises(ObjectExistsError):
            store.create("c", b"two")
    assert paths(store) == ["c"]
    assert store.read("c") == b"one"


# --- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("some/folder", Path("some/folder")),
        ("file:///some/a%20b", Path("/some/a b")),
        ("file://localhost/some", Path("/some")),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
    ],
)
def test_addresses(address: str, place: Path | str) -> None:
    assert parse_address(address) == place


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "the path is empty"),
        ("file://./x", "three slashes"),
        ("ftp://x/y", "a store is a folder, file:///folder or one of s3://"),
        (__file__, "it is not a folder"),
    ],
)
def test_addresses_that_are_none(address: str, reason: str) -> None:
    with pytest.raises(StoreAddressError, match=reason):
        open_store(address)


def test_a_bucket_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quafka_objects.bucket", None)
    with pytest.raises(StoreAddressError, match=r"quafka\[s3\]"):
        open_store("s3://bucket/x")


def test_an_import_is_cheap() -> None:
    """Executors import the package for every task."""
    script = (
        "import sys, quafka_objects.address, quafka_objects.asynchronous\n"
        "print({'obstore', 'numpy', 'quafka_proto'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "set()"


# --- asyncio ----------------------------------------------------------------------------------


async def test_awaited(store: ObjectStore) -> None:
    objects = AsyncObjectStore(store, calls_at_once=4)
    etag = await objects.create("a", b"one")
    assert await objects.get("a") == (b"one", etag)
    await objects.replace("a", b"two", etag)
    with pytest.raises(ObjectExistsError):
        await objects.create("a", b"three")
    await objects.put("b", DATA)
    assert await objects.read("b", 5, 10) == DATA[5:15]
    assert await objects.read_ranges("b", [(0, 2), (9, 1)]) == [DATA[:2], DATA[9:10]]
    assert [found.path for found in await objects.list_objects(after="a")] == ["b"]
    await objects.delete("a")
    assert not await objects.exists("a")
    await objects.close()
