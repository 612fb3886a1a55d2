"""Small requests, beside Apache Kafka: what one costs, alone, among many, and paced.

One load process holds all connections. Each has one Produce of one 100-byte record (acks=all)
outstanding at a time: "closed" sends the next one on each answer, "paced" sends them at a fixed
rate that is spread over the connections. Latency is from the request's last byte sent to the
answer's last byte received. CPU is what the server's processes used.

Apache Kafka answers from the page cache. `quafka` does so too (an fsync each second);
`quafka-fsynced` answers after the fsync.
"""

from __future__ import annotations

import argparse
import heapq
import json
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from quafka_proto.headers import encode_request
from tests.bench.clients import end_to_end
from tests.bench.peers import Server, UnavailableError, kafka, quafka
from tests.support.kafka_calls import VERSION, create_topic, produce_request
from tests.support.raw_client import RawClient

PARTITIONS = 12
WARM_SECONDS = 1.0
CLOSED = (1, 64, 400)
"""Connections of the closed loads."""
PACED = (1_000, 2_000)
"""Connections of the paced load, and requests a second of them all together."""
RATES = (100, 1_000, 5_000)
"""Messages a second from producer to consumer."""


class Load(NamedTuple):
    """What one load saw. Latencies in milliseconds."""

    per_second: float
    p50: float
    p99: float
    cpu_us: float
    """Of the server, a request."""


class Throughput(NamedTuple):
    """One way to produce: `records` records of `size` bytes over `partitions`."""

    label: str
    size: int
    records: int
    partitions: int
    codec: str


THROUGHPUTS = (
    Throughput("1 KB, 1 partition", 1_000, 200_000, 1, "none"),
    Throughput("1 KB lz4, 12 partitions", 1_000, 300_000, 12, "lz4"),
    Throughput("1 KB, 1,000 partitions", 1_000, 100_000, 1_000, "none"),
    Throughput("100 B, 12 partitions", 100, 500_000, 12, "none"),
)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench requests", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--servers", default="quafka-fsynced,quafka,kafka")
    options = parser.parse_args(arguments)
    starters: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
        "quafka": quafka,
        "quafka-fsynced": partial(quafka, fsync="commit", name="quafka-fsynced"),
        "kafka": kafka,
    }
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[Server] = []
        for name in options.servers.split(","):
            try:
                servers.append(stack.enter_context(starters[name](Path(scratch) / name)))
            except UnavailableError as e:
                print(f"without {name}: {e}")
        for server in servers:
            with RawClient(server.address, 60) as client:
                create_topic(client, "small", PARTITIONS)
            time.sleep(1)  # Kafka answers before the partitions have a leader
        for name, measure in (("loads", loads), ("latency", latency), ("produce", produce)):
            if options.only in name:
                measure(servers, options)


def loads(servers: list[Server], options: argparse.Namespace) -> None:
    """Closed and paced loads."""
    print(
        f"\n{'produce of 100 B':24}{'':16}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}"
    )
    cases = [(f"{count} x 1 in flight", count, 0) for count in CLOSED]
    cases.append((f"{PACED[0]:,} at {PACED[1]:,}/s", *PACED))
    for label, connections, rate in cases:
        found: dict[str, list[Load]] = {server.name: [] for server in servers}
        for _ in range(options.rounds):
            for server in servers:
                found[server.name].append(_load(server, connections, rate, options.seconds))
        for server in servers:
            row = [statistics.median(column) for column in zip(*found[server.name], strict=True)]
            print(
                f"{label:24}{server.name:16}{row[0]:12,.0f}{row[1]:9.2f}{row[2]:9.2f}{row[3]:9.0f}",
                flush=True,
            )


def _load(server: Server, connections: int, rate: int, seconds: float) -> Load:
    host, port = server.address
    words = [host, str(port), str(connections), str(rate), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "warm":
        raise RuntimeError(f"no load on {server.name}")
    before = server.cpu_seconds()
    answer = process.stdout.readline()
    used = server.cpu_seconds() - before
    process.communicate()
    seen = json.loads(answer)
    cpu_us = used / seen["answered"] * 1e6
    return Load(seen["answered"] / seconds, seen["p50"], seen["p99"], cpu_us)


def latency(servers: list[Server], options: argparse.Namespace) -> None:
    """From produce() to the consumer's poll with linger 0, by librdkafka."""
    print(f"\n{'produce to consume':40}{'p50 ms':>9}{'p99 ms':>9}")
    for rate in RATES:
        for server in servers:
            topic = f"latency-{rate}"
            try:
                found = end_to_end(server.bootstrap, topic, rate, max(options.seconds, 5.0))
            except RuntimeError as e:
                print(f"{rate:,}/s{'':18}{server.name:16}not measured: {e}")
                continue
            print(f"{f'{rate:,}/s':24}{server.name:16}{found.p50:9.2f}{found.p99:9.2f}", flush=True)


def produce(servers: list[Server], options: argparse.Namespace) -> None:
    """Records by librdkafka, acks=all: MB/s and CPU seconds of the server for a GB."""
    print(f"\n{'produce':40}{'MB/s':>9}{'CPU s/GB':>9}")
    for case in THROUGHPUTS:
        for server in servers:
            with RawClient(server.address, 60) as client:
                create_topic(client, _topic(case), case.partitions)
        time.sleep(2)
        found: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
        for _ in range(options.rounds):
            for server in servers:
                found[server.name].append(_produce(server, case))
        for server in servers:
            rates = [statistics.median(column) for column in zip(*found[server.name], strict=True)]
            print(f"{case.label:24}{server.name:16}{rates[0]:9.1f}{rates[1]:9.2f}", flush=True)


def _topic(case: Throughput) -> str:
    return case.label.replace(" ", "-").replace(",", "")


def _produce(server: Server, case: Throughput) -> tuple[float, float]:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "linger.ms": 5,
            "compression.type": case.codec,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    topic = _topic(case)
    producer.list_topics(topic, 30)
    value = bytes(range(250)) * (case.size // 250) or bytes(case.size)
    before, began = server.cpu_seconds(), time.perf_counter()
    for number in range(case.records):
        producer.produce(topic, value, partition=number % case.partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{server.name} did not take everything")
    took, size = time.perf_counter() - began, case.size * case.records
    return size / took / 1e6, (server.cpu_seconds() - before) / size * 1e9


# --- the load process -----------------------------------------------------------------------


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
            request = produce_request("small", bytes(100), partition=number % PARTITIONS)
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
    load.run(WARM_SECONDS)
    print("warm", flush=True)
    waits = sorted(load.run(float(seconds)))
    at = {name: waits[len(waits) * percent // 100] * 1e3 for name, percent in _PERCENTILES}
    print(json.dumps({"answered": len(waits), **at}), flush=True)


_PERCENTILES = (("p50", 50), ("p99", 99))

if __name__ == "__main__":
    _generate(*sys.argv[1:])
