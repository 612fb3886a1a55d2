"""Clients that speak to the Kafka of ten years ago: message sets, and no ApiVersions to ask.

Records had no headers then, and no timestamps before 0.10.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.python_packages import installed, needs_package
from tests.support.raw_client import RawClient
from tests.support.round_trip import (
    PARTITIONS,
    Row,
    Topic,
    bare,
    expected,
    produce_all,
    read_all,
    rows,
    run_program,
)

pytestmark = pytest.mark.long

CODECS = ["none", "gzip", "snappy", "lz4"]
PROGRAM = Path(__file__).parent / "python" / "kafka_python.py"


@pytest.fixture(scope="module")
def bootstrap(shared_cluster: Cluster) -> str:
    """A cluster with the records as today's clients produce them."""
    with RawClient(shared_cluster.address) as client:
        for codec in CODECS:
            create_topic(client, f"new-{codec}", PARTITIONS)
            produce_all(shared_cluster.bootstrap, f"new-{codec}", codec)
    return shared_cluster.bootstrap


@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 2)])
@needs_package("kafka-python==2.3.3")
def test_kafka_python_2(shared_cluster: Cluster, bootstrap: str, version: tuple[int, ...]) -> None:
    name = "old-" + "-".join(map(str, version))
    # for the broken lz4 of those days, kafka-python wants another package
    codecs = CODECS if version >= (0, 10) else CODECS[:-1]
    own = [Topic(f"{name}-{codec}", codec, True) for codec in codecs]
    with RawClient(shared_cluster.address) as client:
        for topic in own:
            create_topic(client, topic.name, PARTITIONS)
    topics = own + [Topic(f"new-{codec}", codec, False) for codec in CODECS]
    path = {"PYTHONPATH": str(installed("kafka-python==2.3.3"))}
    read = run_program([sys.executable, PROGRAM], bootstrap, topics, path, version)
    timed = version >= (0, 10)
    for topic in topics:
        assert without_times(read[topic.name], timed) == without_times(bare(expected()), timed)
        if topic.produce:
            stored = read_all(bootstrap, topic.name, 0)
            assert without_times(stored, timed) == without_times(sorted(bare(rows())), timed)


def without_times(some: list[Row], timed: bool) -> list[Row]:
    return some if timed else [row._replace(timestamp=-1) for row in some]


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.0.1"])
@pytest.mark.parametrize("codec", CODECS)
def test_kcat(shared_cluster: Cluster, kcat: str, version: str, codec: str) -> None:
    topic = f"kcat-{version}-{codec}"
    with RawClient(shared_cluster.address) as client:
        create_topic(client, topic)
    base = [kcat, "-q", "-b", shared_cluster.bootstrap, "-t", topic, "-p", "0"]
    base += ["-X", "api.version.request=false", "-X", f"broker.version.fallback={version}"]
    lines = "".join(f"key-{n}:{'value ' * 30}\n" for n in range(50))
    run([*base, "-P", "-K:", "-z", codec], lines)
    found = [json.loads(line) for line in run([*base, "-C", "-e", "-o", "20", "-J"]).splitlines()]
    assert [(record["offset"], record["key"], record["payload"]) for record in found] == [
        (n, f"key-{n}", "value " * 30) for n in range(20, 50)
    ]


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
