"""A process on the broker's host at the socket for descriptors of the log's files."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from contextlib import ExitStack, suppress

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.descriptors import TOKEN_SIZE, encode_hello, socket_path
from quafka_mesh_ops.ops.places import OpenPlaces
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from quafka_telemetry.tracing import Tracer
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import produce

_AUTO = ("--mesh-records", "auto")
_CONNECTIONS = 300
_OF_ONE_NODE = 100
_ALLOWED = 64
"""Connections of one node."""
_LARGE = 200_000
"""Bytes: answers of this size are by place."""
_CONNECTS = 10.0
_GATEWAYS = "quafka_place_gateways"


def connected(arena: Arena) -> socket.socket:
    """A connection to the socket in the broker's data folder."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with socket_path(arena.cluster.data / "places") as path:
            connection.connect(path)  # with a timeout, it would not wait for a place in the queue
        connection.settimeout(10)
    except OSError:
        connection.close()
        raise
    return connection


def comes_to_places(arena: Arena) -> None:
    """The gateway has its connection, or gets one with its next fetch; nobody else has one."""
    until = time.monotonic() + _CONNECTS
    while arena.figures("broker")[_GATEWAYS] != 1:
        assert time.monotonic() < until, "the gateway has no connection for descriptors"
        time.sleep(0.1)


@attack("a process without a token sends garbage to the socket for descriptors",
        of_clients=False, part_of_tests=True, broker=_AUTO, gateway=_AUTO)  # fmt: skip
def garbage(arena: Arena) -> None:
    """Also hellos with wrong tokens, of another version, and with descriptors of its own."""
    chance = random.Random(7)
    hello = encode_hello(bytes(TOKEN_SIZE), 16)
    messages = (hello, hello[:-1], hello + b"\x00", b"QFKD\x02" + hello[5:], b"\x00" * 512)
    for number in range(500):
        sent = chance.choice((*messages, chance.randbytes(chance.choice((1, 41, 70_000)))))
        fds = [0] * 3 if number % 5 == 0 else []
        with suppress(ConnectionError), connected(arena) as one:
            socket.send_fds(one, [sent], fds)
            if number % 10 == 0:
                assert one.recv(1_000) == b"", "a process without a token was answered"
    comes_to_places(arena)


@attack("the socket for descriptors is full of idle connections; then a gateway connects",
        of_clients=False, part_of_tests=True, broker=_AUTO, gateway=_AUTO)  # fmt: skip
def full(arena: Arena) -> None:
    """A gateway with a token is welcome all the same."""
    comes_to_places(arena)
    with ExitStack() as stack:
        for _ in range(_CONNECTIONS):
            stack.enter_context(connected(arena))
        run(_welcome(arena))
    comes_to_places(arena)


async def _welcome(arena: Arena) -> None:
    async with asyncio.timeout(_CONNECTS):
        client = await _client(arena)
        try:
            answer = await client.call(OpenPlaces(), org_id=1, deadline=5)
            with connected(arena) as connection:
                connection.send(encode_hello(answer.token, 16))
                assert await asyncio.to_thread(connection.recv, 100)
        finally:
            await client.close()


@attack("a node opens a hundred connections for descriptors and reads none of its messages",
        of_clients=False, part_of_tests=True, broker=_AUTO, gateway=_AUTO)  # fmt: skip
def deaf(arena: Arena) -> None:
    """Each gets descriptors. The gateway, a node with the same key, keeps its connection."""
    comes_to_places(arena)
    topic = arena.topic()
    with arena.connect() as client:
        produce(client, topic, *[os.urandom(_LARGE) for _ in range(5)])
    with ExitStack() as stack:
        run(_deaf(arena, topic, stack))
        figures = arena.figures("broker")
        assert figures["quafka_handed_descriptors"] > 1, figures
        assert figures[_GATEWAYS] <= _ALLOWED, figures
    comes_to_places(arena)


async def _deaf(arena: Arena, topic: str, stack: ExitStack) -> None:
    client = await _client(arena)
    try:
        for _ in range(_OF_ONE_NODE):
            answer = await client.call(OpenPlaces(), org_id=1, deadline=5)
            connection = stack.enter_context(connected(arena))
            connection.send(encode_hello(answer.token, 1))
        for number in range(1, 2 * _OF_ONE_NODE):
            fetch = FetchOps([FetchOp(topic, 0, 0, 4 << 20)], places=number)
            found = await client.call(fetch, org_id=1, deadline=5)
            assert not found.partitions[0].error_code
    finally:
        await client.close()


async def _client(arena: Arena) -> MeshClient:
    client = MeshClient(*arena.mesh_address, arena.gateway_identity, {arena.broker_id}, Tracer())
    await client.start()
    assert await client.wait_connected(_CONNECTS)
    return client
