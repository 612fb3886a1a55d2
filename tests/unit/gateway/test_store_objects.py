"""Batches in the objects of a store: which bytes are read, and what is refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from quafka_gateway.fetch import store_objects
from quafka_gateway.fetch.placed_broker import PlacedBroker
from quafka_gateway.fetch.store_objects import StoreObjects, WrongObjectError
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.places import ObjectPlace, pack_extents
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.folder import FolderStore
from quafka_proto.record_codec import Record, build_batch
from quafka_telemetry.tracing import TraceContext
from tests.support.injected_store import InjectedStore

PATH = "files/0000/000000000001.log-1"
HEAD = 68


@dataclass
class Objects:
    """One object with batches, each after a header; `places` names some of them."""

    store: InjectedStore
    reader: StoreObjects
    batches: list[bytes]
    positions: list[int]

    def place(self, *numbers: int, path: str = PATH) -> ObjectPlace:
        return ObjectPlace(
            path,
            pack_extents((self.positions[n], len(self.batches[n]), n, 1) for n in numbers),
        )

    @property
    def ranges(self) -> int:
        return len(self.store.calls)


@pytest.fixture
async def objects(tmp_path: Path) -> AsyncIterator[Objects]:
    found = [_batch(offset, size) for offset, size in enumerate((10, 20_000, 300_000, 10, 10))]
    data, positions = b"", list[int]()
    for batch in found:
        data += os.urandom(HEAD)
        positions.append(len(data))
        data += batch
    folder = FolderStore(tmp_path)
    folder.put(PATH, data)
    store = InjectedStore(folder)
    calls = AsyncObjectStore(store)
    yield Objects(store, StoreObjects(calls), found, positions)
    await calls.close()


def _batch(offset: int, size: int) -> bytes:
    made = bytearray(build_batch([Record(0, 0, None, os.urandom(size), [])]))
    made[:8] = offset.to_bytes(8, "big")
    return bytes(made)


async def test_neighbours_are_read_with_one_request(objects: Objects) -> None:
    assert await objects.reader.batches([objects.place(0, 1)]) == objects.batches[:2]
    assert objects.ranges == 1
    assert await objects.reader.batches([objects.place(1, 3, 4)]) == [
        objects.batches[1], *objects.batches[3:]
    ]  # fmt: skip
    assert objects.ranges == 3, "300 kB of another partition are not read"


async def test_long_runs_are_read_in_parts(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_objects, "_MOST_BYTES", 25_000)
    assert await objects.reader.batches([objects.place(0, 1, 2, 3, 4)]) == objects.batches
    assert objects.ranges == 3


async def test_what_is_not_the_batch_is_refused(objects: Objects) -> None:
    other = ObjectPlace(PATH, pack_extents([(objects.positions[1], len(objects.batches[1]), 7, 1)]))
    beside = ObjectPlace(PATH, pack_extents([(objects.positions[1] + 1, 500, 1, 1)]))
    behind = ObjectPlace(PATH, pack_extents([(objects.positions[4], 5_000, 4, 1)]))
    for place in (other, beside, behind):
        with pytest.raises(WrongObjectError):
            await objects.reader.batches([place])
    with pytest.raises(ProtocolError):
        await objects.reader.batches([ObjectPlace(PATH, b"1")])
    with pytest.raises(ObjectNotFoundError):
        await objects.reader.batches([objects.place(0, path="files/0000/gone")])
    for path in ("manifest/0000", "files/../../etc/passwd", "/etc/passwd"):
        with pytest.raises(WrongObjectError):
            await objects.reader.batches([objects.place(0, path=path)])
    assert objects.reader.readable, "the store has answered each time"


async def test_a_flipped_bit_is_noticed(objects: Objects, tmp_path: Path) -> None:
    data = bytearray((tmp_path / PATH).read_bytes())
    data[objects.positions[2] + 150_000] ^= 1
    FolderStore(tmp_path).put(PATH, bytes(data))
    assert await objects.reader.batches([objects.place(0, 1)]) == objects.batches[:2]
    with pytest.raises(WrongObjectError):
        await objects.reader.batches([objects.place(2)])


def _readable(reader: StoreObjects) -> bool:
    return reader.readable


class Broker:
    """Answers by place if it may, and otherwise by value."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.asked: list[FetchOps] = []

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        raise NotImplementedError

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        self.asked.append(op)
        if op.objects:
            return FetchOpsResp([FetchOpResp([], 5, places=[self.objects.place(1, 2)])])
        return FetchOpsResp([FetchOpResp(list(self.objects.batches[1:3]), 5)])


async def test_a_broker_is_read_by_place_while_the_store_answers(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_objects, "_FIRST_PAUSE_S", 0.05)
    broker = Broker(objects)
    reader = StoreObjects(AsyncObjectStore(objects.store))
    placed = PlacedBroker(broker, None, reader)
    op = FetchOps([FetchOp("t", 0, 1, 1 << 20)], max_bytes=1 << 20)

    async def fetched() -> list[bytes]:
        return [bytes(batch) for batch in (await placed.fetch(op, None)).partitions[0].records]

    assert await fetched() == objects.batches[1:3]
    assert [each.objects for each in broker.asked] == [True]
    objects.store.down = True
    assert await fetched() == objects.batches[1:3]
    assert [each.objects for each in broker.asked] == [True, True, False]
    assert not _readable(reader)
    assert await fetched() == objects.batches[1:3], "at once"
    assert [each.objects for each in broker.asked][3:] == [False]
    objects.store.down = False
    while not _readable(reader):
        await asyncio.sleep(0.01)
    assert await fetched() == objects.batches[1:3]
    assert broker.asked[-1].objects
    assert placed.missed == 1


async def test_a_small_fetch_goes_by_value(objects: Objects) -> None:
    broker = Broker(objects)
    placed = PlacedBroker(broker, None, objects.reader)
    await placed.fetch(FetchOps([FetchOp("t", 0, 1, 1 << 20)], max_bytes=1000), None)
    assert [each.objects for each in broker.asked] == [False]
