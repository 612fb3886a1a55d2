"""Logs in for attackers: what they send on a plain connection arrives behind TLS and SCRAM.

`python -m tests.hostile.relay HOST PORT CA USER PASSWORD` writes the port at which it listens. Each
connection there becomes one of the gateway's listener, from the same address, that logs in before
a byte passes. The first bytes that clients have sent are kept. Each line on standard input is a
path: once the connections have ended, what was kept since the last one is written there, to be sent
again without a login (`before_login.py`). It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self
from unittest.mock import patch

from quafka_client import scram
from quafka_client.sasl import Credentials
from tests.support.raw_group import Connection
from tests.support.sasl_users import log_in

MECHANISM = "SCRAM-SHA-256"
KEPT_BYTES = 64 << 10
"""Of each connection: more than a gateway reads before a login."""
_MOST_KEPT = 400
"""Different beginnings."""
_LOGINS_AT_ONCE = 50
"""Below `max.unauthenticated.connections.per.ip`."""
_CHUNK = 1 << 18
_SETTLE_SECONDS = 60.0
_ACCEPTED_SECONDS = 0.1
"""After this long, those that wait to be accepted have been."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Recording = Counter[bytes]
"""What connections began with, and how many did."""


class Relay:
    """The process, as the runner sees it; a context manager."""

    def __init__(
        self, address: tuple[str, int], authority: Path, user: str, password: str, log: Path
    ) -> None:
        command = [sys.executable, "-m", "tests.hostile.relay", address[0], str(address[1])]
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [*command, str(authority), user, password],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self._file = log.with_suffix(".recorded")
        self.address = ("127.0.0.1", int(self._line()))

    def recorded(self) -> Recording:
        """What connections have begun with since the last call. Waits until they have ended."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{self._file}\n")
        self._line()
        found: Recording = pickle.loads(self._file.read_bytes())
        return found

    def _line(self) -> str:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, "the relay has ended"
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()


class _Relaying:
    """The connections."""

    def __init__(self, host: str, port: int, authority: str, credentials: Credentials) -> None:
        self._there = host, port
        self._tls = ssl.create_default_context(cafile=authority)
        self._credentials = credentials
        self._logins = asyncio.Semaphore(_LOGINS_AT_ONCE)
        self._open: set[asyncio.Task[None]] = set()
        self.kept: Recording = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Log in, then pass everything on until either side ends."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        try:
            async with self._logins:
                there = await self._logged_in(writer.get_extra_info("peername")[0])
        except (OSError, AssertionError, asyncio.IncompleteReadError):
            writer.transport.abort()
            return
        begun = bytearray()
        passing = [
            asyncio.ensure_future(_pass(reader, there[1], self._keeper(begun))),
            asyncio.ensure_future(_pass(there[0], writer, None)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in passing:
                each.cancel()
            there[1].transport.abort()
            writer.close()
            if begun and (bytes(begun) in self.kept or len(self.kept) < _MOST_KEPT):
                self.kept[bytes(begun)] += 1

    async def take(self) -> Recording:
        """What was kept, once the connections have ended, which clients have left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await asyncio.sleep(_ACCEPTED_SECONDS)
                while self._open:
                    await asyncio.wait(self._open)
                    await asyncio.sleep(_ACCEPTED_SECONDS)
        kept, self.kept = self.kept, Counter()
        return kept

    async def _logged_in(self, source: str) -> Streams:
        there = await asyncio.open_connection(
            *self._there, ssl=self._tls, local_addr=(source, 0), limit=_CHUNK
        )
        await log_in(Connection(*there), self._credentials)
        return there

    def _keeper(self, begun: bytearray) -> Callable[[bytes], None]:
        def keep(data: bytes) -> None:
            if len(begun) < KEPT_BYTES:
                begun.extend(data[: KEPT_BYTES - len(begun)])

        return keep


async def _pass(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    keep: Callable[[bytes], None] | None,
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            if keep is not None:
                keep(data)
            writer.write(data)
            await writer.drain()


async def _main(host: str, port: str, authority: str, user: str, password: str) -> None:
    relaying = _Relaying(host, int(port), authority, Credentials(MECHANISM, user, password))
    server = await asyncio.start_server(relaying.serve, "127.0.0.1", 0, limit=_CHUNK, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    while path := (await asyncio.to_thread(sys.stdin.readline)).strip():
        Path(path).write_bytes(pickle.dumps(await relaying.take()))
        print("written", flush=True)


if __name__ == "__main__":
    # All of them have one password: its 4,096 rounds are an attacker's to save, too.
    with patch.object(scram, "salted_password", cache(scram.salted_password)):
        asyncio.run(_main(*sys.argv[1:]))
