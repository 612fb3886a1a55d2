"""Transactional producers of other people's clients: commit, abort, offsets, and fencing.

Java 4.3 uses version 2 of transactions (KIP-890), all others version 1.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import aiokafka.errors
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from quafka_proto.schema.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducersTopicRequest,
)
from tests.support.cluster import Cluster
from tests.support.go import go_program
from tests.support.java import JAVA_CLIENTS, jar, java_command, kafka_clients
from tests.support.java_tools import FOLDER as JAVA
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient
from tests.support.transactions import COMMITTED_OFFSET, COUNT, SENT, Row, committed, read, rows

_SECONDS = 20.0
LEVELS = ("read_committed", "read_uncommitted")


def made(cluster: Cluster, topic: str) -> str:
    with RawClient(cluster.address) as client:
        create_topic(client, topic, 2)
    return topic


def check(cluster: Cluster, topic: str, group: str, source: str = "") -> None:
    """What the client did is what consumers see. `source`: the topic of the offsets."""
    for level in LEVELS:
        assert read(cluster.bootstrap, topic, level) == rows(level), level
    assert committed(cluster.bootstrap, source or topic, group) == COMMITTED_OFFSET


def epoch(cluster: Cluster, topic: str) -> int:
    """The epoch of the only producer in partition 0."""
    with RawClient(cluster.address) as client:
        asked = DescribeProducersRequest(
            topics=[ProducersTopicRequest(name=topic, partition_indexes=[0])]
        )
        answer = client.call(asked, DescribeProducersResponse, 0)
    (producer,) = answer.topics[0].partitions[0].active_producers
    assert producer.current_txn_start_offset == -1
    return producer.producer_epoch


def test_librdkafka(group_cluster: Cluster) -> None:
    topic, group = made(group_cluster, "librdkafka"), "of-librdkafka"
    settings = {"bootstrap.servers": group_cluster.bootstrap, "transactional.id": group}
    first = Producer({**settings, "linger.ms": 0})
    first.init_transactions(_SECONDS)
    member = Consumer({"bootstrap.servers": group_cluster.bootstrap, "group.id": group})
    for end in (first.commit_transaction, first.abort_transaction):  # nothing was written
        first.begin_transaction()
        end(_SECONDS)
    for kind in SENT:
        first.begin_transaction()
        for number in range(COUNT):
            first.produce(topic, f"{kind}{number}", partition=number % 2)
        assert first.flush(_SECONDS) == 0
        if kind == "abort":
            first.abort_transaction(_SECONDS)
            continue
        offset = TopicPartition(topic, 0, COMMITTED_OFFSET)
        first.send_offsets_to_transaction([offset], member.consumer_group_metadata(), _SECONDS)
        first.commit_transaction(_SECONDS)
    assert epoch(group_cluster, topic) == 0
    second = Producer(settings)
    second.init_transactions(_SECONDS)
    first.begin_transaction()
    first.produce(topic, "fenced", partition=0)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(_SECONDS)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    member.close()
    check(group_cluster, topic, group)


@pytest.mark.long
async def test_aiokafka(group_cluster: Cluster) -> None:
    topic, group = made(group_cluster, "aiokafka"), "of-aiokafka"
    producers = [
        AIOKafkaProducer(bootstrap_servers=group_cluster.bootstrap, transactional_id=group)
        for _ in range(2)
    ]
    first, second = producers
    await first.start()
    for finish in (first.commit_transaction, first.abort_transaction):  # nothing was written
        await first.begin_transaction()
        await finish()
    for kind in SENT:
        await first.begin_transaction()
        for number in range(COUNT):
            await first.send_and_wait(topic, f"{kind}{number}".encode(), partition=number % 2)
        if kind == "abort":
            await first.abort_transaction()
            continue
        offsets = {AioPartition(topic, 0): COMMITTED_OFFSET}
        await first.send_offsets_to_transaction(offsets, group)
        await first.commit_transaction()
    await second.start()
    await first.begin_transaction()
    with pytest.raises(aiokafka.errors.ProducerFenced):
        await first.send_and_wait(topic, b"fenced", partition=0)
    await second.stop()
    await first.stop()
    check(group_cluster, topic, group)


@pytest.mark.long
def test_kafka_python(group_cluster: Cluster) -> None:
    topic, group = made(group_cluster, "kafka-python"), "of-kafka-python"
    settings = {"bootstrap_servers": group_cluster.bootstrap, "transactional_id": group}
    first = KafkaProducer(**settings)
    first.init_transactions()
    for end in (first.commit_transaction, first.abort_transaction):  # nothing was written
        first.begin_transaction()
        end()
    for kind in SENT:
        first.begin_transaction()
        for number in range(COUNT):
            first.send(topic, f"{kind}{number}".encode(), partition=number % 2).get(_SECONDS)
        if kind == "abort":
            first.abort_transaction()
            continue
        offset = OffsetAndMetadata(COMMITTED_OFFSET, "", -1)
        first.send_offsets_to_transaction({PythonPartition(topic, 0): offset}, group)
        first.commit_transaction()
    second = KafkaProducer(**settings)
    second.init_transactions()
    first.begin_transaction()
    with pytest.raises(kafka.errors.KafkaError) as fenced:
        first.send(topic, b"fenced", partition=0).get(_SECONDS)
    assert "Fenced" in type(fenced.value).__name__
    second.close()
    first.close(timeout=0)
    check(group_cluster, topic, group)


def java_39() -> list[Path]:
    """Kafka's clients of a version before KIP-890."""
    return [jar("org.apache.kafka", "kafka-clients", "3.9.1"), *kafka_clients()[1:]]


@pytest.mark.long
@JAVA_CLIENTS
@pytest.mark.parametrize("version", [1, 2])
def test_java(group_cluster: Cluster, version: int) -> None:
    topic, group = made(group_cluster, f"java-{version}"), f"of-java-{version}"
    jars = kafka_clients() if version == 2 else java_39()
    command = java_command(JAVA / "Transactions.java", jars)
    done = subprocess.run(
        [*command, group_cluster.bootstrap, topic, group, str(COUNT)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Row]] = {level: [] for level in LEVELS}
    lines = [line.split() for line in done.stdout.splitlines()]
    for level, partition, offset, value in (line for line in lines if line[0] in found):
        found[level].append((int(partition), int(offset), value))
    assert {level: sorted(found[level]) for level in LEVELS} == {x: rows(x) for x in LEVELS}
    fenced = {1: "ProducerFencedException", 2: "InvalidProducerEpochException"}
    assert ["fenced", fenced[version]] in lines
    check(group_cluster, topic, group)
    assert (epoch(group_cluster, topic) > 0) == (version == 2), "each end is another epoch"


@pytest.mark.long
@pytest.mark.needs("go", fetch=go_program)
def test_franz_go(group_cluster: Cluster) -> None:
    topic, group = made(group_cluster, "franz-go-transactions"), "of-franz-go"
    source = made(group_cluster, f"{topic}-source")
    with RawClient(group_cluster.address) as client:
        produce(client, source, *[b"%d" % number for number in range(COMMITTED_OFFSET)])
    job = {
        "bootstrap": group_cluster.bootstrap, "topic": topic, "source": source, "group": group,
        "count": COUNT,
    }  # fmt: skip
    done = subprocess.run(
        [go_program(), "transactions"],
        input=json.dumps(job), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["PRODUCER_FENCED"]
    check(group_cluster, topic, group, source)
