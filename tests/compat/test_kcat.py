"""kcat: partitions, headers, null values, codecs and reading from the middle."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.suites import more


def run(kcat: str, cluster: Cluster, *arguments: str, text: str = "") -> str:
    command = [kcat, "-q", "-b", cluster.bootstrap, *arguments]
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "zstd", *more(["gzip", "snappy", "lz4"])])
def test_round_trip(shared_cluster: Cluster, kcat: str, codec: str) -> None:
    topic = f"kcat-{codec}"
    with RawClient(shared_cluster.address) as client:
        create_topic(client, topic, 2)
    lines = [f"key-{n}:{'value ' * 30 if n % 3 else ''}" for n in range(50)]
    common = ["-t", topic, "-p", "1"]
    produce = [*common, "-P", "-z", codec, "-K:", "-Z", "-H", "a=1", "-H", "b=2"]
    run(kcat, shared_cluster, *produce, text="\n".join(lines) + "\n")
    read = run(kcat, shared_cluster, *common, "-C", "-e", "-o", "20", "-J")
    found = [json.loads(line) for line in read.splitlines()]
    assert [(r["partition"], r["offset"], r["key"], r["payload"], r["headers"]) for r in found] == [
        (1, n, f"key-{n}", "value " * 30 if n % 3 else None, ["a", "1", "b", "2"])
        for n in range(20, 50)
    ]
    assert run(kcat, shared_cluster, "-t", topic, "-p", "0", "-C", "-e", "-o", "beginning") == ""
    last = run(kcat, shared_cluster, *common, "-C", "-e", "-o", "-2", "-f", "%o\\n")
    assert last.split() == ["48", "49"]
    assert f"{topic} [1] offset 50" in run(kcat, shared_cluster, "-Q", "-t", f"{topic}:1:-1")
