"""`python -m tests.bench redis`: a topic from Redis beside plain XREAD, and beside our own log.

Reading: the same stream by a plain redis-py client (XREAD COUNT, parsed with hiredis), by a Kafka
consumer through gateway and broker, and the same records from our log. CPU is that of the client,
of gateway and broker, and of redis-server, in seconds per GB of values. Latency: one record at a
time from the producer's call to the consumer's hand, at 500/s; once by XADD and XREAD BLOCK, once
by Kafka clients on either topic. Rounds are interleaved; medians are printed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.cluster import Cluster
from tests.support.redis_server import RedisServer

_AT_ONCE = 5_000
_PER_SECOND = 500
_LOAD = (
    "for i = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], (1700000000000 + math.floor(i / 100))"
    " .. '-' .. (i % 100), 'value', ARGV[3]) end"
)


class Run(NamedTuple):
    """One reading: records a second, MB/s, and CPU seconds per GB by process."""

    records: float
    megabytes: float
    cpu: dict[str, float]


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _process_cpu(pid: int) -> float:
    """Of all threads."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    )


def measured(count: int, size: int, pids: dict[str, int], read: Callable[[], int]) -> Run:
    before = {name: _process_cpu(pid) for name, pid in pids.items()}
    own, began = _own_cpu(), time.perf_counter()
    assert read() == count
    seconds = time.perf_counter() - began
    gigabytes = count * size / 1e9
    cpu = {"client": (_own_cpu() - own) / gigabytes}
    cpu |= {n: (_process_cpu(pid) - before[n]) / gigabytes for n, pid in pids.items()}
    return Run(count / seconds, count * size / seconds / 1e6, cpu)


def read_plainly(server: RedisServer, stream: str) -> int:
    """All entries, by XREAD."""
    found, last = 0, b"0-0"
    with server.client() as client:
        while True:
            answer = client.xread({stream: last}, count=_AT_ONCE)
            if not answer:
                return found
            entries = answer[0][1]
            found += sum(1 for _, fields in entries if fields[b"value"])
            last = entries[-1][0]


def read_kafka(bootstrap: str, topic: str, count: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    while found < count:
        found += sum(1 for message in consumer.consume(_AT_ONCE, 10) if message.value())
    consumer.close()
    return found


def redis_latency(server: RedisServer, seconds: float) -> list[float]:
    taken: list[float] = []
    done = threading.Event()

    def follow() -> None:
        last = "$"
        with server.client() as client:
            while not done.is_set():
                for _, entries in client.xread({"latency": last}, block=200) or ():
                    last = entries[-1][0]
                    for _, fields in entries:
                        taken.append(time.perf_counter() - float(fields[b"value"]))

    reader = threading.Thread(target=follow)
    reader.start()
    time.sleep(0.3)
    with server.client() as client:
        _paced(seconds, lambda now: client.xadd("latency", {"value": repr(now)}))
    done.set()
    reader.join()
    return taken


def kafka_latency(bootstrap: str, topic: str, seconds: float) -> list[float]:
    taken: list[float] = []
    done = threading.Event()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "latency", "auto.offset.reset": "latest"}
    )
    consumer.assign([TopicPartition(topic, 0)])

    def follow() -> None:
        while not done.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                taken.append(time.perf_counter() - float(message.value() or b"0"))

    reader = threading.Thread(target=follow)
    reader.start()
    time.sleep(2)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def put(now: float) -> None:
        producer.produce(topic, repr(now).encode())
        producer.poll(0)

    _paced(seconds, put)
    producer.flush(10)
    time.sleep(0.3)
    done.set()
    reader.join()
    consumer.close()
    return taken


def _paced(seconds: float, put: Callable[[float], object]) -> None:
    start = time.perf_counter()
    for n in range(int(seconds * _PER_SECOND)):
        time.sleep(max(0.0, start + n / _PER_SECOND - time.perf_counter()))
        put(time.perf_counter())


def _print_runs(name: str, runs: Sequence[Run], beside: Sequence[Run]) -> None:
    """The medians of interleaved rounds; the ratio is that of each round."""
    cpu = ", ".join(f"{each} {median(run.cpu[each] for run in runs):.1f}" for each in runs[0].cpu)
    ratio = median(run.megabytes / b.megabytes for run, b in zip(runs, beside, strict=True))
    print(
        f"{name:24}{median(run.megabytes for run in runs):8.1f} MB/s "
        f"{median(run.records for run in runs):10,.0f}/s {ratio:6.2f}x   CPU s/GB: {cpu}"
    )


def _print_latency(name: str, rounds: Sequence[Sequence[float]]) -> None:
    """The medians of the rounds' percentiles."""
    p50, p99 = (
        median(sorted(taken)[int(len(taken) * part)] * 1e3 for taken in rounds)
        for part in (0.5, 0.99)
    )
    print(f"{name:24}p50 {p50:6.2f} ms   p99 {p99:6.2f} ms")


def _create(bootstrap: str, name: str, source: str = "") -> None:
    config = {"quafka.source": source} if source else {}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(name, 1, config=config)]).values()
    created.result(10)


def _fill(cluster: Cluster, server: RedisServer, options: argparse.Namespace) -> None:
    """A topic for each round, so that no round is served from the gateway's cache."""
    count, value = options.records, b"x" * options.size
    with server.client(socket_timeout=120) as client:
        for first in range(0, count, 50_000):
            client.eval(_LOAD, 1, "s", first, min(first + 50_000, count) - 1, value)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(options.rounds):
        _create(cluster.bootstrap, f"s{number}", server.source("s"))
        _create(cluster.bootstrap, f"log{number}")
        for n in range(count):
            producer.produce(f"log{number}", value)
            if n % 10_000 == 0:
                producer.flush(30)
        assert producer.flush(60) == 0


def _measure_reads(cluster: Cluster, server: RedisServer, options: argparse.Namespace) -> None:
    count, size = options.records, options.size
    pids = {"gateway": cluster.gateway.pid, "broker": cluster.broker.pid, "redis": server.pid}
    runs: dict[str, list[Run]] = {}
    for number in range(options.rounds):
        reads: dict[str, Callable[[], int]] = {
            "redis-py, XREAD": lambda: read_plainly(server, "s"),
            "Kafka client, from Redis": partial(read_kafka, cluster.bootstrap, f"s{number}", count),
            "Kafka client, our log": partial(read_kafka, cluster.bootstrap, f"log{number}", count),
        }
        for name, read in reads.items():
            runs.setdefault(name, []).append(measured(count, size, pids, read))
    print(f"{count:,} records of {size} bytes\n")
    for name, found in runs.items():
        _print_runs(name, found, runs["redis-py, XREAD"])


def _measure_latency(cluster: Cluster, server: RedisServer, options: argparse.Namespace) -> None:
    seconds = options.seconds
    waits: dict[str, Callable[[], list[float]]] = {
        "XADD, XREAD BLOCK": lambda: redis_latency(server, seconds),
        "Kafka, from Redis": partial(kafka_latency, cluster.bootstrap, "latency", seconds),
        "Kafka, our log": partial(kafka_latency, cluster.bootstrap, "log-latency", seconds),
    }
    _create(cluster.bootstrap, "latency", server.source("kafka-latency"))
    _create(cluster.bootstrap, "log-latency")
    taken: dict[str, list[list[float]]] = {name: [] for name in waits}
    for _ in range(options.rounds):
        for name, wait in waits.items():
            taken[name].append(wait())
    print(f"\nproduce to consume at {_PER_SECOND}/s")
    for name, each in taken.items():
        _print_latency(name, each)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench redis", description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a latency run")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as scratch,
        RedisServer(Path(scratch) / "redis") as server,
        Cluster(Path(scratch), ("--sources-redis-allowed", server.address)) as cluster,
    ):
        _fill(cluster, server, options)
        _measure_reads(cluster, server, options)
        _measure_latency(cluster, server, options)
