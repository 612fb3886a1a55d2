"""kafkajs: topics created, records produced and offsets asked for by it; read back by another."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.support.cluster import Cluster

HERE = Path(__file__).parent / "kafkajs"
COUNT = 600


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script and kafkajs installed; skips where there is no npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed (Debian: apt-get install nodejs npm)")
    folder = tmp_path_factory.mktemp("kafkajs")
    for name in ("package.json", "produce.js"):
        shutil.copy(HERE / name, folder / name)
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    subprocess.run(command, cwd=folder, check=True, timeout=110)
    return folder


def test_kafkajs_round_trip(shared_cluster: Cluster, kafkajs: Path) -> None:
    topic = "from-kafkajs"
    run = subprocess.run(
        ["node", "produce.js", shared_cluster.bootstrap, topic, str(COUNT)],
        cwd=kafkajs,
        check=True,
        timeout=60,
        capture_output=True,
    )
    answer = json.loads(run.stdout)
    assert topic in answer["topics"]
    each = COUNT // 3
    ends = {entry["partition"]: (entry["low"], entry["high"]) for entry in answer["offsets"]}
    assert ends == dict.fromkeys(range(3), ("0", str(each)))

    consumer = KafkaConsumer(bootstrap_servers=shared_cluster.bootstrap, consumer_timeout_ms=10_000)
    partitions = [TopicPartition(topic, p) for p in range(3)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    seen = [next(consumer) for _ in range(COUNT)]
    consumer.close()
    for partition in range(3):
        mine = [r for r in seen if r.partition == partition]
        numbers = list(range(partition, COUNT, 3))
        assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in mine] == [
            (at, 1_000 + n, b"key-%d" % n, b"value-%d" % n, [("n", b"%d" % n)])
            for at, n in enumerate(numbers)
        ]
