"""`python -m tests.bench.slow_store PORT MEDIAN_MS`: an HTTP server on loopback, made slow.

Forwards to a port; the first byte of each answer is late by a lognormal time. It prints its own
port, and for each line on its input the number of requests by method so far, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

_SIGMA = 0.4
_HIGH_WATER = 64 << 20


class SlowStore:
    """The process, from its parent's side."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    def requests(self) -> Counter[str]:
        """Requests by method since the start."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return Counter(cast("dict[str, int]", json.loads(self._line())))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def slow_store(port: int, median_ms: float) -> Generator[SlowStore]:
    """Run the process."""
    words = [sys.executable, "-m", __name__, str(port), str(median_ms)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield SlowStore(process)
        finally:
            process.kill()


# --- the process ---------------------------------------------------------------------------------


class _Server(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class _Client(asyncio.Protocol):
    """The connection of a client, which sends one request at a time."""

    def __init__(self, port: int, median_ms: float, counts: Counter[str]) -> None:
        self._port, self._median, self._counts = port, median_ms / 1_000, counts
        self._server: asyncio.Transport | None = None
        self._asked = self._ended = False
        self._held: list[bytes] = []
        """Of the request before the server is connected, or of an answer that is late."""
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_connection(lambda: _Server(self), "127.0.0.1", self._port)
        self._server = server
        held, self._held = self._held, []
        server.writelines(held)

    def data_received(self, data: bytes) -> None:
        if not self._asked:
            self._asked = True
            self._counts[data.partition(b" ")[0].decode()] += 1
        if self._server is None:
            self._held.append(data)
        else:
            self._server.write(data)

    def answered(self, data: bytes) -> None:
        """A piece of an answer has come."""
        if self._asked:
            self._asked = False
            if self._median:
                wait = random.lognormvariate(math.log(self._median), _SIGMA)
                self._late = asyncio.get_running_loop().call_later(wait, self._pass)
        if self._late is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def _pass(self) -> None:
        self._late = None
        held, self._held = self._held, []
        self._transport.writelines(held)
        if self._ended:
            self._transport.close()

    def close(self) -> None:
        """The server has closed its connection."""
        self._ended = True
        if self._late is None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connecting.cancel()
        if self._server is not None:
            self._server.close()


async def _serve(port: int, median_ms: float) -> None:
    loop, counts = asyncio.get_running_loop(), Counter[str]()
    server = await loop.create_server(lambda: _Client(port, median_ms, counts), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
