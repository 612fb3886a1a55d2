"""`quafka import` and `quafka groups import`: clients of Kafka's topics go on at Quafka."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka as untyped_confluent
import pytest

from tests.bench.imports import make
from tests.support.cluster import Cluster
from tests.support.kafka_folders import GROUP, TRANSACTIONS, read_all, recorded

pytestmark = pytest.mark.long

confluent: Any = untyped_confluent


def quafka(*arguments: object, code: int = 0) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "quafka", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.local_log
def test_consumers_and_groups_go_on(tmp_path: Path) -> None:
    expected = recorded(tmp_path)
    source, data = tmp_path / "killed", tmp_path / "data"
    report = json.loads(quafka("import", source, "--data", data, "--verify", "--format", "json"))
    assert {topic["name"] for topic in report["topics"]} == set(expected["topics"])
    with Cluster(tmp_path) as cluster:
        at = ("-b", cluster.bootstrap)
        for name, topic in expected["topics"].items():
            for number, partition in enumerate(topic["partitions"]):
                committed = set(partition["committed"])
                stable = max(committed, default=-1)
                for isolation in ("read_committed", "read_uncommitted"):
                    found = list(read_all(cluster.bootstrap, name, number, isolation))
                    wanted = [r for r in partition["records"] if r[0] in committed]
                    assert [r for r in found if r[0] <= stable] == wanted
                    assert len(found) - len(wanted) == (name == TRANSACTIONS and number == 0)
        printed = quafka("groups", "import", source, "--dry-run", *at)
        assert "would be imported" in printed
        quafka("groups", "import", source, *at)
        assert committed_offsets(cluster, expected) == expected["groups"][GROUP]
        quafka("groups", "reset-offsets", GROUP, "--to", "3", "-t", "codec-none", *at)
        assert "kept" in quafka("groups", "import", source, "-g", "read*", *at)
        assert committed_offsets(cluster, expected)["codec-none-0"] == 3
        quafka("groups", "import", source, "--overwrite", *at)
        assert committed_offsets(cluster, expected) == expected["groups"][GROUP]
        assert "no group" in quafka("groups", "import", source, "-g", "nobody", *at, code=1)


def committed_offsets(cluster: Cluster, expected: Any) -> dict[str, int]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP}
    consumer = confluent.Consumer(settings)
    places = [
        confluent.TopicPartition(name, number)
        for name, topic in expected["topics"].items()
        for number in range(len(topic["partitions"]))
    ]
    found = consumer.committed(places, timeout=20)
    consumer.close()
    return {f"{p.topic}-{p.partition}": p.offset for p in found if p.offset >= 0}


def written(data: Path) -> int:
    """Bytes of the log."""
    return sum(path.stat().st_size for path in data.glob("wal/*.log"))


@pytest.mark.local_log
@pytest.mark.parametrize("seed", range(2))
def test_no_record_twice_after_kill_9(tmp_path: Path, seed: int) -> None:
    source, data = tmp_path / "kafka", tmp_path / "data"
    options = argparse.Namespace(bytes=64 << 20, partitions=2, batch_records=100, record_bytes=900)
    size = make(source, options)
    command = [sys.executable, "-m", "quafka", "import", str(source), "--data", str(data)]
    chance = random.Random(seed)
    for part in sorted(chance.random() for _ in range(4)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while written(data) < part * size and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.wait()
    assert (data / "importing").exists()
    report = json.loads(quafka("import", source, "--data", data, "--verify", "--format", "json"))
    assert 0 < report["bytes"] < size
    assert "whole" in quafka("wal", "verify", data)
