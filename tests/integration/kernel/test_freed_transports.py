"""Transports of real sockets are freed without a search for garbage, and bound what they keep."""

from __future__ import annotations

import asyncio
import gc
import socket
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


class _Paused(asyncio.Protocol):
    def __init__(self) -> None:
        self.paused = False

    def pause_writing(self) -> None:
        self.paused = True


async def _pieces_until_paused() -> int:
    """How many pieces of 64 KiB are written to a client that does not read; 0: to no end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport, protocol = await loop.create_connection(_Paused, sock=ours)
        try:
            for count in range(1, 1_000):
                transport.writelines([bytes(32 << 10)] * 2)
                if protocol.paused:
                    return count
        finally:
            transport.abort()
            await asyncio.sleep(0)
    return 0


def test_lines_of_a_client_that_does_not_read_pause_the_protocol() -> None:
    with asyncio.Runner(loop_factory=LoopTurns().new_loop) as runner:
        assert runner.run(_pieces_until_paused()) > 0
