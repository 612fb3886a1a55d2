"""The whole product: start, memory, produce, consume and end-to-end latency.

The baseline is tests/bench/loopback.py: the same clients, the same bytes, a plain asyncio server
that keeps them in memory. Medians of `--rounds` interleaved runs; nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from quafka_proto.schema.metadata import MetadataResponse
from tests.bench.clients import Rate, consume_all, end_to_end, produce_all, rate
from tests.support.cluster import Cluster
from tests.support.flights import Flight, flights
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient


def resident_mib(*pids: int) -> float:
    """Resident memory of processes together, MiB."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


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


def first_record_seconds(folder: Path) -> float:
    """From `quafka up` on an empty folder to one record produced and read back."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "quafka", "up", "--listen", "127.0.0.1:0"]
    command += ["--gateway-ops-listen", "127.0.0.1:0", "--broker-ops-listen", "127.0.0.1:0"]
    up = subprocess.Popen(
        [*command, "--data", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert up.stdout is not None
    try:
        line = next(line for line in up.stdout if "Kafka clients" in line)
        address = line.split()[-1]
        host, port = address.rsplit(":", 1)
        with RawClient((host, int(port))) as client:
            described: MetadataResponse = metadata(client, "first")
            assert described.topics[0].error_code == 0
            produce(client, "first", b"record")
            assert values(fetch(client, "first", 0)) == [b"record"]
        return time.perf_counter() - began
    finally:
        up.terminate()
        up.communicate()


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
        starts = [first_record_seconds(folder / f"up-{i}") for i in range(options.rounds)]
        print(f"start to first record served     {statistics.median(starts):8.2f} s")
        fsync = ("--wal-fsync", options.fsync)
        with Cluster(folder, broker_args=fsync) as cluster, loopback() as baseline:
            pids = (cluster.broker.pid, cluster.gateway.pid)
            print(f"resident, idle                   {resident_mib(*pids):8.1f} MiB")
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
            print(f"resident, after                  {resident_mib(*pids):8.1f} MiB")
            for name, bootstrap in servers.items():
                latency = end_to_end(bootstrap, "latency", 1_000, options.seconds)
                print(
                    f"produce to consume, 1,000/s, {name:9}"
                    f"p50 {latency.p50:6.2f} ms   p99 {latency.p99:6.2f} ms"
                )
