"""A reader of a broker that answers by place has the bytes and errors of one by value."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quafka_broker.ops import fetch
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.fetch import broker_files
from quafka_gateway.fetch.broker_files import BrokerFiles
from quafka_gateway.fetch.file_slice import in_memory, is_in_file
from quafka_gateway.fetch.placed_broker import PlacedBroker
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.memory import ResponseMemory
from quafka_mesh_ops import descriptors
from quafka_mesh_ops.descriptors import DescriptorMessageKind, encode_message
from quafka_mesh_ops.grants import everything
from quafka_mesh_ops.ops.places import ObjectPlace, OpenPlaces, OpenPlacesResp, pack_extents
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from tests.unit.broker.tools import ORG, checked, context, running_state
from tests.unit.gateway.near_broker import NearBroker

BIG = 100_000


class Near(NearBroker):
    """A broker that hands over descriptors."""

    async def open_places(self, op: OpenPlaces) -> OpenPlacesResp:
        return self.state.places.open(context().peer)


class Edge:
    """A reader of places, and one of the same broker by value."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.broker = Near(state)
        memory = ResponseMemory(256 << 20).of(1)
        self.files = BrokerFiles(self.broker.open_places)
        self.reader = FetchReader(self.broker, memory, 64 << 20, 4 << 20, files=self.files)
        self.plain = PlacedBroker(self.broker, None)

    async def produce(self, *sizes: int) -> None:
        found = self.state.registry.find(ORG, "t", b"")
        assert found is not None
        partition = self.state.log.partitions.get(found.partition_id(0))
        for size in sizes:
            await self.state.log.queue.append(partition, checked(os.urandom(size)))

    async def connect(self) -> None:
        await becomes(lambda: self.files.connection() > 0)

    async def fetch(self, offset: int, most: int = 1 << 20) -> FetchOpResp:
        op = FetchOps([FetchOp("t", 0, offset, most)], min_bytes=1, max_bytes=most)
        return (await self.reader.fetch(op, None))[0]

    async def by_value(self, offset: int, most: int = 1 << 20) -> FetchOpResp:
        op = FetchOps([FetchOp("t", 0, offset, most)], max_bytes=most)
        return (await self.plain.fetch(op, None)).partitions[0]


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(folder: Path, segment_bytes: int = 1 << 20) -> AsyncIterator[Edge]:
    (folder / "wal").mkdir(exist_ok=True)
    async with running_state(RealDisk(folder / "wal"), segment_bytes=segment_bytes) as state:
        await state.topics.create(ORG, "t", 1)
        state.places.start(folder, everything)
        edge = Edge(state)
        try:
            yield edge
        finally:
            await edge.reader.close()
            await edge.files.close()
            state.places.close()


def data(answer: FetchOpResp) -> list[bytes]:
    return [bytes(batch) for batch in in_memory(answer.records)]


async def test_answers_by_place_have_the_bytes_of_those_by_value(tmp_path: Path) -> None:
    chance = random.Random(18)
    async with running(tmp_path) as edge:
        await edge.connect()
        sizes = [chance.choice([10, 1_000, 20_000, BIG]) for _ in range(150)]
        await edge.produce(*sizes)
        for _ in range(60):
            offset, most = chance.randrange(150), chance.choice([70_000, 1 << 18, 1 << 20])
            placed, valued = await edge.fetch(offset, most), await edge.by_value(offset, most)
            assert (placed.error_code, placed.high_watermark) == (0, valued.high_watermark)
            some = min(len(placed.records), len(valued.records))
            assert some
            assert data(placed)[:some] == data(valued)[:some]
        assert edge.reader.placed.bytes_by_place > 0
        assert edge.reader.placed.missed == 0


async def test_large_batches_stay_in_their_files_and_take_no_cache(tmp_path: Path) -> None:
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 30)
        await edge.fetch(0)
        await asyncio.sleep(0.05)  # the lease
        for offset in range(0, 30, 5):
            answer = await edge.fetch(offset)
            assert all(is_in_file(batch) for batch in answer.records)
        assert edge.reader.cached_bytes < 50_000
        fetched = len(edge.broker.fetched)
        await edge.fetch(0)
        assert len(edge.broker.fetched) == fetched  # from the cache


async def test_a_withdrawn_file_is_read_by_value(tmp_path: Path) -> None:
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 8)
        before = await edge.fetch(0)
        segment = edge.state.log.verification
        (active,) = edge.state.log._contents.segments
        assert segment.is_good(active)
        original = fetch.handle

        async def withdrawn_meanwhile(op: FetchOps, trace: object) -> FetchOpsResp:
            answer = await original(edge.state, context(), op)
            if op.places:
                edge.state.log._contents.on_withdrawn(active)
                await becomes(lambda: not edge.files._files)
            return answer

        edge.broker.fetch = withdrawn_meanwhile  # type: ignore[method-assign]
        assert data(await edge.fetch(1))[:3] == data(before)[1:4]
        assert edge.reader.placed.missed == 1
        assert edge.files.descriptors == 1  # for answers that are being sent
        assert data(before)


async def test_a_revocation_closes_everything_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 8)
        answer = await edge.fetch(0)
        (connection,) = edge.state.places._connections()
        connection.revoke()
        await becomes(lambda: edge.files.descriptors == 0)
        with pytest.raises(OSError):
            in_memory(answer.records)
        after = await edge.fetch(0)
        assert len(data(after)) == len(answer.records)


async def test_a_broker_that_goes_leaves_what_is_being_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 8)
        answer = await edge.fetch(0)
        edge.state.places.close()
        await becomes(lambda: not edge.files._files)
        assert data(answer)
        assert len(data(await edge.fetch(0))) == len(answer.records)


async def test_an_answer_waits_for_its_descriptor_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_files, "_LATE_SECONDS", 0.05)
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 8)
        original = fetch.handle

        async def lies(op: FetchOps, trace: object) -> FetchOpsResp:
            if not op.places:
                return await original(edge.state, context(), op)
            place = ObjectPlace("unheard-of", pack_extents([(0, BIG, 0, 1)]))
            return FetchOpsResp([FetchOpResp([], 8, places=[place])])

        edge.broker.fetch = lies  # type: ignore[method-assign]
        assert len(data(await edge.fetch(0))) > 1
        assert edge.reader.placed.missed > 0


@pytest.mark.parametrize(
    "extents",
    [b"", b"garbage", pack_extents([(1 << 40, 100, 0, 1)] * 2), pack_extents([(0, 0, 0, 0)])],
)
async def test_garbled_places_are_read_by_value(tmp_path: Path, extents: bytes) -> None:
    async with running(tmp_path) as edge:
        await edge.connect()
        await edge.produce(*[BIG] * 8)
        good = await edge.fetch(0)
        assert is_in_file(good.records[0])
        key = good.records[0].file.key
        original = fetch.handle

        async def lies(op: FetchOps, trace: object) -> FetchOpsResp:
            if not op.places:
                return await original(edge.state, context(), op)
            return FetchOpsResp([FetchOpResp([], 8, places=[ObjectPlace(key, extents)])])

        edge.broker.fetch = lies  # type: ignore[method-assign]
        assert len(data(await edge.fetch(1, 1 << 17))) > 0


class Liar:
    """A socket where a broker's should be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(folder / descriptors.SOCKET))
        self.listening.listen(8)
        self.listening.setblocking(False)
        self.opened = 0

    async def open_places(self, op: OpenPlaces) -> OpenPlacesResp:
        self.opened += 1
        return OpenPlacesResp(str(self.folder), bytes(32))

    async def accept(self) -> socket.socket:
        connection, _ = await asyncio.get_running_loop().sock_accept(self.listening)
        return connection


async def test_a_broker_that_lies_at_the_socket_costs_nothing(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    liar = Liar(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(b"x")
    fd = os.open(path, os.O_RDONLY)
    try:
        for lies in (
            [(b"\xff", -1)],
            [(encode_message(DescriptorMessageKind.HANDED, "k"), fd)] * 2,
            [(encode_message(DescriptorMessageKind.HANDED, f"{n}"), fd) for n in range(300)],
            [(encode_message(DescriptorMessageKind.WITHDRAWN, "unheard-of"), -1), (b"\x00", -1)],
        ):
            files = BrokerFiles(liar.open_places)
            files.connection()
            connection = await liar.accept()
            descriptors.send(connection, encode_message(DescriptorMessageKind.WELCOME, number=7))
            for data_, each in lies:
                try:
                    descriptors.send(connection, data_, each)
                except OSError:
                    await asyncio.sleep(0.02)
            async with asyncio.timeout(10):
                while files._task is not None:
                    await asyncio.sleep(0.005)
            assert files.connection() == 0
            await files.close()
            connection.close()
    finally:
        os.close(fd)
        liar.listening.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize(
    "answer", [None, OpenPlacesResp(""), OpenPlacesResp("/no/such/folder", bytes(32))]
)
async def test_brokers_elsewhere_or_of_earlier_versions_are_asked_rarely(
    answer: OpenPlacesResp | None,
) -> None:
    asked = 0

    async def open_places(op: OpenPlaces) -> OpenPlacesResp:
        nonlocal asked
        asked += 1
        if answer is None:
            raise BrokerUnavailableError("an unknown op")
        return answer

    files = BrokerFiles(open_places)
    for _ in range(50):
        assert files.connection() == 0
        await asyncio.sleep(0.002)
    assert 1 <= asked <= 3
    await files.close()
