"""One org at full speed: `python -m tests.bench.flood HOST PORT KIND`, a process of its own.

It runs until it is killed, at the lowest priority: the neighbour need not wait for its own work.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.bench.load import PARTITIONS, TOPIC
from tests.support.kafka_calls import VERSION, produce_request

LARGE = 512 << 10
_READ = 1 << 20


@dataclass(frozen=True)
class Flood:
    """So many connections that have `depth` equal requests outstanding at all times."""

    connections: int
    depth: int
    request: Message
    version: int


def _fetch() -> FetchRequest:
    parts = [FetchPartition(partition=n, partition_max_bytes=8 << 20) for n in range(PARTITIONS)]
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=32 << 20,
        topics=[FetchTopic(topic=TOPIC, partitions=parts)],
    )


KINDS = {
    "produce": Flood(16, 4, produce_request(TOPIC, bytes(LARGE)), VERSION["produce"]),
    "small": Flood(500, 1, produce_request(TOPIC, bytes(100)), VERSION["produce"]),
    "requests": Flood(64, 50, ApiVersionsRequest(), 0),
    "fetch": Flood(16, 1, _fetch(), VERSION["fetch"]),
}


@contextmanager
def running(address: tuple[str, int], kind: str) -> Generator[None]:
    """A flood, from when its connections are open."""
    words = [sys.executable, "-m", __name__, address[0], str(address[1]), kind]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "open":
            raise RuntimeError("the flood cannot begin")
        yield
    finally:
        process.kill()
        process.communicate()


class _Connection:
    def __init__(self, address: tuple[str, int], frame: bytes, depth: int) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._frame = frame
        self._unsent = frame * depth
        self._missing = 0
        self._head = b""

    def send(self) -> bool:
        """Send what the socket takes; whether all is sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True

    def receive(self) -> int:
        """Read; for each answer a further request follows."""
        try:
            data = memoryview(self.socket.recv(_READ))
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionError("closed by the server")
        answers = 0
        while data:
            if self._missing:
                taken = min(self._missing, len(data))
                self._missing -= taken
                data = data[taken:]
                answers += not self._missing
                continue
            wanted = 4 - len(self._head)
            self._head += bytes(data[:wanted])
            data = data[wanted:]
            if len(self._head) == 4:
                self._missing = int.from_bytes(self._head, "big")
                self._head = b""
        self._unsent += self._frame * answers
        return answers


def _run(host: str, port: str, kind: str) -> None:
    flood = KINDS[kind]
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    poller = select.epoll()
    connections: dict[int, _Connection] = {}
    for number in range(flood.connections):
        if isinstance(flood.request, ApiVersionsRequest | FetchRequest):
            request: Message = flood.request
        else:
            size = LARGE if kind == "produce" else 100
            request = produce_request(TOPIC, bytes(size), partition=number % PARTITIONS)
        frame = b"".join(encode_request(1, "flood", request, flood.version))
        connection = _Connection((host, int(port)), frame, flood.depth)
        connections[connection.socket.fileno()] = connection
        poller.register(connection.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
    print("open", flush=True)
    while True:
        for fd, events in poller.poll():
            connection = connections[fd]
            if events & ~select.EPOLLOUT:
                connection.receive()
            done = connection.send()
            poller.modify(fd, select.EPOLLIN | (0 if done else select.EPOLLOUT))


if __name__ == "__main__":
    _run(*sys.argv[1:])
