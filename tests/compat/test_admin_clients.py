"""The admin clients of other languages, as they are: topics that grow, configs, the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError as PythonError

from tests.support.cluster import Cluster
from tests.support.python_packages import installed, needs_package

PYTHON = Path(__file__).parent / "python"


@pytest.fixture
def topic(shared_cluster: Cluster) -> str:
    """A topic of one partition."""
    name = f"topic-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    return name


# --- confluent-kafka ------------------------------------------------------------------------


@pytest.fixture
def confluent(shared_cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_cluster.bootstrap})


def code(work: Any) -> int:
    """The error that a call ends with."""
    with pytest.raises(KafkaException) as caught:
        work.result(30)
    error: KafkaError = caught.value.args[0]
    return error.code()


def configs_of(admin: AdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(30)
    return found


def test_confluent_lets_a_topic_grow(confluent: AdminClient, topic: str) -> None:
    def grow(count: int, **how: Any) -> Any:
        return confluent.create_partitions([NewPartitions(topic, count)], **how)[topic]

    def partitions() -> int:
        return len(confluent.list_topics(topic, timeout=10).topics[topic].partitions)

    grow(3, validate_only=True).result(30)
    assert partitions() == 1
    grow(3).result(30)
    assert partitions() == 3
    assert code(grow(3)) == KafkaError.INVALID_PARTITIONS
    by_hand = NewPartitions(topic, 4, replica_assignment=[[1]])
    work = confluent.create_partitions([by_hand])[topic]
    assert code(work) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_confluent_changes_configs(confluent: AdminClient, topic: str) -> None:
    def change(name: str, value: str | None, operation: AlterConfigOpType) -> Any:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return confluent.incremental_alter_configs([resource])[resource]

    change("retention.ms", "1234", AlterConfigOpType.SET).result(30)
    change("cleanup.policy", "delete", AlterConfigOpType.APPEND).result(30)
    found = configs_of(confluent, topic)
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("1234", False)
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["segment.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["quafka.rrl"].value.endswith(f"/topics/{found['quafka.slug'].value}")
    assert found["quafka.id"].is_read_only
    work = change("retention.ms", "soon", AlterConfigOpType.SET)
    assert code(work) == KafkaError.INVALID_CONFIG
    change("retention.ms", None, AlterConfigOpType.DELETE).result(30)
    assert configs_of(confluent, topic)["retention.ms"].value == "-1"

    # Full replacement.
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "9"})
    with pytest.deprecated_call():
        confluent.alter_configs([resource])[resource].result(30)
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    now = configs_of(confluent, topic).values()
    assert {c.name: c.value for c in now if c.source == dynamic} == {"segment.ms": "9"}


def test_confluent_describes(confluent: AdminClient, shared_cluster: Cluster, topic: str) -> None:
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(30)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [shared_cluster.bootstrap]
    assert AclOperation.ALTER_CONFIGS in cluster.authorized_operations
    topics = TopicCollection([topic])
    work = confluent.describe_topics(topics, include_authorized_operations=True)
    described = work[topic].result(30)
    assert AclOperation.WRITE in described.authorized_operations
    broker = ConfigResource(ResourceType.BROKER, "0")
    settings = confluent.describe_configs([broker])[broker].result(30)
    assert settings["num.partitions"].value == "1"
    partition = ConfluentTopicPartition(topic, 0)
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [partition]).result(30)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


# --- kafka-python ---------------------------------------------------------------------------


@pytest.fixture
def python(shared_cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=shared_cluster.bootstrap)
    yield client
    client.close()


def test_kafka_python(python: KafkaAdminClient, shared_cluster: Cluster, topic: str) -> None:
    python.create_partitions({topic: 3})
    assert len(python.describe_topics([topic])[0]["partitions"]) == 3
    with pytest.raises(PythonError):
        python.create_partitions({topic: 3})

    def resource(**configs: str) -> PythonResource:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        return PythonResource(ConfigResourceType.TOPIC, topic, configs=dotted or None)

    python.alter_configs([resource(retention_ms="1234")])
    found = python.describe_configs([resource()], config_filter="all")["topic"][topic]
    assert found["retention.ms"]["value"] == "1234"
    assert found["quafka.slug"]["value"] == topic
    assert found["quafka.slug"]["read_only"]
    cluster = python.describe_cluster()
    assert [f"{b['host']}:{b['port']}" for b in cluster["brokers"]] == [shared_cluster.bootstrap]
    assert str(shared_cluster.data / "wal") in str(python.describe_log_dirs())


# --- kaskade --------------------------------------------------------------------------------


@pytest.mark.long
@needs_package("kaskade==5.1.0")
def test_kaskade(shared_cluster: Cluster) -> None:
    """A terminal UI: topics, records, groups and their lag, configs; and what it changes."""
    bootstrap = shared_cluster.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce("of-kaskade", b"x")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[ConfluentTopicPartition("of-kaskade", 0, 4)], asynchronous=False)
    consumer.close()
    done = subprocess.run(
        [sys.executable, PYTHON / "kaskade_pages.py", bootstrap, "of-kaskade"],
        env={**os.environ, "PYTHONPATH": str(installed("kaskade==5.1.0"))},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    before, after = answer["before"], answer["after"]
    assert before["errors"] == after["errors"] == []
    assert (before["partitions"], before["records"]) == (1, 10)
    assert before["groups"] == {"readers": 6}
    assert (after["partitions"], after["groups"]) == (3, {})
    assert answer["configs"]["retention.ms"] == "2000000"
    assert answer["configs"]["quafka.slug"] == "by-kaskade"


# --- kafkajs --------------------------------------------------------------------------------


@pytest.mark.long
def test_kafkajs(shared_cluster: Cluster, kafkajs: Path) -> None:
    question = {"bootstrap": shared_cluster.bootstrap, "topic": "of-kafkajs"}
    done = subprocess.run(
        ["node", kafkajs / "admin.js"], input=json.dumps(question), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["created"], answer["partitions"], answer["deleted"]) == (True, 3, True)
    assert (answer["fewer"], answer["bad"]) == ("INVALID_PARTITIONS", "INVALID_CONFIG")
    retention = answer["configs"]["retention.ms"]
    assert (retention["configValue"], retention["isDefault"]) == ("1234", False)
    assert retention["configSynonyms"][0]["configSource"] == 1
    assert answer["configs"]["quafka.slug"]["configValue"] == "of-kafkajs"
    assert answer["configs"]["quafka.slug"]["readOnly"] is True
    assert [broker["nodeId"] for broker in answer["cluster"]["brokers"]] == [0]
    assert answer["reassignments"] == {"topics": []}
    assert answer["acls"] == "SECURITY_DISABLED"
