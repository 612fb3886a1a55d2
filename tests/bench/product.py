"""The whole product: memory, produce, consume and end-to-end latency.

The baseline is tests/bench/loopback.py: the same clients, the same bytes, a plain asyncio server
that keeps them in memory. Medians of `--rounds` interleaved runs; nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.clients import Rate, consume_all, end_to_end, produce_all, rate
from tests.bench.start import mib
from tests.support.cluster import Cluster
from tests.support.flights import Flight, flights


@contextmanager
def loopback() -> Iterator[str]:
    """The baseline server; its bootstrap address."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.loopback"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


def throughput(
    servers: dict[str, str], rows: list[Flight], rounds: int
) -> dict[str, tuple[Rate, Rate]]:
    """Produce and consume rates by server name: medians over interleaved rounds."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    for turn in range(rounds):
        for name, bootstrap in servers.items():
            topic = f"flights-{turn}"
            produced = produce_all(bootstrap, topic, rows)
            seconds[name].append((produced, consume_all(bootstrap, topic, len(rows))))
    return {
        name: (
            rate(rows, statistics.median(p for p, _ in took)),
            rate(rows, statistics.median(c for _, c in took)),
        )
        for name, took in seconds.items()
    }


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench product", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fsync", default="commit", help="wal.fsync of the broker measured")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the latency run")
    options = parser.parse_args(arguments)
    rows = list(flights())
    print(f"{len(rows):,} flights, wal.fsync={options.fsync}, medians of {options.rounds}\n")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fsync = ("--wal-fsync", options.fsync)
        with Cluster(folder, broker_args=fsync) as cluster, loopback() as baseline:
            pids = (cluster.broker.pid, cluster.gateway.pid)
            print(
                f"resident, idle                   {sum(mib(pid, 'Rss') for pid in pids):8.1f} MiB"
            )
            servers = {"quafka": cluster.bootstrap, "loopback": baseline}
            rates = throughput(servers, rows, options.rounds)
            for label, which in (("produce", 0), ("consume", 1)):
                ours, theirs = rates["quafka"][which], rates["loopback"][which]
                print(
                    f"{label:8} flights, quafka         {ours.megabytes:8.1f} MB/s "
                    f"{ours.records:10,.0f} records/s\n"
                    f"{label:8} flights, loopback       {theirs.megabytes:8.1f} MB/s "
                    f"{theirs.records:10,.0f} records/s   "
                    f"ratio {ours.records / theirs.records:.2f}"
                )
            print(
                f"resident, after                  {sum(mib(pid, 'Rss') for pid in pids):8.1f} MiB"
            )
            for name, bootstrap in servers.items():
                latency = end_to_end(bootstrap, "latency", 1_000, options.seconds)
                print(
                    f"produce to consume, 1,000/s, {name:9}"
                    f"p50 {latency.p50:6.2f} ms   p99 {latency.p99:6.2f} ms"
                )
