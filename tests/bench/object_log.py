"""Produces to a log in an object store with latency: `python -m tests.bench object_log`.

Real broker and gateway; the store is in memory, and its calls take a lognormal time. First
small requests at a fixed rate over 64 connections, for several lingers; then producers of 1 MB
batches: 1x8 is one producer with eight requests outstanding. Requests and bytes of the store are
those that the broker counts.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from quafka_proto.headers import encode_request
from tests.bench.load import PARTITIONS, TOPIC, running
from tests.bench.peers import cpu_seconds
from tests.support.cluster import Cluster
from tests.support.injected_broker import COMMAND, MEDIAN
from tests.support.kafka_calls import VERSION, create_topic, produce_request
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient

_CONNECTIONS = 64
_BATCH = 1 << 20


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_log")
    parser.add_argument("--median", type=float, default=35.0, help="ms of a call of the store")
    parser.add_argument("--rate", type=int, default=500, help="small requests a second")
    parser.add_argument("--linger", type=int, nargs="*", default=[50, 100, 250], help="ms")
    parser.add_argument("--large", nargs="*", default=["1x5", "1x8", "1x16", "1x32", "4x8"])
    parser.add_argument("--object-bytes", type=int, default=8 << 20, help="wal.object.bytes")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(arguments)
    print(f"PUTs of median {options.median:g} ms, {options.rate} small requests a second")
    print(f"{'linger':>8} {'p50 ms':>8} {'p99 ms':>8} {'PUT/s':>8} {'broker CPU':>10}")
    for linger in options.linger:
        with _running(options.median, linger, options.object_bytes) as cluster:
            _small(cluster, linger, options.rate, options.seconds)
    print(f"{'producers of 1 MB batches':>26} {'MB/s':>8} {'PUT/GB':>8} {'CPU s/GB':>9}")
    for large in options.large:
        with _running(options.median, 50, options.object_bytes) as cluster:
            producers, outstanding = map(int, large.split("x"))
            _large(cluster, producers, outstanding, options.seconds)


@contextmanager
def _running(median: float, linger: int, object_bytes: int) -> Generator[Cluster]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        folder = Path(scratch)
        with Cluster(
            folder,
            store=f"file://{folder / 'store'}",
            env={MEDIAN: str(median)},
            broker_command=COMMAND,
            broker_args=(
                "--wal-object-linger-ms",
                str(linger),
                "--wal-segment-bytes",
                "67108864",
                "--wal-object-bytes",
                str(object_bytes),
            ),
        ) as cluster:
            with RawClient(cluster.address) as client:
                create_topic(client, TOPIC, PARTITIONS)
            yield cluster


def _small(cluster: Cluster, linger: int, rate: int, seconds: float) -> None:
    with running(cluster.address, _CONNECTIONS, rate, seconds) as load:
        puts, cpu = _creations(cluster), cpu_seconds(cluster.broker.pid)
        seen = load.result()
        puts, cpu = _creations(cluster) - puts, cpu_seconds(cluster.broker.pid) - cpu
    print(
        f"{linger:>8} {seen.p50:>8.1f} {seen.p99:>8.1f} {puts / seconds:>8.1f}"
        f" {cpu / seconds:>10.0%}", flush=True,
    )  # fmt: skip


def _large(cluster: Cluster, producers: int, outstanding: int, seconds: float) -> None:
    puts, cpu = _creations(cluster), cpu_seconds(cluster.broker.pid)
    sent = [0] * producers
    until = time.monotonic() + seconds

    def produce(number: int) -> None:
        request = produce_request(TOPIC, bytes(_BATCH - 100), partition=number % PARTITIONS)
        frame = b"".join(encode_request(1, "large", request, VERSION["produce"]))
        with RawClient(cluster.address, timeout=60) as client:
            for _ in range(outstanding):
                client.socket.sendall(frame)
            while time.monotonic() < until:
                client.receive_frame()
                sent[number] += 1
                client.socket.sendall(frame)
            for _ in range(outstanding):
                client.receive_frame()

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    puts, cpu = _creations(cluster) - puts, cpu_seconds(cluster.broker.pid) - cpu
    megabytes, what = sum(sent) * _BATCH / 1e6, f"{producers}x{outstanding}"
    print(
        f"{what:>26} {megabytes / seconds:>8.0f} {puts / megabytes * 1e3:>8.0f}"
        f" {cpu / megabytes * 1e3:>9.2f}", flush=True,
    )  # fmt: skip


def _creations(cluster: Cluster) -> float:
    """Objects of the chain that the broker has created."""
    scrape = Scrape(cluster.broker.ready["operations"])
    return scrape("quafka_store_requests_total", kind="create")
