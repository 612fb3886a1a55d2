"""kafkajs: topics created, records produced and offsets asked for by it; read back by another."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.round_trip import Topic, read_all, rows, run_job

HERE = Path(__file__).parent / "kafkajs"


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


def test_kafkajs(shared_cluster: Cluster, kafkajs: Path) -> None:
    topics = [Topic(f"kafkajs-{codec}", codec, True) for codec in ("none", "gzip")]
    script = kafkajs / "produce.js"
    answer = json.loads(run_job(["node", script], shared_cluster.bootstrap, topics))
    for topic in topics:
        assert topic.name in answer["topics"]
        assert read_all(shared_cluster.bootstrap, topic.name, 0) == sorted(rows())
        ends = {entry["partition"]: entry["high"] for entry in answer["offsets"][topic.name]}
        counts = Counter(row.partition for row in rows())
        assert ends == {partition: str(count) for partition, count in counts.items()}
