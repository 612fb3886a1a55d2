"""Many connections with small requests: `python -m tests.bench.load`, a process of its own.

Each connection has one Produce of one 100-byte record (acks=all) outstanding at a time: a closed
load sends the next one on each answer, a paced one at a fixed rate that is spread over the
connections. Latency is from the request's last byte sent to the answer's last byte received.
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from quafka_proto.headers import encode_request
from tests.bench.peers import Server
from tests.support.kafka_calls import VERSION, produce_request

TOPIC, PARTITIONS = "small", 12
"""What the requests produce to."""
WARM_SECONDS = 1.0


class Load(NamedTuple):
    """What one load saw. Latencies in milliseconds."""

    answered: int
    total: int
    """With those of the warm-up."""
    p50: float
    p99: float


class Running:
    """A load that is warm and runs for so many seconds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def result(self) -> Load:
        """Wait until the time is up."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the load has failed")
        return Load(**json.loads(answer))


@contextmanager
def running(
    address: tuple[str, int], connections: int, rate: int, seconds: float
) -> Generator[Running]:
    """A load process, from when it is warm. Rate 0: closed."""
    words = [address[0], str(address[1]), str(connections), str(rate), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "warm":
            raise RuntimeError("the load cannot begin")
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def measured(server: Server, connections: int, rate: int, seconds: float) -> tuple[Load, float]:
    """What the load saw, and the CPU microseconds that the server used per request."""
    with running(server.address, connections, rate, seconds) as load:
        before = server.cpu_seconds()
        seen = load.result()
        return seen, (server.cpu_seconds() - before) / seen.answered * 1e6


# --- the process -----------------------------------------------------------------------------


@dataclass
class _Connection:
    """One connection with at most one request outstanding."""

    socket: socket.socket
    frame: bytes
    sent: float = 0.0
    missing: int = 0
    """Bytes of the answer that have not arrived; 0 before its length is known."""

    def send(self) -> None:
        self.socket.sendall(self.frame)
        self.sent, self.missing = time.perf_counter(), 0

    def received(self, data: bytes) -> bool:
        """Whether the answer is complete. Its length arrives in one piece on loopback."""
        if not data:
            raise ConnectionError("closed by the server")
        if not self.missing:
            self.missing = int.from_bytes(data[:4], "big") + 4
        self.missing -= len(data)
        return self.missing == 0


class _Generator:
    """All connections of a load, in one thread."""

    def __init__(self, address: tuple[str, int], connections: int, rate: int) -> None:
        self._rate = rate
        self._poller = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        for number in range(connections):
            request = produce_request(TOPIC, bytes(100), partition=number % PARTITIONS)
            frame = b"".join(encode_request(1, "load", request, VERSION["produce"]))
            opened = socket.create_connection(address, 30)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._by_fd[opened.fileno()] = _Connection(opened, frame)
            self._poller.register(opened.fileno(), select.EPOLLIN)
        now = time.perf_counter()
        step = 1 / rate if rate else 0.0
        self._due = [(now + number * step, fd) for number, fd in enumerate(self._by_fd)]
        """When each connection sends next; those with a request outstanding are not in it."""
        self._waits: list[float] = []

    def run(self, seconds: float) -> list[float]:
        """Latencies of the answers within so many seconds."""
        self._waits = []
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            while self._due and self._due[0][0] <= now:
                self._by_fd[heapq.heappop(self._due)[1]].send()
            ahead = self._due[0][0] - now if self._due else 0.1
            for fd, _ in self._poller.poll(max(0.0, min(ahead, 0.1))):
                self._read(fd)
        return self._waits

    def _read(self, fd: int) -> None:
        connection = self._by_fd[fd]
        if not connection.received(connection.socket.recv(1 << 16)):
            return
        now = time.perf_counter()
        self._waits.append(now - connection.sent)
        if not self._rate:
            connection.send()
            return
        due = connection.sent + len(self._by_fd) / self._rate
        heapq.heappush(self._due, (max(due, now), fd))


def _generate(host: str, port: str, connections: str, rate: str, seconds: str) -> None:
    load = _Generator((host, int(port)), int(connections), int(rate))
    warm = len(load.run(WARM_SECONDS))
    print("warm", flush=True)
    waits = sorted(load.run(float(seconds)))
    at = {name: waits[len(waits) * percent // 100] * 1e3 for name, percent in _PERCENTILES}
    seen = Load(len(waits), warm + len(waits), **at)
    print(json.dumps(seen._asdict()), flush=True)


_PERCENTILES = (("p50", 50), ("p99", 99))

if __name__ == "__main__":
    _generate(*sys.argv[1:])
