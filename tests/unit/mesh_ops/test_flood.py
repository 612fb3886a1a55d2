"""Floods of first packets: gateways connect in spite of them, and ops continue."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from quafka_loop import sockets
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.server import MeshServer
from quafka_mesh_ops.transport import admission
from quafka_mesh_ops.transport.admission import MAX_UNPROVEN
from quafka_telemetry.tracing import Tracer
from tests.support.quic_flood import client_hello, garbage
from tests.support.virtual.threads import current_hub
from tests.unit.mesh_ops.mesh import Broker, fetch_of, new_identity

PATIENCE = 30.0
OURS = new_identity()


class Served:
    """A broker's end, and gateways that connect to it."""

    def __init__(self, handshake_deadline: float = 5.0) -> None:
        self._identity = new_identity()
        self.server = MeshServer(
            self._identity, {OURS.node_id}, Broker().handlers(), Tracer(),
            handshake_deadline=handshake_deadline,
        )  # fmt: skip
        self.port = 0

    @property
    def connections(self) -> int:
        return len(self.server._listener._connections)

    def client(self, batched: bool = True) -> MeshClient:
        return MeshClient(
            "127.0.0.1", self.port, OURS, {self._identity.node_id}, Tracer(), batched=batched
        )

    @asynccontextmanager
    async def gateway(self, batched: bool = True) -> AsyncIterator[MeshClient]:
        client = self.client(batched)
        await client.start()
        try:
            assert await client.wait_connected(PATIENCE)
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def served(handshake_deadline: float = 5.0) -> AsyncIterator[Served]:
    found = Served(handshake_deadline)
    _, found.port = await found.server.start("127.0.0.1", 0)
    yield found
    await found.server.close(0)


@contextmanager
def stranger(address: str = "127.0.0.1") -> Iterator[socket.socket]:
    with sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, 0))
        sock.setblocking(False)
        yield sock


@pytest.mark.parametrize("batched", [True, False])
async def test_a_gateway_that_is_asked_for_proof_connects_and_moves_bulk(
    batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_UNPROVEN", 0)
    async with served() as s, s.gateway(batched) as client:
        assert s.server.first_packets() == {"retried": 1, "admitted_proven": 1}
        answer = await client.call(fetch_of(3_000_000), org_id=1, deadline=5)
        assert sum(len(part.records[0]) for part in answer.partitions) == 3_000_000
        quic = client._connector.session.connection.quic  # type: ignore[union-attr]
        async with asyncio.timeout(5):
            while quic._loss.bytes_in_flight:
                await asyncio.sleep(0.01)
        async with s.gateway():
            assert s.server.first_packets()["admitted_known"] == 1


async def test_what_cannot_be_opened_holds_no_slot() -> None:
    async with served() as s:
        with stranger() as sock:
            for _ in range(MAX_UNPROVEN - 1):
                sock.sendto(garbage(), ("127.0.0.1", s.port))
        async with s.gateway() as client:
            outcomes = s.server.first_packets()
            assert outcomes == {"admitted_unproven": MAX_UNPROVEN, "unreadable": MAX_UNPROVEN - 1}
            assert s.connections == 1
            assert await client.call(DescribeTopics(), org_id=1, deadline=1)


async def test_silent_senders_hold_slots_for_as_long_as_a_handshake_may_take() -> None:
    async with served(handshake_deadline=2.0) as s, s.gateway():
        with stranger() as sock:
            for _ in range(MAX_UNPROVEN + 4):
                sock.sendto(client_hello(), ("127.0.0.1", s.port))
            async with asyncio.timeout(20):
                while s.server.first_packets()["retried"] < 4:
                    await asyncio.sleep(0.01)
            assert s.connections == MAX_UNPROVEN + 1
            async with s.gateway() as client:
                assert isinstance(
                    await client.call(DescribeTopics(), org_id=1, deadline=1), DescribeTopicsResp
                )
            async with asyncio.timeout(10):
                while s.connections > 2:
                    await asyncio.sleep(0.01)


async def test_an_op_does_not_wait_for_the_handshakes_of_others() -> None:
    async with served() as s, s.gateway() as client:
        current_hub().reading_seconds = 0.002  # two readings for each step of a handshake
        others = [s.client() for _ in range(12)]
        for each in others:
            await each.start()
        listener = s.server._listener
        while len(listener._postponed) < 8:
            await asyncio.sleep(0)
        assert await client.call(DescribeTopics(), org_id=1, deadline=1)
        assert len(listener._handshakes) > 8
        assert all([await each.wait_connected(PATIENCE) for each in others])
        assert not listener._handshakes
        assert not listener._postponed_of
        for each in others:
            await each.close()


async def test_an_error_in_one_handshake_does_not_end_the_others() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
    async with served() as s:
        admit, refused = s.server._listener.limits.admit, list[str]()

        def admit_but_one(node: str) -> str | None:
            if not refused:
                refused.append(node)
                raise RuntimeError("once")
            return admit(node)

        s.server._listener.limits.admit = admit_but_one  # type: ignore[method-assign]
        clients = [s.client() for _ in range(8)]
        for each in clients:
            await each.start()
        assert all([await each.wait_connected(PATIENCE) for each in clients])
        assert not s.server._listener._postponed_of
        for each in clients:
            await each.close()
    assert len(reported) == 1


async def test_an_error_without_an_address_concerns_no_handshake() -> None:
    """The kernel's, of a gateway that is gone: its packets are read after a pause."""
    async with served() as s:
        clients = [s.client() for _ in range(6)]
        for each in clients:
            await each.start()
        listener = s.server._listener
        while not listener._postponed:
            await asyncio.sleep(0)
        listener._failed(OSError(errno.ECONNREFUSED, "Connection refused"), None)
        listener._writable()
        assert not any(each._transmits for each in listener._connections if not each.quic.is_open)
        assert all([await each.wait_connected(PATIENCE) for each in clients])
        for each in clients:
            await each.close()


async def test_a_sender_that_proves_nothing_gets_three_times_its_bytes_at_most() -> None:
    async with served(handshake_deadline=1.0) as s:
        with stranger() as sock:
            hello = client_hello()
            sock.sendto(hello, ("127.0.0.1", s.port))
            async with asyncio.timeout(5):
                while not s.connections:
                    await asyncio.sleep(0.01)
                while s.connections:  # the packet is repeated until then
                    await asyncio.sleep(0.01)
            received = 0
            while True:
                try:
                    received += len(sock.recv(65_536))
                except BlockingIOError:
                    break
            assert len(hello) < received <= 3 * len(hello)
