"""`python -m tests.bench admin`: what an administrator's calls take, with a thousand topics there.

CPU is that of gateway and broker together. Every change is durable when it is answered.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from quafka_proto.message import Message
from quafka_proto.schema.configs import DescribeConfigsRequest
from quafka_proto.schema.log_dirs import DescribeLogDirsRequest
from quafka_proto.schema.partitions import DescribeTopicPartitionsRequest
from tests.bench.parked import cpu_seconds
from tests.support.admin_calls import TOPIC, grow, resource, set_config
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

TOPICS = 1_000
CHANGES = 500
PARTITIONS = 10_000


def main(arguments: list[str]) -> None:
    """Print the table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder)) as cluster,
        RawClient(cluster.address, 60) as client,
    ):
        changes(cluster, client)
        questions(cluster, client)


def measure(cluster: Cluster, what: str, count: int, work: Callable[[], object]) -> None:
    """Print one line of the table."""

    def used() -> float:
        return cpu_seconds(cluster.gateway) + cpu_seconds(cluster.broker)

    began, cpu = time.perf_counter(), used()
    work()
    seconds, cpu = time.perf_counter() - began, used() - cpu
    print(
        f"{what:<58} {1e3 * seconds / count:9.3f} ms each {1e3 * cpu / count:9.3f} ms CPU",
        flush=True,
    )


def ask(client: RawClient, request: Message, version: int) -> None:
    """Without decoding the answer, which would be the client's own time."""
    client.send(request, version)
    client.receive_frame()


def changes(cluster: Cluster, client: RawClient) -> None:
    """What is written."""

    def create() -> None:
        for n in range(TOPICS):
            create_topic(client, f"t{n}")

    def change() -> None:
        for n in range(CHANGES):
            set_config(client, "t0", "segment.ms", str(1 + n))

    def add() -> None:
        for n in range(CHANGES):
            grow(client, "t0", 2 + n)

    measure(cluster, f"create {TOPICS} topics", TOPICS, create)
    measure(cluster, f"{CHANGES} changes of a config", CHANGES, change)
    measure(cluster, f"{CHANGES} times a partition more", CHANGES, add)
    grow(client, "t1", PARTITIONS)


def questions(cluster: Cluster, client: RawClient) -> None:
    """What is read."""
    for words, documented in (("values", False), ("synonyms and documentation", True)):
        request = DescribeConfigsRequest(
            resources=[resource(TOPIC, f"t{n}") for n in range(TOPICS)],
            include_synonyms=documented,
            include_documentation=documented,
        )
        what = f"configs of {TOPICS} topics: {words}"
        measure(cluster, what, TOPICS, partial(ask, client, request, 4))
    sizes = partial(ask, client, DescribeLogDirsRequest(topics=None), 4)
    measure(cluster, f"sizes of {TOPICS + CHANGES + PARTITIONS} partitions", 1, sizes)
    page = partial(ask, client, DescribeTopicPartitionsRequest(topics=[]), 0)
    measure(cluster, "2000 partitions described, one page", 1, page)
