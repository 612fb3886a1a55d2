"""Datagrams to the broker from nobody that it knows."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from quafka_broker.config.settings import BrokerConfig
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError
from quafka_mesh_ops.frames import PieceKind, encode_piece
from quafka_mesh_ops.gateway_session import MAX_REQUEST_BYTES
from quafka_mesh_ops.ops.cluster import ClusterMap, LookAtShards, OpenShard
from quafka_mesh_ops.ops.snapshots import PinSnapshot, UnpinSnapshot
from quafka_mesh_ops.pieces import PIECE_BYTES
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import Tracer
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack

_PARKED = 32
"""Questions for the map that a broker parks for one node."""
_PER_SECOND = 1_800
_SECONDS = 2.0
_ATTACK_SECONDS = 60.0
_CONNECTS = 10.0
"""Seconds; on a machine with nothing else to do it takes a tenth of one."""


def initial(address: tuple[str, int]) -> bytes:
    """The first datagram of a handshake that nobody will go on with."""
    configuration = QuicConfiguration(
        alpn_protocols=["quafka-mesh/1"], verify_mode=ssl.CERT_NONE, is_client=True
    )
    connection = QuicConnection(configuration=configuration)
    connection.connect(address, 0.0)
    return connection.datagrams_to_send(0.0)[0][0]


class Flood:
    """Initials from many addresses of this machine, in a thread."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._datagrams = [initial(address) for _ in range(200)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        chance = random.Random(7)
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
        for number, one in enumerate(sockets):
            one.bind((f"127.1.{number // 100}.{number % 100 + 1}", 0))
        began = time.monotonic()
        while not self._over.is_set():
            for _ in range(20):
                datagram = bytearray(chance.choice(self._datagrams))
                chance.choice(sockets).sendto(datagram, self._address)
                self.sent += 1
            time.sleep(max(0.0, began + self.sent / _PER_SECOND - time.monotonic()))
        for one in sockets:
            one.close()


@attack("QUIC Initials come from addresses that never answer; then a gateway connects", "12",
        of_clients=False, part_of_tests=True)  # fmt: skip
def spoofed(arena: Arena) -> None:
    """A gateway that the broker allows connects during the flood (it once took 22 s)."""
    with Flood(arena.mesh_address):
        time.sleep(_SECONDS)
        for _ in range(2):
            began = time.monotonic()
            run(_connects(arena))
            took = time.monotonic() - began
            assert took < _CONNECTS, f"a gateway waited for {took:.1f} s"


async def _connects(arena: Arena) -> None:
    client = MeshClient(*arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer())
    await client.start()
    try:
        assert await client.wait_connected(30)
    finally:
        await client.close()


@attack("garbage datagrams come to the mesh", part_of_tests=True,
        of_clients=False)  # fmt: skip
def garbage(arena: Arena) -> None:
    chance = random.Random(7)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _ in range(5_000):
            one.sendto(chance.randbytes(chance.choice((1, 20, 1_200, 1_452))), arena.mesh_address)
            if chance.random() < 0.05:
                time.sleep(0.001)


@attack("a node pins the log again and again, and never lets go", "13", part_of_tests=True,
        of_clients=False)  # fmt: skip
def pins(arena: Arena) -> None:
    """It gets as many pins as `snapshot.pins.max`, and then an error."""
    run(_pins(arena))


async def _pins(arena: Arena) -> None:
    host, port = arena.mesh_address
    client = MeshClient(host, port, arena.gateway_identity, {arena.broker_id}, Tracer())
    await client.start()
    names: list[str] = []
    refusals: list[int] = []
    try:
        for _ in range(40):
            try:
                names.append((await client.call(PinSnapshot(), org_id=1, deadline=30)).pin)
            except OpFailedError as e:
                refusals.append(e.error_code)
        assert len(names) == BrokerConfig.snapshot_pins_max
        assert set(refusals) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    finally:
        for name in names:
            await client.call(UnpinSnapshot(name), org_id=1, deadline=30)
        await client.close()


@attack("a node parks questions for the cluster's map, and asks for shards that are not there",
        part_of_tests=True, of_clients=False)  # fmt: skip
def cluster_map(arena: Arena) -> None:
    """A few of its questions stay parked; the others are answered at once."""
    run(_cluster_map(arena))


async def _cluster_map(arena: Arena) -> None:
    host, port = arena.mesh_address
    client = MeshClient(host, port, arena.gateway_identity, {arena.broker_id}, Tracer())
    await client.start()
    try:
        known = (await client.call(ClusterMap(), org_id=1, deadline=30)).version
        questions = [
            asyncio.ensure_future(client.call(ClusterMap(known, wait), org_id=1, deadline=90))
            for wait in (1 << 31, 60_000) * 1_000
        ]
        async with asyncio.timeout(30):
            while sum(not each.done() for each in questions) > _PARKED:
                await asyncio.sleep(0.01)
        for each in questions:
            each.cancel()
        await asyncio.gather(*questions, return_exceptions=True)
        for op in (OpenShard(-1), OpenShard(7), OpenShard((1 << 63) - 1), LookAtShards(1 << 62)):
            with pytest.raises(OpFailedError):
                await client.call(op, org_id=1, deadline=30)
    finally:
        await client.close()


@attack("a node begins large ops in pieces and finishes none", "33", of_clients=False)
def pieces(arena: Arena) -> None:
    """It loses its connection at the limit of a connection, and the broker has the memory back."""
    run(_pieces(arena))


async def _pieces(arena: Arena) -> None:
    client = MeshClient(*arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer())
    await client.start()
    try:
        assert await client.wait_connected(_CONNECTS)
        session = client._connector.session
        assert session is not None
        for number in range(MAX_REQUEST_BYTES // PIECE_BYTES + 1):
            piece = encode_piece(number, PieceKind.MORE, [bytes(PIECE_BYTES)])
            session.connection.write(0, piece)
        async with asyncio.timeout(_ATTACK_SECONDS):
            reason = await asyncio.shield(session.over)
        assert reason.startswith(f"more than {MAX_REQUEST_BYTES} bytes"), reason
    finally:
        await client.close()


@attack("a node makes connections until no more are admitted", "33", of_clients=False,
        broker=("--mesh-max-connections-per-node", "40"))  # fmt: skip
def connections(arena: Arena) -> None:
    """It gets as many as one node may have; the gateway, of the same node, keeps its own."""
    run(_connections(arena))


async def _connections(arena: Arena) -> None:
    clients = [
        MeshClient(*arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer())
        for _ in range(80)
    ]
    try:
        for each in clients:
            await each.start()
        admitted = [await each.wait_connected(1.0) for each in clients]
        assert 30 <= sum(admitted) <= 40
        assert all(each.counters().refusal for each in clients if not each.connected)
    finally:
        await asyncio.gather(*(each.close() for each in clients))
