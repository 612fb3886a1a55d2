"""kafkajs: topics created, records produced and offsets asked for by it; read back by another."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.round_trip import Topic, read_all, rows, run_job


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
