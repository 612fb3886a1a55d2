"""Transports of real sockets are freed without a search for garbage."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from quafka_telemetry.loop_turns import LoopTurns


class _Server(asyncio.Protocol):
    def __init__(self, transports: list[weakref.ref[asyncio.BaseTransport]]) -> None:
        self._transports = transports
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(weakref.ref(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def _connect(*, aborts: bool) -> list[weakref.ref[asyncio.BaseTransport]]:
    """A connection begins and ends; returns its transports at both ends."""
    transports: list[weakref.ref[asyncio.BaseTransport]] = []
    ends: list[_Server] = []

    def accept() -> _Server:
        ends.append(_Server(transports))
        return ends[-1]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(accept, "127.0.0.1", 0)
    async with asyncio.timeout(60), server:
        transport, client = await loop.create_connection(
            lambda: _Server(transports), *server.sockets[0].getsockname()
        )
        transport.write(b"some bytes")
        if aborts:
            transport.abort()
        else:
            transport.close()
        del transport
        await client.ended
        while not ends:
            await asyncio.sleep(0)
        await ends[0].ended
        for _ in range(3):  # the loop drops what it called last
            await asyncio.sleep(0)
    return transports


@pytest.mark.parametrize("aborts", [False, True])
def test_a_lost_connection_leaves_no_transport(aborts: bool) -> None:
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=LoopTurns().new_loop) as runner:
            transports = runner.run(_connect(aborts=aborts))
            assert [each() for each in transports] == [None, None]
    finally:
        gc.enable()
