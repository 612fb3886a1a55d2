"""After a power cut under `wal.fsync=never`: consumers whose records are gone notice it (KIP-320).

The broker is killed and what it had not synced is cut off its log. Then so much is written that
every consumer's position is within the log again: only the leader epoch tells that it has changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.consumers import CONSUMERS, DEFAULTS, Arrived, Consumer, Truncated

TOPIC = "cut"
SURVIVES, READ, END = 4, 10, 16
"""Offsets: the power cut leaves what is below the first; consumers had read up to the second."""
SECONDS = 40.0
EXPECTED: Mapping[tuple[str, str], int | None] = {
    ("confluent-kafka", "none"): None,
    ("confluent-kafka", "earliest"): SURVIVES,
    ("java-classic", "none"): None,
    ("java-classic", "earliest"): SURVIVES,
    ("java-async", "none"): None,
    ("kafka-python", "earliest"): SURVIVES,
    ("aiokafka", "earliest"): READ,  # it does not look at epochs, but is not held up by them
}
"""Where a consumer goes on; None: it says that its records are gone."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], object]]:
    """For each consumer: what it was given after the cut, or the error that it raised."""
    never = ("--wal-fsync", "never")
    with Cluster(tmp_path_factory.mktemp("truncation"), broker_args=never) as cluster:
        send(cluster, "old", 0, SURVIVES)
        sizes = sizes_of_log(cluster)
        send(cluster, "old", SURVIVES, READ)
        consumers = {
            case: CONSUMERS[case[0]](
                cluster.bootstrap, TOPIC, {**DEFAULTS, "auto.offset.reset": case[1]}
            )
            for case in EXPECTED
        }
        for consumer in consumers.values():
            consumer.assign([0])
        for consumer in consumers.values():
            assert read(consumer, READ) == values("old", 0, READ)
        cluster.broker.kill()
        for path, size in sizes.items():
            os.truncate(path, size)
        cluster.start_broker()
        send(cluster, "new", SURVIVES, END)
        yield {case: outcome(consumer) for case, consumer in consumers.items()}
        for consumer in consumers.values():
            consumer.close()


def values(label: str, first: int, end: int) -> Arrived:
    return [(0, offset, f"{label}{offset}".encode()) for offset in range(first, end)]


def send(cluster: Cluster, label: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    offsets: list[int] = []
    for _, _, value in values(label, first, end):
        producer.produce(TOPIC, value, on_delivery=lambda _, m: offsets.append(m.offset() or 0))
        producer.flush(SECONDS)
    assert offsets == list(range(first, end))


def sizes_of_log(cluster: Cluster) -> dict[Path, int]:
    files = (cluster.data / "wal").glob("000000000000.*")
    return {path: path.stat().st_size for path in files}


def read(consumer: Consumer, count: int) -> Arrived:
    found: Arrived = []
    until = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < until:
        found += consumer.poll()
    return found


def outcome(consumer: Consumer) -> object:
    try:
        first = read(consumer, 1)
        return first + read(consumer, END - first[0][1] - len(first))
    except Truncated as e:
        return e


@pytest.mark.parametrize(("client", "reset"), EXPECTED)
def test_a_consumer_notices(
    outcomes: dict[tuple[str, str], object], client: str, reset: str
) -> None:
    found, goes_on = outcomes[client, reset], EXPECTED[client, reset]
    if goes_on is None:
        assert isinstance(found, Truncated)
        if client.startswith("java"):
            assert found.args == (SURVIVES,)
    else:
        assert found == values("new", goes_on, END)
