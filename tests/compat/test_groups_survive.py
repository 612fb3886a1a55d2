"""Groups through kills: every record at least once, none left out, and commits stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.group_members import (
    GROUPS,
    PARTITIONS,
    SECONDS,
    fill,
    member,
    owned,
    poll,
    produce,
    read,
    until,
)

pytestmark = pytest.mark.long

OFTEN = {"auto.commit.interval.ms": 100}
_CHUNK = 200


def kill_broker(cluster: Cluster) -> None:
    cluster.broker.kill()
    cluster.start_broker()


def kill_gateway(cluster: Cluster) -> None:
    cluster.gateway.kill()
    cluster.start_gateway()


def all_committed(consumer: Consumer, topic: str) -> int:
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    return sum(max(0, place.offset) for place in consumer.committed(places, timeout=20))


@pytest.mark.parametrize("kill", [kill_broker, kill_gateway])
def test_a_kill_in_the_middle(tmp_path: Path, kill: Callable[[Cluster], None]) -> None:
    with Cluster(tmp_path, broker_args=GROUPS) as cluster:
        consume_through_kills(cluster, kill)


def consume_through_kills(cluster: Cluster, kill: Callable[[Cluster], None]) -> None:
    values = fill(cluster, "t", _CHUNK)
    a, b = member(cluster, "g", "t", OFTEN), member(cluster, "g", "t", OFTEN)
    found = until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    for turn in range(1, 3):
        values += produce(cluster, "t", range(turn * _CHUNK, (turn + 1) * _CHUNK))
        found += poll(a) + poll(b)
        kill(cluster)
    give_up = time.monotonic() + SECONDS
    while set(found) != set(values) or all_committed(a, "t") < len(values):
        assert time.monotonic() < give_up
        found += poll(a) + poll(b)
    until(lambda: owned(a) | owned(b) == set(range(PARTITIONS)), a, b)
    for consumer in (a, b):
        consumer.close()
    # What was committed is where the next one begins: at the end, not before it.
    more = produce(cluster, "t", range(3 * _CHUNK, 4 * _CHUNK))
    after = member(cluster, "g", "t")
    assert sorted(read(after, _CHUNK)) == sorted(more)
    after.close()


def test_members_go_on_after_a_broker_restart_without_a_rebalance(cluster: Cluster) -> None:
    fill(cluster, "t")
    revoked: list[int] = []
    a = member(cluster, "g", "t", {"session.timeout.ms": 10_000}, revoked.append)
    b = member(cluster, "g", "t", {"session.timeout.ms": 10_000}, revoked.append)
    until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    read_before = {1: owned(a), 2: owned(b)}
    revoked.clear()
    kill_broker(cluster)
    more = set(produce(cluster, "t", range(40, 80)))
    found: list[bytes] = []
    give_up = time.monotonic() + SECONDS
    while not more <= set(found):
        assert time.monotonic() < give_up
        found += poll(a) + poll(b)
    a.commit(asynchronous=False)
    b.commit(asynchronous=False)
    assert all_committed(a, "t") == 80
    assert {1: owned(a), 2: owned(b)} == read_before
    assert not revoked
    for consumer in (a, b):
        consumer.close()
