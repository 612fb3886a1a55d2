"""What the least of such a hop costs in Python: two processes that do nothing but pass bytes on.

A bare asyncio TCP server takes a request's bytes, packs them with msgpack, seals them with AES-GCM
and sends them as one datagram over loopback; a second process opens and unpacks it, writes the
bytes to a file if there is an fsync to be made, and answers in the same way. No QUIC, no loss, no
Kafka, no order, no checks, no offsets. Requests that arrive in one turn share one datagram and one
fsync. The load is that of `python -m tests.bench kafka --only loads`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from quafka_mesh_ops.payloads import msgpack
from tests.bench.peers import Server
from tests.bench.rows.loads import ROWS
from tests.bench.rows.row import table

Message = tuple[int, bytes]
"""The number of a connection, and the bytes of a request or response."""
_KEY = AESGCM(bytes(16))
_MOST = 60_000
"""Bytes of a datagram."""
_TOGETHER = 200
"""Messages of a datagram."""
_ANSWER = bytes(60)
"""About as long as a Produce response."""


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench floor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    options = parser.parse_args(arguments)
    names = ("floor-fsynced", "floor")
    rows = [replace(row, prepare=None, servers=names) for row in ROWS]
    with floor("floor-fsynced") as synced, floor("floor") as plain:
        table(rows, [synced, plain], options.seconds, options.rounds)


@contextmanager
def floor(name: str) -> Generator[Server]:
    """Both processes."""
    kinds = ("log" if name.endswith("fsynced") else "echo", "hop")
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[str]] = []
        port = ""
        try:
            for kind in kinds:
                command = [sys.executable, "-m", __name__, kind, port, folder]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                processes.append(process)
                assert process.stdout is not None
                port = process.stdout.readline().strip()
            yield Server(name, f"127.0.0.1:{port}", tuple(each.pid for each in processes))
        finally:
            for process in processes:
                process.kill()
                process.communicate()


# --- the processes -----------------------------------------------------------------------------


class _Link:
    """One end of the hop: messages of one turn in one sealed datagram."""

    def __init__(self, received: Callable[[list[Message]], None]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self._received = received
        self._waiting: list[Message] = []
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.socket, self._read)

    def send(self, message: Message) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(message)

    def _flush(self) -> None:
        for at in range(0, len(self._waiting), _TOGETHER):
            self._number += 1
            nonce = self._number.to_bytes(12, "big")
            message: bytes = msgpack.packb(self._waiting[at : at + _TOGETHER])
            self.socket.send(nonce + _KEY.encrypt(nonce, message, None))
        self._waiting = []

    def _read(self) -> None:
        try:
            datagram, peer = self.socket.recvfrom(_MOST)
        except (BlockingIOError, ConnectionRefusedError):
            return
        if self._number == 0:
            self.socket.connect(peer)
        self._received(msgpack.unpackb(_KEY.decrypt(datagram[:12], datagram[12:], None)))


class _Client(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, link: _Link, clients: list[_Client]) -> None:
        self._link = link
        self._number = len(clients)
        clients.append(self)
        self._frame = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._frame += data
        if len(self._frame) == 4 + int.from_bytes(self._frame[:4], "big"):
            self._link.send((self._number, bytes(self._frame)))
            self._frame.clear()


async def _hop(port: str, _folder: str) -> None:
    clients: list[_Client] = []

    def answered(messages: list[Message]) -> None:
        for number, answer in messages:
            clients[number].transport.write(len(answer).to_bytes(4, "big") + answer)

    link = _Link(answered)
    link.socket.connect(("127.0.0.1", int(port)))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        partial(_Client, link, clients), "127.0.0.1", 0, backlog=2_000
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def _broker(fd: int | None) -> None:
    def asked(messages: list[Message]) -> None:
        if fd is not None:
            os.writev(fd, [request for _, request in messages])
            os.fdatasync(fd)
        for number, _ in messages:
            link.send((number, _ANSWER))

    link = _Link(asked)
    link.socket.bind(("127.0.0.1", 0))
    print(link.socket.getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def _echo(_port: str, _folder: str) -> None:
    await _broker(None)


async def _log(_port: str, folder: str) -> None:
    await _broker(os.open(Path(folder) / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND))


if __name__ == "__main__":
    _KINDS = {"hop": _hop, "echo": _echo, "log": _log}
    asyncio.run(_KINDS[sys.argv[1]](*sys.argv[2:]))
