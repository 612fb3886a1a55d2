"""What metrics cost: a scrape of many partitions and groups, and a request's share.

The scrape is of a broker's state in this process, read by another one; the stall is the longest
that the event loop was kept from its other work meanwhile. Beside it prometheus_client's own
renderer, which makes a page before it sends it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
import timeit
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from quafka_broker.groups.table import Commit, Committed
from quafka_broker.state import BrokerState
from quafka_broker.status.metrics import BrokerMetrics
from quafka_broker.status.op_stats import BrokerStats
from quafka_gateway.cluster.parked_time import begin_request
from quafka_gateway.responses.error_codes import error_codes
from quafka_gateway.stats import GatewayStats
from quafka_proto.message import Message
from quafka_proto.schema.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from quafka_proto.schema.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from quafka_telemetry.exposition import metrics_page, render
from quafka_telemetry.metrics import Family, Histogram, Metrics
from quafka_telemetry.operations import Operations
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, checked, running_state

READER = """
import sys, urllib.request
for _ in range(int(sys.argv[2])):
    print(len(urllib.request.urlopen(sys.argv[1]).read()), flush=True)
    sys.stdin.readline()
"""
PARTITIONS_PER_TOPIC = 100
PLACES_PER_GROUP = 10


async def fill(state: BrokerState, partitions: int, groups: int) -> None:
    """One record in every partition; every group has committed in ten of them."""
    names: list[tuple[str, int]] = []
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic, _ = await state.topics.create(ORG, f"a-topic-{number:03}", PARTITIONS_PER_TOPIC)
        appends = [
            state.log.queue.append(
                state.log.partitions.get(topic.partition_id(partition)), checked(b"value")
            )
            for partition in range(PARTITIONS_PER_TOPIC)
        ]
        await asyncio.gather(*appends)
        names += [(topic.name, partition) for partition in range(PARTITIONS_PER_TOPIC)]
    now = state.groups.now_ms()
    for number in range(groups):
        first = number * PLACES_PER_GROUP % len(names)
        offsets = {
            place: Committed(0, number % 2, -1, "", now)
            for place in names[first : first + PLACES_PER_GROUP]
        }
        await state.groups.offsets.commit(ORG, f"a-consumer-group-{number:04}", Commit.of(offsets))


async def longest_turn(until: asyncio.Task[bytes]) -> float:
    """How long the loop was kept at most, in ms."""
    longest, before = 0.0, time.perf_counter()
    while not until.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest = max(longest, now - before)
        before = now
    return longest * 1000


async def scrape(address: str, path: str, rounds: int) -> tuple[int, list[float]]:
    """Bytes, and the longest stall of each scrape."""
    reader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", READER, f"http://{address}{path}", str(rounds)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert reader.stdin is not None
    assert reader.stdout is not None
    size, stalls = 0, list[float]()
    for _ in range(rounds):
        line = asyncio.create_task(reader.stdout.readline())
        stalls.append(await longest_turn(line))
        size = int(await line)
        reader.stdin.write(b"\n")
    await reader.wait()
    return size, stalls


class _Theirs(Collector):
    """The same families for prometheus_client."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for family in self._families:
            theirs = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in family.samples:
                assert not isinstance(value, Histogram)
                theirs.add_metric(labels, value)
            yield theirs


async def scrapes(partitions: int, groups: int, rounds: int) -> None:
    """Print the table of scrapes."""
    async with running_state(MemoryDisk()) as state:
        await fill(state, partitions, groups)
        figures = BrokerMetrics(state, BrokerStats(), Path("/"))
        metrics = Metrics()
        metrics.before(figures.read)
        metrics.add(figures.collect)
        metrics.before_detail(figures.read_lags)
        metrics.add(figures.detail, detail=True)
        operations = Operations(dict)
        operations.add("/metrics", metrics_page(metrics))
        operations.add("/metrics/detail", metrics_page(metrics, detail=True))
        host, port = await operations.start("127.0.0.1", 0)
        print(f"{partitions:,} partitions, {groups:,} groups in {PLACES_PER_GROUP} of them each\n")
        print(f"{'read over HTTP':36}{'bytes':>12}{'longest stall, ms: median':>27}{'worst':>8}")
        for path in ("/metrics", "/metrics/detail"):
            size, stalls = await scrape(f"{host}:{port}", path, rounds)
            print(f"{path:36}{size:12,}{statistics.median(stalls):27.1f}{max(stalls):8.1f}")
        began = time.process_time()
        for _ in range(rounds):
            await figures.read_lags()
        print(f"\n{'/metrics/detail, in parts':36}{'bytes':>12}{'CPU ms':>10}")
        print(f"{'lag of all groups':48}{(time.process_time() - began) * 1000 / rounds:10.1f}")
        began = time.process_time()
        for _ in range(rounds):
            size = sum(len(line.encode()) for line in render(figures.detail()))
        ours = (time.process_time() - began) * 1000 / rounds
        print(f"{'text':36}{size:12,}{ours:10.1f}")
        registry = CollectorRegistry()
        registry.register(_Theirs(figures.detail()))
        began = time.process_time()
        size = len(generate_latest(registry))
        theirs = (time.process_time() - began) * 1000
        print(f"{'text by prometheus_client, in one':36}{size:12,}{theirs:10.1f}")
        await operations.close()


def of_requests() -> None:
    """Print what a request's counters cost."""
    stats = GatewayStats()

    def produced(partitions: int) -> Message:
        parts = [PartitionProduceResponse(index=i) for i in range(partitions)]
        return ProduceResponse(responses=[TopicProduceResponse(partition_responses=parts)])

    def fetched(partitions: int) -> Message:
        parts = [PartitionData(i) for i in range(partitions)]
        return FetchResponse(responses=[FetchableTopicResponse(partitions=parts)])

    print(f"\n{'counters of a request':36}{'µs':>10}")
    for name, response in (
        ("Produce, 1 partition", produced(1)),
        ("Fetch, 1 partition", fetched(1)),
        ("Fetch, 1,000 partitions", fetched(1_000)),
    ):

        def count(response: Message = response) -> None:
            waited = begin_request()
            began = time.perf_counter()
            stats.count_request(
                "Fetch", error_codes(response), time.perf_counter() - began, waited.seconds
            )

        print(f"{name:36}{1e6 * min(timeit.repeat(count, number=2_000)) / 2_000:10.2f}")
    histogram = Histogram()
    each = min(timeit.repeat(lambda: histogram.observe(0.004), number=100_000)) / 100_000
    print(f"{'one observation of a histogram':36}{1e6 * each:10.2f}")


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench scrape", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    asyncio.run(scrapes(options.partitions, options.groups, options.rounds))
    of_requests()
