"""A Redis server that keeps to the protocol as far as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Self

Answers = Mapping[bytes, "Callable[[], Iterator[bytes]]"]
"""For a command's name, what makes the pieces of its answer."""


def once(data: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter((data,))


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


_POLITE: Answers = {
    b"ROLE": once(b"*1\r\n" + bulk(b"master")),
    b"INFO": once(bulk(b"redis_version:7.0.0\r\n")),
    b"SCRIPT": once(bulk(b"a" * 40)),
    b"CLIENT": once(b":1\r\n"),
}


class HostileServer:
    """Answers each command as `answers` has it: by its name, or by "" for all others.

    Attributes:
        sent: bytes of all answers.
        commands: the number of commands so far.
        passwords: those that clients have sent.
        connections: those open now.
    """

    def __init__(self, answers: Answers, greeting: bytes = b"", *, polite: bool = True) -> None:
        self._answers = {**(_POLITE if polite else {}), **answers}
        self._greeting = greeting
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent = self.commands = self.connections = 0
        self.passwords: set[bytes] = set()
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                writer.write(self._greeting)
                async for name, *words in _commands(reader):
                    self.commands += 1
                    if name == b"AUTH":
                        self.passwords.add(words[-1])
                    answer = self._answers.get(name) or self._answers.get(b"") or once(b"+OK\r\n")
                    for piece in answer():
                        self.sent += len(piece)
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0 if len(piece) > 1 else 0.05)
        finally:
            self.connections -= 1
            writer.close()


async def _commands(reader: asyncio.StreamReader) -> AsyncIterator[list[bytes]]:
    """The commands that a client sends, with their names in upper case."""
    while line := await reader.readline():
        words: list[bytes] = []
        for _ in range(int(line[1:])):
            size = int((await reader.readline())[1:])
            words.append((await reader.readexactly(size + 2))[:-2])
        yield [words[0].upper(), *words[1:]]
