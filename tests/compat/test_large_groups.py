"""Groups whose ops on the mesh are above 64 KiB, by real clients, beside a client that looks on."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.cluster import Cluster
from tests.support.group_members import poll, produce, until
from tests.support.kafka_calls import create_topic
from tests.support.prometheus import get
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

MANY = 20_000
TOPICS, MEMBERS = 200, 10
PATIENT = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 1_000}


def reconnects(cluster: Cluster) -> int:
    """How often the gateway's connection to the broker was made again."""
    _, _, text = get(cluster.gateway.ready["operations"], "/metrics")
    (found,) = re.findall(r"^quafka_mesh_reconnects(?:_total)?\{.*\} (\d+)", text, re.MULTILINE)
    return int(found)


@contextmanager
def bystander(cluster: Cluster) -> Iterator[None]:
    """Somebody else whose requests are all answered, by a broker that was never away."""
    before = reconnects(cluster)
    over = threading.Event()
    failures: list[BaseException] = []

    def look_on() -> None:
        try:
            with RawClient(cluster.address) as client:
                while not over.wait(0.02):
                    asked = MetadataRequest(topics=[MetadataRequestTopic(name="bystander")])
                    answer = client.call(asked, MetadataResponse, 12)
                    assert [topic.error_code for topic in answer.topics] == [0]
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failures, failures
    assert reconnects(cluster) == before


def consumer(cluster: Cluster, group: str, topics: list[str], **settings: object) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **PATIENT,
            **settings,
        }
    )
    if topics:
        made.subscribe(topics)
    return made


@pytest.fixture(scope="module")
def large_cluster(group_cluster: Cluster) -> Cluster:
    """A topic of 20,000 partitions, and 200 with long names."""
    with RawClient(group_cluster.address) as client:
        create_topic(client, "bystander")
        create_topic(client, "large", MANY)
        wanted = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names()]
        answer = client.call(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, 5)
        assert {topic.error_code for topic in answer.topics} == {0}
    return group_cluster


def names() -> list[str]:
    return [f"one-of-the-many-topics-of-a-large-team-{number}" for number in range(TOPICS)]


def test_one_consumer_of_twenty_thousand_partitions(large_cluster: Cluster) -> None:
    """Its assignment has 80 kB, and it commits an offset in every partition.

    It takes ten of the partitions: reading is tested elsewhere.
    """
    told: list[int] = []

    def take_some(one: Consumer, places: list[TopicPartition]) -> None:
        told.append(len(places))
        one.assign(places[:10])

    with bystander(large_cluster):
        one = consumer(large_cluster, "large", [])
        one.subscribe(["large"], on_assign=take_some)
        until(lambda: told, one)
        assert told == [MANY]
        for offset in (7, 8):  # the second replaces what is there
            places = [TopicPartition("large", number, offset) for number in range(MANY)]
            done = one.commit(offsets=places, asynchronous=False)
            assert [place.error for place in done] == [None] * MANY
            found = one.committed([TopicPartition("large", n) for n in range(MANY)], timeout=30)
            assert {place.offset for place in found} == {offset}
        one.close()


def test_ten_members_with_two_hundred_topics_each(large_cluster: Cluster) -> None:
    """The leader is told 80 kB of subscriptions."""
    topics = names()
    with bystander(large_cluster):
        many = [
            consumer(large_cluster, "team", topics, **{"partition.assignment.strategy": "range"})
            for _ in range(MEMBERS)
        ]

        def places() -> set[str]:
            return {place.topic for one in many for place in one.assignment()}

        until(lambda: places() == set(topics), *many)
        values = produce(large_cluster, topics[0], range(5), partitions=1)
        found: list[bytes] = []
        while len(found) < len(values):
            for one in many:
                found += poll(one, 0.01)
        assert found == values
        for one in many:
            one.close()
