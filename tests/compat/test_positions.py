"""Where consumers begin and what they are shown: out-of-range resets, times, isolation levels."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.support.cluster import Cluster
from tests.support.consumers import (
    CONSUMER_NAMES,
    CONSUMERS,
    DEFAULTS,
    Arrived,
    Consumer,
    OutOfRange,
)
from tests.support.kafka_calls import create_topic, produce_batch
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.long

SECONDS = 30.0
START, END = 4, 10
"""The log's start, and its end."""
FIRST_TIME = 1_700_000_000_000


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: RawClient) -> str:
    """Offsets 4 to 9, a second apart, two to a batch."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    create_topic(client, name)
    for offset in range(0, END, 2):
        produce(client, name, offset, offset + 1)
    place = DeleteRecordsPartition(partition_index=0, offset=START)
    request_ = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[place])])
    answer = client.call(request_, DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].low_watermark == START
    return name


def produce(client: RawClient, topic: str, *offsets: int) -> None:
    records = [Record(n, FIRST_TIME + n * 1_000, None, b"%d" % n, []) for n in offsets]
    assert produce_batch(client, topic, build_batch(records)) == offsets[0]


def expected(first: int, end: int = END) -> Arrived:
    return [(0, offset, b"%d" % offset) for offset in range(first, end)]


def poll_until(consumer: Consumer, count: int) -> Arrived:
    arrived: Arrived = []
    give_up = time.monotonic() + SECONDS
    while len(arrived) < count:
        assert time.monotonic() < give_up, arrived
        arrived += consumer.poll()
    return arrived


@pytest.mark.parametrize("name", CONSUMER_NAMES)
def test_positions(shared_cluster: Cluster, client: RawClient, topic: str, name: str) -> None:
    """Below the log start with every reset, at a time, in the middle of a batch, committed only."""

    def consumer(**settings: str) -> Consumer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        made = CONSUMERS[name](shared_cluster.bootstrap, topic, {**DEFAULTS, **named})
        consumers.append(made)
        made.assign([0])
        return made

    consumers: list[Consumer] = []
    try:
        assert out_of_range(consumer().poll)

        committed = consumer(auto_offset_reset="earliest", isolation_level="read_committed")
        assert poll_until(committed, END - START) == expected(START)
        committed.seek(0, committed.offset_at(0, FIRST_TIME + 6_500) or 0)
        assert poll_until(committed, END - 7) == expected(7)
        assert committed.offset_at(0, FIRST_TIME + END * 1_000) is None

        latest = consumer(auto_offset_reset="latest")
        end = END
        arrived = latest.poll()
        give_up = time.monotonic() + SECONDS
        while not arrived:  # it asks for the end at some moment of its own
            assert time.monotonic() < give_up
            produce(client, topic, end)
            end += 1
            arrived = latest.poll()
        first = arrived[0][1]
        assert first >= END
        assert arrived + poll_until(latest, end - first - len(arrived)) == expected(first, end)
    finally:
        for each in consumers:
            each.close()


def out_of_range(poll: Callable[[], Arrived]) -> bool:
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        try:
            assert poll() == []
        except OutOfRange:
            return True
    return False


def test_kafkajs(shared_cluster: Cluster, topic: str, kafkajs: Path) -> None:
    offsets = {
        "beginning": list(range(START, END)),
        "time": list(range(7, END)),
        "pause": [END],
        "reset": list(range(START, END + 1)),
    }
    job = {
        "bootstrap": shared_cluster.bootstrap,
        "topic": topic,
        "timestamp": FIRST_TIME + 6_500,
        "counts": {name: len(wanted) for name, wanted in offsets.items()},
    }
    command = ["node", str(kafkajs / "positions.js")]
    done = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {**offsets, "paused": []}


def test_kcat(shared_cluster: Cluster, topic: str, kcat: str) -> None:
    def read(start: str, *settings: str) -> tuple[list[int], str]:
        command = [kcat, "-b", shared_cluster.bootstrap, "-C", "-t", topic, "-e", "-o", start]
        for setting in settings:
            command += ["-X", setting]
        done = subprocess.run(
            [*command, "-f", "%o\n"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return [int(line) for line in done.stdout.split()], done.stderr

    present = list(range(START, END))
    assert read("beginning", "isolation.level=read_committed")[0] == present
    assert read("5")[0] == present[1:]
    assert read("-2")[0] == present[-2:]
    assert read(f"s@{FIRST_TIME + 6_500}")[0] == present[3:]
    assert read("0", "auto.offset.reset=earliest")[0] == present
    assert read("0", "auto.offset.reset=latest")[0] == []
    offsets, said = read("0", "auto.offset.reset=error")
    assert offsets == []
    assert "out of range" in said
