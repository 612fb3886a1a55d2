"""Which segments are handed over, to whom, and what else happens at the socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quafka_broker.ops import fetch
from quafka_broker.places import descriptor_server, places
from quafka_broker.places.places import LEAST_BYTES
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_mesh_ops import descriptors
from quafka_mesh_ops.descriptors import (
    DescriptorMessage,
    DescriptorMessageKind,
    encode_hello,
    socket_path,
)
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.grants import Grant, parse_entry
from quafka_mesh_ops.ops.places import extents_of
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.records import base_offset
from tests.unit.broker.tools import ORG, checked, context, running_state

BIG = 100_000
PEER = context().peer
NODE = "ab" * 32


class World:
    """A broker on real files, whose grants can change, and a gateway's socket."""

    def __init__(self, state: BrokerState, folder: Path) -> None:
        self.state = state
        self.grant: Grant = (parse_entry(NODE),)
        state.places.start(folder, lambda node: self.grant if node == PEER else ())
        self.sockets: list[socket.socket] = []

    async def connect(self, token: bytes | None = None, most: int = 16) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets.append(connection)
        connection.setblocking(False)
        named = self.state.places.open(PEER)
        with socket_path(Path(named.folder)) as path:
            connection.connect(path)
        connection.send(encode_hello(named.token if token is None else token, most))
        return connection

    async def opened(self, most: int = 16) -> tuple[socket.socket, int]:
        connection = await self.connect(most=most)
        welcome = await received(connection)
        assert welcome.kind is DescriptorMessageKind.WELCOME
        return connection, welcome.number

    async def produce(self, *sizes: int, topic: str = "t") -> None:
        found = self.state.registry.find(ORG, topic, b"")
        assert found is not None
        partition = self.state.log.partitions.get(found.partition_id(0))
        for size in sizes:
            await self.state.log.queue.append(partition, checked(os.urandom(size)))

    async def fetch(self, number: int, offset: int = 0, most: int = 8 << 20) -> FetchOpResp:
        op = FetchOps([FetchOp("t", 0, offset, most)], places=number)
        return (await fetch.handle(self.state, context(), op)).partitions[0]


async def received(connection: socket.socket) -> DescriptorMessage:
    async with asyncio.timeout(5):
        while (found := descriptors.receive_message(connection)) is None:
            await asyncio.sleep(0.001)
    return found


async def is_closed(connection: socket.socket) -> bool:
    async with asyncio.timeout(5):
        while True:
            try:
                if descriptors.receive_message(connection) is None:
                    await asyncio.sleep(0.001)
            except (EOFError, ConnectionError):
                return True


@asynccontextmanager
async def running(folder: Path, segment_bytes: int = 1 << 20) -> AsyncIterator[World]:
    (folder / "wal").mkdir(exist_ok=True)
    disk = RealDisk(folder / "wal")
    async with running_state(disk, segment_bytes=segment_bytes) as state:
        if state.registry.find(ORG, "t", b"") is None:
            await state.topics.create(ORG, "t", 1)
        world = World(state, folder)
        try:
            yield world
        finally:
            state.places.close()
            for connection in world.sockets:
                connection.close()


async def test_an_answer_by_place_is_the_answer_by_value(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        connection, number = await world.opened()
        await world.produce(BIG, 10, BIG)
        by_value, by_place = await world.fetch(0), await world.fetch(number)
        assert by_value.places is None
        assert by_place.records == []
        handed = await received(connection)
        assert handed.key == by_place.places[0].key if by_place.places else False
        extents = extents_of(by_place.places)
        found = [os.pread(handed.fd, each.length, each.position) for each in extents]
        assert found == [bytes(batch) for batch in by_value.records]
        assert [each.base_offset for each in extents] == list(map(base_offset, found)) == [0, 1, 2]
        with pytest.raises(OSError):
            os.write(handed.fd, b"x")
        os.close(handed.fd)
        again = await world.fetch(number)
        assert again == by_place
        assert descriptors.receive_message(connection) is None  # handed over once
        assert world.state.places.descriptors == 1


async def test_small_answers_and_unknown_connections_go_by_value(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        _, number = await world.opened()
        await world.produce(LEAST_BYTES // 2)
        assert (await world.fetch(number)).places is None
        await world.produce(LEAST_BYTES)
        assert (await world.fetch(number)).places is not None
        assert (await world.fetch(number + 1)).places is None
        assert world.state.places.connection("another node", number) is None


async def test_bytes_of_an_earlier_run_go_by_value_until_they_are_verified(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.produce(*[BIG] * 15)
    async with running(tmp_path) as world:
        _, number = await world.opened()
        first = await world.fetch(number)
        assert first.records
        async with asyncio.timeout(5):
            while not (await world.fetch(number)).places:
                await asyncio.sleep(0.01)


async def test_a_damaged_segment_is_never_by_place(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.produce(*[BIG] * 5)
    (log,) = (tmp_path / "wal").glob("*.log")
    with log.open("r+b") as file:
        file.seek(250_000)
        file.write(b"damage")
    async with running(tmp_path) as world:
        _, number = await world.opened()
        for _ in range(20):
            answer = await world.fetch(number)
            assert answer.places is None
            assert len(answer.records) == 2
            assert (await world.fetch(number, 2)).error_code == ErrorCode.CORRUPT_MESSAGE
            await asyncio.sleep(0.01)


async def test_a_segment_that_is_found_damaged_is_withdrawn(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        connection, number = await world.opened()
        await world.produce(*[BIG] * 5)
        assert (await world.fetch(number)).places is not None
        (path,) = (tmp_path / "wal").glob("*.log")
        with path.open("r+b") as file:
            file.seek(250_000)
            file.write(b"damage")
        assert (await world.fetch(0, 2)).error_code == ErrorCode.CORRUPT_MESSAGE
        os.close((await received(connection)).fd)
        assert (await received(connection)).kind is DescriptorMessageKind.WITHDRAWN
        assert (await world.fetch(number)).places is None


async def test_a_node_of_few_orgs_gets_no_file_with_others_or_the_brokers_own(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        _, number = await world.opened()
        world.grant = (parse_entry(f"{NODE} orgs={ORG}"),)
        await world.produce(*[BIG] * 25)
        assert (await world.fetch(number)).places is None  # the registry is in it
        sealed = await world.fetch(number, 13, 300_000)  # of this org alone
        assert sealed.places is not None
        assert (await world.fetch(number, 24)).places is None  # active
        world.grant = (parse_entry(f"{NODE} orgs={ORG + 1}"),)
        world.state.places.enforce()
        assert world.state.places.gateways == 0


async def test_a_revocation_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        connection, number = await world.opened()
        await world.produce(BIG)
        assert (await world.fetch(number)).places is not None
        world.grant = ()
        world.state.places.enforce()
        os.close((await received(connection)).fd)
        assert (await received(connection)).kind is DescriptorMessageKind.REVOKED
        assert await is_closed(connection)
        assert (await world.fetch(number)).places is None


async def test_more_segments_than_a_gateway_holds(tmp_path: Path) -> None:
    async with running(tmp_path, segment_bytes=1 << 17) as world:
        connection, number = await world.opened(most=2)
        await world.produce(*[BIG] * 8)
        for offset in range(7):
            answer = await world.fetch(number, offset, BIG + 100)
            assert answer.places is not None
        kinds: list[DescriptorMessageKind] = []
        held = 0
        while (found := descriptors.receive_message(connection)) is not None:
            kinds.append(found.kind)
            held += (found.kind is DescriptorMessageKind.HANDED) - (
                found.kind is DescriptorMessageKind.WITHDRAWN
            )
            assert held <= 2
            if found.fd >= 0:
                os.close(found.fd)
        assert DescriptorMessageKind.WITHDRAWN in kinds


async def test_tokens_are_good_once_and_for_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as world:
        token = world.state.places.open(PEER).token
        first = await world.connect(token)
        assert (await received(first)).kind is DescriptorMessageKind.WELCOME
        assert await is_closed(await world.connect(token))
        assert await is_closed(await world.connect(bytes(32)))
        monkeypatch.setattr(descriptor_server, "_TOKEN_SECONDS", -1.0)
        assert await is_closed(await world.connect())
        assert world.state.places.refused == 3
        assert world.state.places.gateways == 1


async def test_other_users_and_silent_or_garbled_peers_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptor_server, "_HELLO_SECONDS", 0.1)
    async with running(tmp_path) as world:
        bystander, number = await world.opened()
        await world.produce(BIG)
        silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        world.sockets.append(silent)
        silent.setblocking(False)
        with socket_path(tmp_path / descriptor_server.FOLDER) as path:
            silent.connect(path)
        assert await is_closed(silent)
        liar, _ = await world.opened()
        liar.send(b"more")
        assert await is_closed(liar)
        with monkeypatch.context() as patch:
            patch.setattr(descriptors, "same_user", lambda _: False)
            assert await is_closed(await world.connect())
        assert (await world.fetch(number)).places is not None
        os.close((await received(bystander)).fd)


async def test_a_crowd_without_a_hello_does_not_keep_a_gateway_out(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        with socket_path(tmp_path / descriptor_server.FOLDER) as path:
            for _ in range(100):
                silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                world.sockets.append(silent)
                silent.setblocking(False)
                silent.connect(path)
                await asyncio.sleep(0)
        await world.opened()


async def test_a_gateway_that_never_reads_has_its_records_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LEAST_BYTES", 1)
    async with running(tmp_path, segment_bytes=1 << 16) as world:
        connection, number = await world.opened(most=1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        await world.produce(*[70_000] * 4)
        for turn in range(100_000):
            answer = await world.fetch(number, turn % 3, 80_000)
            if answer.places is None:
                break
        assert answer.records
        assert world.state.places.gateways == 0


async def test_the_folder_is_private_and_of_this_user(tmp_path: Path) -> None:
    folder = tmp_path / descriptor_server.FOLDER
    folder.mkdir(mode=0o777)
    async with running(tmp_path):
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(OSError):
        async with running(tmp_path):
            pass


def test_a_hello_for_too_many_descriptors_is_refused() -> None:
    with pytest.raises(ProtocolError):
        descriptors.decode_hello(encode_hello(bytes(32), 1 << 30))
