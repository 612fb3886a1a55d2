"""Stores in front of others: repetition of what may succeed later, and counting."""

from __future__ import annotations

from pathlib import Path

import pytest

from quafka_loop import clock
from quafka_objects import bucket
from quafka_objects.bucket import BucketStore
from quafka_objects.costs import GB, MONTH, Prices, estimate, parse_prices
from quafka_objects.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    TransientStoreError,
)
from quafka_objects.folder import FolderStore
from quafka_objects.meter import MeteredStore, StoreMeter, requests_for
from quafka_objects.retries import RetryingStore, RetryPolicy
from quafka_objects.store import PART_BYTES, ObjectStore
from tests.support.injected_store import Faults, InjectedStore


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def retrying(inner: ObjectStore, clock: Clock, policy: RetryPolicy) -> RetryingStore:
    return RetryingStore(
        inner, policy, sleep=clock.sleep, now=lambda: clock.now, chance=lambda: 1.0
    )


# --- repetition -------------------------------------------------------------------------------


def test_waits_double_up_to_the_longest_and_end(tmp_path: Path) -> None:
    inner, clock = InjectedStore(FolderStore(tmp_path)), Clock()
    inner.down = True
    store = retrying(inner, clock, RetryPolicy(seconds=10.0, first=0.5, most=3.0))
    with pytest.raises(TransientStoreError, match="Slow Down"):
        store.read("a")
    assert clock.waits == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert RetryPolicy().wait(2_000, 0.0) == 0.0
    assert RetryPolicy().wait(2_000, 1.0) == 5.0


def test_only_what_may_succeed_is_repeated(tmp_path: Path) -> None:
    clock = Clock()
    inner = InjectedStore(FolderStore(tmp_path))
    store = retrying(inner, clock, RetryPolicy())
    etag = store.create("a", b"one")
    with pytest.raises(ObjectExistsError):
        store.create("a", b"two")
    with pytest.raises(ObjectChangedError):
        store.replace("a", b"two", "?")
    with pytest.raises(ObjectNotFoundError):
        store.get("b")
    inner.down = True
    with pytest.raises(TransientStoreError):
        store.put("c", iter([b"chunks"]))
    assert clock.waits == []
    inner.down = False
    assert store.replace("a", b"two", etag) == store.get("a").etag


def test_every_method_survives_faults(tmp_path: Path) -> None:
    inner = InjectedStore(FolderStore(tmp_path), Faults(busy=0.3, lost=0.3), seed=3)
    store = retrying(inner, Clock(), RetryPolicy(seconds=1e6))
    for number in range(20):
        path = f"a/{number:02}"
        etag = store.create(path, b"%d" % number)
        store.replace(path, b"replaced", etag)
        assert [store.read(path), bytes(store.view(path))] == [b"replaced"] * 2
        assert store.read_ranges(path, [(0, 2)]) == [b"re"]
        store.put(path, b"put")
        assert store.get(path).data == b"put"
        assert store.exists(path)
        assert [found.path for found in store.list_objects("a")] == [path]
        assert store.list_folders("") == ["a"]
        store.delete(path)


# --- a bucket's answers -----------------------------------------------------------------------


def test_lists_of_express_buckets_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [[{"path": "b", "size": 1}, {"path": "c", "size": 1}], [{"path": "a", "size": 1}]]
    monkeypatch.setattr(bucket, "_list", lambda *_, **__: pages)
    for name, expected in (("x--use1-az5--x-s3", "abc"), ("x", "bca")):
        store = BucketStore(f"s3://{name}/p", {"region": "us-east-1"})
        assert "".join(found.path for found in store.list_objects()) == expected


# --- counting ---------------------------------------------------------------------------------


def test_requests_and_bytes_by_kind(tmp_path: Path) -> None:
    meter = StoreMeter((0.5, 1.0))
    inner = InjectedStore(FolderStore(tmp_path))
    store = MeteredStore(inner, meter)
    etag = store.create("a", b"12345")
    store.replace("a", b"1234", etag)
    with pytest.raises(ObjectExistsError):
        store.create("a", b"?")
    store.put("b", b"x" * (PART_BYTES + 1))
    store.put("c", iter([b"xy", b"z"]))
    store.read("b", 0, 100)
    store.view("b", 0, 50)
    store.read_ranges("b", [(0, 10), (20, 10), (3 << 20, 5)])
    store.get("a")
    store.exists("a")
    list(store.list_objects())
    store.list_folders("")
    store.delete("a")
    inner.down = True
    with pytest.raises(TransientStoreError):
        store.get("a")
    found = {kind: (one.requests, one.bytes) for kind, one in meter.kinds.items()}
    assert found == {
        "create": (2, 5), "replace": (1, 4), "put": (4 + 3, PART_BYTES + 4),
        "get": (6, 179), "head": (1, 0), "list": (2, 0), "delete": (1, 0),
    }  # fmt: skip
    assert (meter.kinds["create"].refused, meter.kinds["get"].transient) == (1, 1)
    assert sum(meter.kinds["get"].buckets) == 5
    clock.sleep(1.0)
    assert meter.age == 1.0


def test_ranges_that_one_request_reads() -> None:
    mib = 1 << 20
    assert requests_for([]) == 0
    assert requests_for([(5 * mib, 1), (0, 1), (mib, 10)]) == 2


# --- costs ------------------------------------------------------------------------------------


def test_prices() -> None:
    assert parse_prices("") == Prices()
    assert parse_prices("put=0.1, stored=0").put == 0.1
    for wrong in ("put", "put=-1", "put=x", "pat=1", "put=1,put=1", "put=nan"):
        with pytest.raises(ValueError):
            parse_prices(wrong)


def test_an_estimate() -> None:
    meter = StoreMeter()
    meter.add("create", 0.1, 20_000, int(2 * GB), None)
    meter.add("get", 0.1, 10_000, int(GB), None)
    meter.add("delete", 0.1, 10_000, 0, None)
    found = estimate(Prices(read=0.09), meter.kinds, MONTH / 100, int(1_000 * GB))
    assert found.requests == pytest.approx(0.1 + 0.004 + 0.09)
    assert found.per_gb == pytest.approx(found.requests / 2)
    assert found.requests_month == pytest.approx(100 * found.requests)
    assert found.storage_month == pytest.approx(23.0)
    assert estimate(Prices(), StoreMeter().kinds, 1.0, 0).per_gb is None
