"""What administrators do with Kafka's own tools: topic configs, deleting records."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import MessageSizeTooLargeError

from tests.support.cluster import Cluster
from tests.support.confluent import consume


@pytest.fixture
def admin(shared_cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_cluster.bootstrap})


def create(admin: AdminClient, **configs: str) -> str:
    name = f"topic-{uuid.uuid4()}"
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, config=dotted)])[name].result(30)
    return name


def test_a_config_that_cannot_be_is_named(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match=r"cleanup\.policy") as caught:
        create(admin, retention_ms="1000", cleanup_policy="keep")
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_all_topics_are_listed(admin: AdminClient) -> None:
    made = create(admin)
    assert made in admin.list_topics(timeout=10).topics


def test_log_append_time(admin: AdminClient, shared_cluster: Cluster) -> None:
    topic = create(admin, message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    producer.produce(topic, b"v", timestamp=1_000)
    assert producer.flush(30) == 0
    (message,) = consume(shared_cluster.bootstrap, topic, 1)
    kind, at = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= at <= time.time_ns() // 1_000_000


def test_a_topics_own_limit(admin: AdminClient, shared_cluster: Cluster) -> None:
    topic = create(admin, max_message_bytes="200")
    producer = KafkaProducer(bootstrap_servers=shared_cluster.bootstrap)
    assert producer.send(topic, b"x" * 20).get(30).offset == 0
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"x" * 200).get(30)
    producer.close()


def test_delete_records(admin: AdminClient, shared_cluster: Cluster) -> None:
    topic = create(admin)
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for n in range(10):
        producer.produce(topic, b"%d" % n)
    assert producer.flush(30) == 0
    wanted = ConfluentTopicPartition(topic, 0, 4)
    deleted = admin.delete_records([wanted])
    assert [future.result(30).low_watermark for future in deleted.values()] == [4]
    values = [message.value() for message in consume(shared_cluster.bootstrap, topic, 6, 4)]
    assert values == [b"%d" % n for n in range(4, 10)]

    partition = TopicPartition(topic, 0)
    python = KafkaAdminClient(bootstrap_servers=shared_cluster.bootstrap)
    python.delete_records({partition: 6})
    python.close()
    consumer = KafkaConsumer(bootstrap_servers=shared_cluster.bootstrap)
    assert consumer.beginning_offsets([partition]) == {partition: 6}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()
