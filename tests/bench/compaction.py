"""`python -m tests.bench compaction`: passes of compaction, beside Apache Kafka's log cleaner.

Each topic is written with `cleanup.policy=delete`, then compacted. MB/s: bytes of the topic by the
time from the change of the policy until its files no longer shrink; CPU: of the server's processes
meanwhile, so MB/s per core is its inverse. Passes run at full speed here, unlike by default. Then
the time of a produce, one at a time, while a pass runs at the default pace, and without one.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.peers import Server
from tests.support.admin_calls import set_config
from tests.support.apache_kafka import apache_kafka
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

_CASES = ((1_000, 0.1), (1_000, 0.9), (100, 0.1), (100, 0.9))
"""Bytes of a value, and the share of records whose key comes again."""
_SEGMENT = 16 << 20
_STILL_SECONDS = 3.0
_LONGEST_SECONDS = 60.0
_DUE = {"min.cleanable.dirty.ratio": "0.001"}
_EAGER = (
    "--log-cleaner-backoff-ms", "100",
    "--log-cleaner-max-wait-ms", "0", "--wal-segment-bytes", str(_SEGMENT),
    "--wal-fsync", "interval:1000",
)  # fmt: skip
_UNPACED = ("--wal-rewrite-bytes-per-second", str(16 << 30))


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench compaction")
    parser.add_argument("--megabytes", type=int, default=100, help="size of each topic")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each produce measurement")
    options = parser.parse_args(arguments)
    starters: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
        "quafka": partial(_quafka, args=_UNPACED), "kafka": _kafka
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[tuple[Server, Path]] = []
        for name, start in starters.items():
            folder = Path(scratch) / name
            try:
                servers.append((stack.enter_context(start(folder)), folder))
            except (OSError, AssertionError) as e:
                print(f"without {name}: {e}")
        print("value  again  server   MB/s  CPU s/GB  MB/s per core   left")
        for size, again in _CASES:
            for server, folder in servers:
                _print_pass(server, folder, size, again, options.megabytes << 20)
        _print_produces(Path(scratch) / "paced", servers[1:], options)
    _print_memory()


@contextmanager
def _quafka(folder: Path, args: tuple[str, ...] = ()) -> Generator[Server]:
    folder.mkdir()
    with Cluster(folder, broker_args=(*_EAGER, *args)) as cluster:
        yield Server("quafka", cluster.bootstrap, (cluster.broker.pid, cluster.gateway.pid))


@contextmanager
def _kafka(folder: Path) -> Generator[Server]:
    with apache_kafka(folder) as running:
        yield Server("kafka", running.bootstrap, (running.pid,))


# --- passes ---------------------------------------------------------------------------------


def _print_pass(server: Server, folder: Path, size: int, again: float, total: int) -> None:
    topic = f"of-{size}-{again}"
    _fill(server.bootstrap, topic, size, again, total)
    before, cpu, began = _bytes(folder), server.cpu_seconds(), time.perf_counter()
    _compact(server, topic)
    ended, left = _wait_still(server, folder, before)
    used = ended[1] - cpu
    seconds, gigabytes = ended[0] - began, total / 1e9
    print(
        f"{size:5}  {again:5.0%}  {server.name:7} {total / 1e6 / seconds:6.1f}  "
        f"{used / gigabytes:8.1f}  {total / 1e6 / max(used, 0.01):13.1f}  "
        f"{(total - before + left) / total:5.0%}", flush=True,
    )  # fmt: skip


def _fill(bootstrap: str, topic: str, size: int, again: float, total: int) -> None:
    """So many bytes of values; the keys of a share of the records come again, in turns."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    configs = {"cleanup.policy": "delete", "segment.bytes": str(_SEGMENT), **_DUE}
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 500_000, "acks": "all"}
    )
    rng = random.Random(size)
    value = rng.randbytes(size)
    keys = 0
    for _ in range(total // (size + 20)):
        key = rng.randrange(keys) if keys and rng.random() < again else keys
        keys = max(keys, key + 1)
        while True:
            try:
                producer.produce(topic, value, b"key %012d" % key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def _compact(server: Server, topic: str) -> None:
    with RawClient(server.address) as client:
        assert set_config(client, topic, "cleanup.policy", "compact") == 0


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.log"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def _wait_still(server: Server, folder: Path, before: int) -> tuple[tuple[float, float], int]:
    """Wait until the files have shrunk and stay; the time and CPU time of their last change."""
    now = time.perf_counter()
    give_up, size = now + _LONGEST_SECONDS, before
    changed = now, server.cpu_seconds()
    while time.perf_counter() < give_up:
        time.sleep(0.1)
        found = _bytes(folder)
        if found != size:
            size, changed = found, (time.perf_counter(), server.cpu_seconds())
        elif size < before and time.perf_counter() - changed[0] > _STILL_SECONDS:
            break
    return changed, size


# --- produces beside a pass -----------------------------------------------------------------


def _print_produces(
    folder: Path, others: Sequence[tuple[Server, Path]], options: argparse.Namespace
) -> None:
    print("\nproduce, ms        p50    p99, alone    p50    p99, beside a pass")
    with _quafka(folder) as paced:
        for server in (paced, *(server for server, _ in others)):
            topic = "table"
            _fill(server.bootstrap, topic, 1_000, 0.5, options.megabytes << 20)
            alone = _produce_times(server.bootstrap, options.seconds)
            _compact(server, topic)
            time.sleep(0.5)
            beside = _produce_times(server.bootstrap, options.seconds)
            print(f"{server.name:12} {_shown(alone)}       {_shown(beside)}", flush=True)


def _produce_times(bootstrap: str, seconds: float) -> list[float]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    found: list[float] = []
    acknowledged = threading.Event()
    end = time.perf_counter() + seconds

    def delivered(_error: object, _message: object) -> None:
        acknowledged.set()

    while time.perf_counter() < end:
        acknowledged.clear()

        began = time.perf_counter()
        producer.produce("other", b"value", on_delivery=delivered)
        while not acknowledged.is_set():
            producer.poll(1)
        found.append(1_000 * (time.perf_counter() - began))
        time.sleep(0.002)
    return found[len(found) // 10 :]


def _shown(times: list[float]) -> str:
    hundredths = quantiles(times, n=100)
    return f"{hundredths[49]:8.2f} {hundredths[98]:8.2f}"


# --- memory ---------------------------------------------------------------------------------


def _print_memory() -> None:
    """The map of the keys: measured for a million, computed for a hundred million."""
    from quafka_broker.compaction.offset_map import BYTES_PER_KEY, OffsetMap
    from quafka_broker.config.settings import BrokerConfig

    keys, at_once = 1_000_000, 10_000
    buffer = BrokerConfig().log_cleaner_dedupe_buffer_size
    tracemalloc.start()
    offsets = OffsetMap(buffer)
    for start in range(0, keys, at_once):
        assert offsets.add([os.urandom(16) for _ in range(at_once)], range(start, start + at_once))
    offsets.last_offsets([bytes(16)])
    grown = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"\nmap of {keys:,} keys: {grown / keys:.0f} bytes a key at its peak, bound "
        f"{BYTES_PER_KEY}; 100,000,000 keys: {BYTES_PER_KEY * 100_000_000 / 2**30:.1f} GiB, or "
        f"{-(-100_000_000 // offsets.capacity)} passes within "
        f"log.cleaner.dedupe.buffer.size={buffer >> 20} MiB"
    )
