"""Other people's clients on streams: offsets have gaps of any length, also at the end."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.integration.test_redis_streams import cluster_over, create
from tests.support import needs
from tests.support.cluster import Cluster
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import run_tools, tool
from tests.support.prometheus import Scrape
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.long, pytest.mark.needs("redis-server")]

IDS = (
    "5-0", "5-1", "6-1023", "1700000000000-0", "1700003600000-7", "1710000000000-3",
    "1720000000000-0",
)  # fmt: skip
VALUES = [b"%d" % n for n in range(len(IDS) - 1)]
"""All but the last entry, which is deleted, and so is the third."""
del VALUES[2]
IDLE_SECONDS = 2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("gaps")
    with RedisServer(folder / "redis") as server, server.client() as client:
        for n, id_ in enumerate(IDS):
            client.xadd("s", {"value": n}, id=id_)
        client.xdel("s", IDS[2], IDS[-1])
        with cluster_over(folder, server) as found:
            create(found, server.source("s"))
            yield found


def fetches(cluster: Cluster) -> float:
    """Fetch requests that the gateway has answered."""
    return Scrape(cluster.gateway.ready["operations"])("quafka_gateway_requests_total", api="Fetch")


def read_and_idle(cluster: Cluster, poll: Callable[[], list[bytes]]) -> None:
    """All values come, and then a wait has few fetches."""
    found: list[bytes] = []
    until = time.monotonic() + 20
    while len(found) < len(VALUES):
        assert time.monotonic() < until, found
        found += poll()
    before, until = fetches(cluster), time.monotonic() + IDLE_SECONDS
    while time.monotonic() < until:
        found += poll()
    assert found == VALUES
    assert fetches(cluster) - before < 10 * IDLE_SECONDS


def test_librdkafka(cluster: Cluster) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    read_and_idle(cluster, lambda: [m.value() or b"" for m in consumer.consume(10, 0.2)])
    consumer.close()


def test_kcat_comes_to_the_end(cluster: Cluster) -> None:
    command = [needs.program("kcat"), "-b", cluster.bootstrap, "-C", "-t", "t", "-e", "-q"]
    middle = str((1_700_000_000_000 << 10) + 1)  # where no record is
    for start, expected in (("beginning", VALUES), (middle, VALUES[-2:]), ("end", [])):
        done = subprocess.run([*command, "-o", start], capture_output=True, timeout=20, check=True)
        assert done.stdout.split() == expected


async def test_aiokafka(cluster: Cluster) -> None:
    consumer = AIOKafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
    )
    await consumer.start()
    loop = asyncio.get_running_loop()

    def poll() -> list[bytes]:
        coming = asyncio.run_coroutine_threadsafe(consumer.getmany(timeout_ms=200), loop)
        return [record.value or b"" for some in coming.result(10).values() for record in some]

    try:
        await asyncio.to_thread(read_and_idle, cluster, poll)
    finally:
        await consumer.stop()


def test_kafka_python(cluster: Cluster) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=None
    )

    def poll() -> list[bytes]:
        return [record.value for some in consumer.poll(200).values() for record in some]

    read_and_idle(cluster, poll)
    consumer.close()


@JAVA_TOOLS
def test_java(cluster: Cluster) -> None:
    before = fetches(cluster)
    console = tool(
        "consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", "t",
        "--partition", "0", "--offset", "earliest", "--timeout-ms", "6000",
    )  # fmt: skip
    lines = run_tools({"java": console})["java"].lines
    assert [line.encode() for line in lines if line.isdecimal()] == VALUES
    assert fetches(cluster) - before < 60
