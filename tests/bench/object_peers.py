"""Quafka and tansu on one S3 server: `python -m tests.bench object_peers [--median MS ...]`.

versitygw over files in memory, with a proxy in front of it by which each answer is late. One after
the other the two have the server to themselves: small requests at a fixed rate over 64 connections,
one and four producers of batches of 1 MB with eight requests outstanding each, and, after a
restart, one consumer of all that one producer has written. Requests of the store are those that the
proxy has seen. Quafka is one broker and one gateway, which are two processes; tansu is one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch

from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.bench.load import PARTITIONS, TOPIC, running
from tests.bench.peers import Server, UnavailableError, tansu
from tests.bench.slow_store import SlowStore, slow_store
from tests.support.kafka_calls import VERSION, create_topic, fetch_request, produce_request
from tests.support.needs import find
from tests.support.raw_client import RawClient
from tests.support.s3 import versitygw_server
from tests.support.store_cluster import StoreCluster

_CONNECTIONS = 64
_BATCH = 1 << 20
_PIPELINED = 8
_LARGE = "large"
_FETCH = 16 << 20


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_peers")
    parser.add_argument("--median", type=float, nargs="*", default=[6.0, 35.0], help="ms")
    parser.add_argument("--rates", type=int, nargs="*", default=[50, 500], help="small requests/s")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args(arguments)
    if find("versitygw") is None:
        print("versitygw is not installed")
        return
    print(f"{'':>32} {'MB/s':>7} {'p50 ms':>8} {'p99 ms':>8} {'CPU s/GB':>9} {'requests':>10}")
    for median in options.median:
        for name, server in (("quafka", _quafka), ("tansu", _tansu)):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
                try:
                    _measure(Path(scratch), f"{median:g} ms {name}", median, server, options)
                except UnavailableError as e:
                    print(f"{name}: {e}")


Start = Callable[[Path, str], AbstractContextManager[Server]]


def _measure(
    folder: Path, title: str, median: float, start: Start, options: argparse.Namespace
) -> None:
    with versitygw_server(folder) as s3:
        port = int(s3.environment["AWS_ENDPOINT_URL"].rpartition(":")[2])
        with slow_store(port, median) as slow:
            endpoint = f"http://127.0.0.1:{slow.port}"
            names = {"AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT": endpoint}
            more = {"AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": "us-east-1"}
            environment = {**s3.environment, **names, **more}
            with patch.dict(os.environ, environment), start(folder / "server", s3.url) as server:
                _run(title, server, slow, options)


def _run(title: str, server: Server, slow: SlowStore, options: argparse.Namespace) -> None:
    with RawClient(server.address, timeout=60) as client:
        for topic in (TOPIC, _LARGE):
            create_topic(client, topic, PARTITIONS)
    for rate in options.rates:
        with running(server.address, _CONNECTIONS, rate, options.seconds) as load:
            before = slow.requests()
            seen = load.result()
            asked = (slow.requests() - before).total() / options.seconds
        answered = seen.answered / options.seconds
        what = f"{rate} small/s" if answered > rate * 0.95 else f"{rate} small/s: {answered:.0f}"
        print(
            f"{title + ', ' + what:>32} {'':>7} {seen.p50:>8.1f} {seen.p99:>8.1f} {'':>9}"
            f" {asked:>8.0f}/s", flush=True,
        )  # fmt: skip
    for producers in (1, 4):
        before, cpu = slow.requests(), server.cpu_seconds()
        waits = _produce(server, producers, options.seconds)
        cpu, asked = server.cpu_seconds() - cpu, (slow.requests() - before).total()
        _print(f"{title}, {producers} x 1 MB", len(waits) * _BATCH, options.seconds, waits, cpu,
               asked)  # fmt: skip
    assert server.restart is not None
    server.restart()
    before, begun = slow.requests(), time.perf_counter()
    with RawClient(server.address, timeout=60) as client:
        size = read_partition(client, _LARGE, 0, _FETCH)
    seconds = time.perf_counter() - begun
    asked = (slow.requests() - before).total()
    _print(f"{title}, catch-up", size, seconds, [], 0.0, asked)


def _print(
    title: str, size: int, seconds: float, waits: list[float], cpu: float, asked: int
) -> None:
    waits.sort()
    times = [f"{waits[len(waits) * at // 100] * 1e3:.0f}" if waits else "" for at in (50, 99)]
    used = f"{cpu / size * 1e9:.2f}" if cpu else ""
    print(
        f"{title:>32} {size / seconds / 1e6:>7.0f} {times[0]:>8} {times[1]:>8} {used:>9}"
        f" {asked / size * 1e9:>7.0f}/GB", flush=True,
    )  # fmt: skip


def _produce(server: Server, producers: int, seconds: float) -> list[float]:
    """The time of each answer, from when its request was sent."""
    until = time.monotonic() + seconds
    waits: list[list[float]] = [[] for _ in range(producers)]

    def produce(number: int) -> None:
        request = produce_request(_LARGE, bytes(_BATCH - 100), partition=number)
        frame = b"".join(encode_request(1, "large", request, VERSION["produce"]))
        with RawClient(server.address, timeout=60) as client:
            sent: list[float] = []
            for _ in range(_PIPELINED):
                sent.append(time.monotonic())
                client.socket.sendall(frame)
            while sent:
                _, answer = client.receive(ProduceResponse, VERSION["produce"])
                assert not answer.responses[0].partition_responses[0].error_code
                now = time.monotonic()
                waits[number].append(now - sent.pop(0))
                if now < until:
                    sent.append(now)
                    client.socket.sendall(frame)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [wait for each in waits for wait in each]


def read_partition(client: RawClient, topic: str, partition: int, at_once: int) -> int:
    """Read a partition from its start to its end; bytes of records."""
    size = offset = 0
    while True:
        request = fetch_request(
            topic, offset, max_wait_ms=500, max_bytes=at_once, partition_max_bytes=at_once
        )
        request.topics[0].partitions[0].partition = partition
        answer = client.call(request, FetchResponse, VERSION["fetch"])
        found = answer.responses[0].partitions[0]
        assert not found.error_code, found.error_code
        records = found.records or b""
        assert not isinstance(records, list)
        at = 0
        while at + 27 <= len(records):
            end = at + 12 + int.from_bytes(records[at + 8 : at + 12], "big")
            if end > len(records):
                break
            base = int.from_bytes(records[at : at + 8], "big")
            offset = base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
            size, at = size + end - at, end
        if offset >= found.high_watermark:
            return size


@contextmanager
def _quafka(folder: Path, url: str) -> Generator[Server]:
    folder.mkdir()
    args = ("--wal-object-linger-ms", "50", "--wal-segment-bytes", "67108864")
    with StoreCluster(folder, brokers=("a",), shards=1, broker_args=args, url=url) as cluster:
        broker, gateway = cluster.brokers["a"], cluster.gateways["g"]

        def restart() -> int:
            cluster.kill("a")
            return cluster.start_broker("a").pid

        children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        pids = (broker.pid, *(map(int, children) if children else (gateway.pid,)))
        yield Server("quafka", cluster.bootstrap(), pids, restart=restart)


@contextmanager
def _tansu(folder: Path, url: str) -> Generator[Server]:
    bucket = url.removeprefix("s3://").partition("/")[0]
    with tansu(folder, f"s3://{bucket}/") as server:
        yield server
