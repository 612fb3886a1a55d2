"""Connections to the broker's TCP port for bulk answers, from nobody that it knows."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from contextlib import ExitStack, suppress

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.bulk.chunks import OPENING
from quafka_mesh_ops.client import MeshClient
from quafka_telemetry.tracing import Tracer
from tests.hostile.arena import Arena, run
from tests.hostile.catalogue import attack
from tests.support.prometheus import get

_TLS = ("--mesh-bulk", "tls")
_CONNECTIONS = 300
_SECONDS = 6.0
"""Longer than a handshake may take."""
_CONNECTS = 10.0


def over_tls(arena: Arena) -> bool:
    """Whether the gateway's bulk answers travel over TLS now."""
    _, _, body = get(str(arena.cluster.gateway.ready["operations"]), "/mesh")
    return bool(json.loads(body)["peers"][0]["bulk_over_tls"])


def comes_to_tls(arena: Arena) -> None:
    """The gateway has its TLS connection, or gets one soon."""
    until = time.monotonic() + _CONNECTS
    while not over_tls(arena):
        assert time.monotonic() < until, "bulk answers do not travel over TLS"
        time.sleep(0.05)


@attack("garbage comes to the port for bulk answers", part_of_tests=True,
        of_clients=False, broker=_TLS, gateway=_TLS)  # fmt: skip
def garbage(arena: Arena) -> None:
    """Also garbage that begins well, and TLS without an offer."""
    chance = random.Random(7)
    begins = (b"", OPENING, OPENING + bytes(16), b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n")
    for _ in range(500):
        sent = chance.choice(begins) + chance.randbytes(chance.choice((1, 40, 70_000)))
        with suppress(ConnectionError), socket.create_connection(arena.mesh_address, 10) as one:
            one.sendall(sent)
    comes_to_tls(arena)


@attack("connections to the port for bulk answers send one byte a second", part_of_tests=True,
        of_clients=False, broker=_TLS, gateway=_TLS)  # fmt: skip
def slow(arena: Arena) -> None:
    """They are closed at the deadline, and others get in meanwhile."""
    run(_slow(arena))
    comes_to_tls(arena)


async def _slow(arena: Arena) -> None:
    async def crawl() -> float:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection(*arena.mesh_address)
        opening = OPENING + bytes(15)
        for byte in opening:
            writer.write(bytes([byte]))
            try:
                async with asyncio.timeout(1.0):
                    assert await reader.read(1) == b""
            except ConnectionError:
                pass
            except TimeoutError:
                continue
            break
        writer.transport.abort()
        return time.monotonic() - began

    lives = await asyncio.gather(*[crawl() for _ in range(100)])
    assert max(lives) < 4 * _SECONDS, max(lives)


@attack("the port for bulk answers is full of idle connections; then the gateway connects",
        of_clients=False, part_of_tests=True, broker=_TLS, gateway=_TLS)  # fmt: skip
def full(arena: Arena) -> None:
    """It gets its TLS connection all the same."""
    with ExitStack() as stack:
        for _ in range(_CONNECTIONS):
            stack.enter_context(socket.create_connection(arena.mesh_address, 10))
        run(_connects(arena))
    comes_to_tls(arena)


async def _connects(arena: Arena) -> None:
    client = MeshClient(
        *arena.mesh_address,
        arena.gateway_identity,
        {arena.broker_id},
        Tracer(),
        bulk=BulkCarrier.TLS,
    )
    await client.start()
    try:
        async with asyncio.timeout(_CONNECTS):
            while not client.counters().bulk_over_tls:
                await asyncio.sleep(0.01)
    finally:
        await client.close()
