"""A client that commits without waiting and asks at once is told what it has committed."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.consumers import DEFAULTS, Java
from tests.support.java import JAVA_CLIENTS
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

_TIMES = 40


def test_librdkafka_sees_its_asynchronous_commit(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "committed-at-once")
        for number in range(_TIMES):
            produce(client, "committed-at-once", b"%d" % number)
    consumer = Consumer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "group.id": "committed-at-once",
            "enable.auto.commit": False,
        }
    )
    place = TopicPartition("committed-at-once", 0)
    consumer.assign([TopicPartition("committed-at-once", 0, 0)])
    consumer.committed([place], timeout=20)  # connects to the coordinator
    seen: list[int] = []
    for offset in range(1, _TIMES + 1):
        wanted = TopicPartition("committed-at-once", 0, offset)
        consumer.commit(offsets=[wanted], asynchronous=True)
        seen.append(consumer.committed([place], timeout=20)[0].offset)
    consumer.close()
    assert seen == list(range(1, _TIMES + 1))


@JAVA_CLIENTS
def test_java_sees_its_asynchronous_commit(shared_cluster: Cluster) -> None:
    with RawClient(shared_cluster.address) as client:
        create_topic(client, "committed-in-java")
    settings = {**DEFAULTS, "group.id": "committed-in-java"}
    consumer = Java(shared_cluster.bootstrap, "committed-in-java", settings)
    consumer.assign([0])
    seen = consumer.commit(0, _TIMES)
    consumer.close()
    assert seen == list(range(1, _TIMES + 1))
