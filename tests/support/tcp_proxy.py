"""A TCP proxy on 127.0.0.1 that can stall, cut and change what passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

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

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        self.connections += 1
        there = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there[1]}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, there[1]))
                group.create_task(self._forward(there[0], writer, back=True))
        except* OSError:
            pass
        finally:
            for each in (writer, there[1]):
                each.transport.abort()
            self._writers -= {writer, there[1]}

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
        proxy.cut()
        proxy.flowing.set()
        await asyncio.sleep(0.01)
