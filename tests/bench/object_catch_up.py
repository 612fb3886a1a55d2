"""Reading old records from a store by place: `python -m tests.bench object_catch_up`.

One broker, and gateways that have the bucket, each with one consumer of a partition of its own; all
of them have a store whose calls take a lognormal time. The records are in sealed segments, and
nobody has any of them cached: broker and gateways have just started. A consumer is a plain socket
that asks for 8 MB at a time, in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from quafka_proto.schema.produce import ProduceResponse
from tests.bench.object_peers import read_partition
from tests.bench.peers import cpu_seconds
from tests.support.injected_broker import COMMAND, MEDIAN, SHARED
from tests.support.kafka_calls import VERSION, create_topic, produce_request
from tests.support.prometheus import Scrape
from tests.support.raw_client import RawClient
from tests.support.store_cluster import StoreCluster

_TOPIC, _PARTITIONS = "old", 8
_BATCH = 1 << 20
_SEGMENT = 32 << 20
_GATEWAYS = tuple(f"g{number}" for number in range(_PARTITIONS))
_UPLOAD_SECONDS = 60.0


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_catch_up")
    parser.add_argument("--median", type=float, nargs="*", default=[6.0, 35.0], help="ms of a call")
    parser.add_argument("--megabytes", type=int, default=96, help="of each partition")
    parser.add_argument("--gateways", type=int, nargs="*", default=[1, 2, 8])
    options = parser.parse_args(arguments)
    print(f"{'':>20} {'MB/s':>6} {'gateways: CPU s/GB':>20} {'broker':>7} {'by place':>9}")
    for median in options.median:
        for count in options.gateways:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
                _measure(Path(scratch), median, count, options.megabytes)


def _measure(folder: Path, median: float, count: int, megabytes: int) -> None:
    with StoreCluster(
        folder, brokers=("a",), gateways=_GATEWAYS[:count], shards=1,
        broker_args=("--wal-segment-bytes", str(_SEGMENT)), command=COMMAND,
        env={MEDIAN: str(median), SHARED: "1"},
    ) as cluster:  # fmt: skip
        _fill(cluster, megabytes, count)
        cluster.kill("a")
        cluster.start_broker("a")
        for name in _GATEWAYS[:count]:
            _wait(cluster.address(name))
        gateways = [cluster.gateways[name] for name in _GATEWAYS[:count]]
        pids = [gateway.pid for gateway in gateways]
        before, broker = sum(map(cpu_seconds, pids)), cpu_seconds(cluster.brokers["a"].pid)
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", __name__, cluster.bootstrap(name), str(number)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number, name in enumerate(_GATEWAYS[:count])
        ]  # fmt: skip
        for reader in readers:
            assert reader.stdout is not None
            reader.stdout.readline()
        begun = time.perf_counter()
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("go\n")
            reader.stdin.flush()
        size = sum(int(reader.communicate()[0]) for reader in readers)
        seconds = time.perf_counter() - begun
        used = sum(map(cpu_seconds, pids)) - before
        broker = cpu_seconds(cluster.brokers["a"].pid) - broker
        place = sum(_by_place(gateway.ready["operations"]) for gateway in gateways)
        print(
            f"{median:>5g} ms, {count} gateways {size / seconds / 1e6:>6.0f}"
            f" {used / size * 1e9:>20.2f} {broker / size * 1e9:>7.2f} {place / size:>9.0%}",
            flush=True,
        )


def _by_place(operations: str) -> float:
    return Scrape(operations)("quafka_gateway_fetched_bytes_total", by="place")


def _fill(cluster: StoreCluster, megabytes: int, partitions: int) -> None:
    """Produce, and wait until all but the last segment are objects."""
    value = os.urandom(_BATCH - 100)
    with RawClient(cluster.address(_GATEWAYS[0]), timeout=60) as client:
        create_topic(client, _TOPIC, _PARTITIONS)
        requests = [
            produce_request(_TOPIC, value, partition=number) for number in range(partitions)
        ]
        for _ in range(megabytes):
            for request in requests:
                client.send(request, VERSION["produce"])
            for _ in requests:
                client.receive(ProduceResponse, VERSION["produce"])
    until = time.monotonic() + _UPLOAD_SECONDS
    broker = Scrape(cluster.page("a"))
    while broker("quafka_store_uploads_waiting"):
        if time.monotonic() > until:
            raise TimeoutError("segments are not uploaded")
        time.sleep(0.1)
        broker = Scrape(cluster.page("a"))


def _wait(gateway: tuple[str, int]) -> None:
    """Wait until a gateway has found the broker again."""
    request = produce_request(_TOPIC, b"", partition=_PARTITIONS - 1)
    with RawClient(gateway, timeout=60) as client:
        while True:
            answer = client.call(request, ProduceResponse, VERSION["produce"])
            if not answer.responses[0].partition_responses[0].error_code:
                return


def _consume(bootstrap: str, partition: str) -> None:
    host, port = bootstrap.rsplit(":", 1)
    with RawClient((host, int(port)), timeout=60) as client:
        print("ready", flush=True)
        sys.stdin.readline()
        print(read_partition(client, _TOPIC, int(partition), 8 << 20))


if __name__ == "__main__":
    _consume(*sys.argv[1:])
