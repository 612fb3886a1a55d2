"""Every client carries the same records, in every codec it has, over several partitions.

Each produces them, and reads them from the middle on; another client reads what it produced, and
it reads what another produced. tests/support/round_trip.py says what the records are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition

from quafka_proto.records import COMPRESSION_MASK, read_header
from quafka_proto.schema.fetch import FetchResponse
from tests.support.cluster import Cluster
from tests.support.go import go_program
from tests.support.java import JAVA_TOOLS, java_command, kafka_tools
from tests.support.kafka_calls import create_topic, fetch_request
from tests.support.python_packages import installed, needs_package
from tests.support.raw_client import RawClient
from tests.support.round_trip import (
    CODECS,
    PARTITIONS,
    START,
    Row,
    Topic,
    expected,
    produce_all,
    read_all,
    rows,
    run_program,
)

HERE = Path(__file__).parent
KAFKA_PYTHON = HERE / "python" / "kafka_python.py"


@pytest.fixture(scope="module")
def bootstrap(shared_cluster: Cluster) -> str:
    """A cluster with the records in every codec, by confluent-kafka."""
    with RawClient(shared_cluster.address) as client:
        for codec in CODECS:
            create_topic(client, f"reference-{codec}", PARTITIONS)
            produce_all(shared_cluster.bootstrap, f"reference-{codec}", codec)
    return shared_cluster.bootstrap


@pytest.fixture
def topics(shared_cluster: Cluster, request: pytest.FixtureRequest) -> list[Topic]:
    """What a test's client is asked for: topics to fill, and topics that are filled."""
    name = re.sub(r"\W", "-", request.node.name)
    own = [Topic(f"{name}-{codec}", codec, True) for codec in CODECS]
    with RawClient(shared_cluster.address) as client:
        for topic in own:
            create_topic(client, topic.name, PARTITIONS)
    return own + [Topic(f"reference-{codec}", codec, False) for codec in CODECS]


def check(cluster: Cluster, topics: list[Topic], read: Mapping[str, list[Row]]) -> None:
    assert set(read) == {topic.name for topic in topics}
    for topic in topics:
        assert read[topic.name] == expected(), topic.name
        if topic.produce:
            assert read_all(cluster.bootstrap, topic.name, 0) == sorted(rows()), topic.name
            assert stored_codec(cluster, topic.name) == topic.codec


def stored_codec(cluster: Cluster, topic: str) -> str:
    """The codec of the batch with the big record: clients send small ones as they are."""
    request = fetch_request(topic, rows()[-1].offset)
    request.topics[0].partitions[0].partition = rows()[-1].partition
    with RawClient(cluster.address) as client:
        answer = client.call(request, FetchResponse, 12)
    data = answer.responses[0].partitions[0].records
    assert isinstance(data, memoryview)
    return CODECS[read_header(data).attributes & COMPRESSION_MASK]


def test_confluent_kafka(shared_cluster: Cluster, bootstrap: str) -> None:
    for codec in CODECS:
        assert read_all(bootstrap, f"reference-{codec}") == expected()
        assert read_all(bootstrap, f"reference-{codec}", 0) == sorted(rows())
        assert stored_codec(shared_cluster, f"reference-{codec}") == codec


def test_kafka_python(shared_cluster: Cluster, bootstrap: str, topics: list[Topic]) -> None:
    read = run_program([sys.executable, KAFKA_PYTHON], bootstrap, topics)
    check(shared_cluster, topics, read)


@needs_package("kafka-python==2.3.3")
def test_kafka_python_2(shared_cluster: Cluster, bootstrap: str, topics: list[Topic]) -> None:
    path = {"PYTHONPATH": str(installed("kafka-python==2.3.3"))}
    read = run_program([sys.executable, KAFKA_PYTHON], bootstrap, topics, path)
    check(shared_cluster, topics, read)


@JAVA_TOOLS
def test_java(shared_cluster: Cluster, bootstrap: str, topics: list[Topic]) -> None:
    command = java_command(HERE / "java" / "RoundTrip.java", kafka_tools())
    check(shared_cluster, topics, run_program(command, bootstrap, topics))


@pytest.mark.needs("go", fetch=go_program)
def test_franz_go(shared_cluster: Cluster, bootstrap: str, topics: list[Topic]) -> None:
    check(shared_cluster, topics, run_program([go_program()], bootstrap, topics))


@pytest.mark.parametrize("idempotent", [False, True])
async def test_aiokafka(
    shared_cluster: Cluster, bootstrap: str, topics: list[Topic], idempotent: bool
) -> None:
    read: dict[str, list[Row]] = {}
    for topic in topics:
        if topic.produce:
            await aiokafka_produce(bootstrap, topic, idempotent)
        read[topic.name] = await aiokafka_consume(bootstrap, topic.name)
    check(shared_cluster, topics, read)


async def aiokafka_produce(bootstrap: str, topic: Topic, idempotent: bool) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if topic.codec == "none" else topic.codec,
        enable_idempotence=idempotent,
        linger_ms=20,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic.name, row.value, row.key, row.partition, row.timestamp, row.headers
            )
            for row in rows()
        ]
        await producer.flush()
        assert [(await done).offset for done in sent] == [row.offset for row in rows()]
    finally:
        await producer.stop()


async def aiokafka_consume(bootstrap: str, topic: str) -> list[Row]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        places = [AioTopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, START)
        count = sum((await consumer.end_offsets(places)).values()) - START * PARTITIONS
        found = [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()
    return sorted(
        Row(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in found
    )
