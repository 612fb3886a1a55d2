"""Groups of clients in other languages, and Kafka's own tools for groups."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.cluster import Cluster
from tests.support.group_members import (
    SECONDS,
    fill,
    member,
    owned,
    poll,
    produce,
    until,
)
from tests.support.java import JAVA_TOOLS
from tests.support.java_tools import run_tools, tool

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


@JAVA_TOOLS
def test_java(group_cluster: Cluster) -> None:
    """The console consumer twice in one group, then its group seen, set back and deleted."""
    values = fill(group_cluster, "java")
    at = ["--bootstrap-server", group_cluster.bootstrap]
    consume = ["--topic", "java", "--group", "java", "--timeout-ms", "20000", "--max-messages"]
    earliest = ["--command-property", "auto.offset.reset=earliest"]
    group = [*at, "--group", "java"]
    command = "consumer.group.ConsumerGroupCommand"
    runs = {
        "first": tool("consumer.ConsoleConsumer", *at, *consume, "15", *earliest),
        "second": tool("consumer.ConsoleConsumer", *at, *consume, "25", *earliest),
        "list": tool(command, *at, "--list", "--state"),
        "describe": tool(command, *group, "--describe"),
        "reset": tool(
            command, *group, "--reset-offsets", "--to-earliest", "--all-topics", "--execute"
        ),
        "reset seen": tool(command, *group, "--describe"),
        "delete": tool(command, *group, "--delete"),
        "gone": tool(command, *at, "--list"),
    }
    output: dict[str, str] = {}
    for name, outcome in run_tools(runs).items():
        assert outcome.exit == 0, f"{name}: {outcome.output}"
        output[name] = outcome.output
    lines = output["first"].splitlines() + output["second"].splitlines()
    assert sorted(line.encode() for line in lines if line.isdigit()) == sorted(values)
    assert re.search(r"^java +Empty", output["list"], re.MULTILINE)
    assert sorted(lags(output["describe"])) == [(p, 10, 10, 0) for p in range(4)]
    assert sorted(lags(output["reset seen"])) == [(p, 0, 10, 10) for p in range(4)]
    assert "was successful" in output["delete"]
    assert "java" not in output["gone"].split()


def lags(table: str) -> list[tuple[int, ...]]:
    """Partition, current offset, end offset and lag of every row."""
    rows = re.findall(r"^java +java +(\d+) +(\d+) +(\d+) +(\d+)", table, re.MULTILINE)
    return [tuple(map(int, row)) for row in rows]


def test_kafkajs(group_cluster: Cluster, kafkajs: Path) -> None:
    values = fill(group_cluster, "kafkajs")
    seen = consume_with_kafkajs(group_cluster, kafkajs, 40)
    assert sorted(seen) == sorted(values)
    more = produce(group_cluster, "kafkajs", range(40, 60))
    assert sorted(consume_with_kafkajs(group_cluster, kafkajs, 20)) == sorted(more)


def consume_with_kafkajs(cluster: Cluster, folder: Path, count: int) -> list[bytes]:
    job = {"bootstrap": cluster.bootstrap, "topic": "kafkajs", "group": "kafkajs", "count": count}
    done = subprocess.run(
        ["node", folder / "group.js"],
        input=json.dumps(job),
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [value.encode() for value in json.loads(done.stdout)]


def test_kafka_python_in_one_group_with_confluent_kafka(group_cluster: Cluster) -> None:
    values = set(fill(group_cluster, "python"))
    librdkafka = member(group_cluster, "python", "python")
    found = set(until(lambda: len(owned(librdkafka)) == 4, librdkafka))
    other = KafkaConsumer(
        "python",
        bootstrap_servers=group_cluster.bootstrap,
        group_id="python",
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=[RangePartitionAssignor],
    )

    def take() -> None:
        batches = cast("dict[Any, list[Any]]", other.poll(timeout_ms=50))
        found.update(record.value for batch in batches.values() for record in batch)

    def both_own_two() -> bool:
        take()
        return len(other.assignment()) == 2 and len(owned(librdkafka)) == 2

    found.update(until(both_own_two, librdkafka))
    values.update(produce(group_cluster, "python", range(40, 60)))
    give_up = time.monotonic() + SECONDS
    while found < values:
        assert time.monotonic() < give_up
        found.update(poll(librdkafka))
        take()
    other.close()
    librdkafka.close()
    assert found == values
