"""A TCP proxy on 127.0.0.1 that can stall, cut and change what passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TcpProxy:
    """Forwards connections to a port.

    Attributes:
        port: where it listens.
        forwarded: bytes from the server, over all connections.
        connections: how many were accepted.
        flowing: cleared, nothing passes from the server.
        flip: the next byte from the server is inverted.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.forwarded = 0
        self.connections = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.flip = False
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        self.connections += 1
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._serving.add(task)
        self._writers.add(writer)
        try:
            await self._between(reader, writer)
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._serving.discard(task)

    async def finish(self) -> None:
        """Reset all connections, also those that are not forwarded yet, and wait for their end."""
        while self._serving:
            self.cut()
            self.flowing.set()
            await asyncio.wait(self._serving, timeout=0.05)

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(there[1])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, there[1]))
                group.create_task(self._forward(there[0], writer, back=True))
        finally:
            there[1].transport.abort()
            self._writers.discard(there[1])

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            if back:
                await self.flowing.wait()
                self.forwarded += len(data)
                if self.flip:
                    self.flip = False
                    data = bytes([data[0] ^ 0xFF]) + data[1:]
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def tcp_proxy(target: int) -> AsyncGenerator[TcpProxy]:
    """A running proxy to a port of 127.0.0.1."""
    proxy = TcpProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await _few_turns()  # a connection that was just accepted begins to be served
        await proxy.finish()
        await _few_turns()  # the aborted transports close their sockets


async def _few_turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)
