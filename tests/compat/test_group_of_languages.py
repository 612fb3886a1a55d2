"""Clients of six kinds in one group; members that are killed, paused and slow. None skips any."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.flock import Flock
from tests.support.group_members import PARTITIONS, fill, produce
from tests.support.java import JAVA_TOOLS
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.worker import SESSION_MS

pytestmark = pytest.mark.long

KINDS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java")


@pytest.fixture
def flock(group_cluster: Cluster, tmp_path: Path) -> Iterator[Flock]:
    with Flock(tmp_path, group_cluster.bootstrap, tmp_path.name, tmp_path.name, 6) as flock:
        with RawClient(group_cluster.address) as client:
            create_topic(client, tmp_path.name, 6)
        yield flock


@JAVA_TOOLS
@pytest.mark.needs("kcat")
def test_all_languages_in_one_group(
    group_cluster: Cluster, flock: Flock, tmp_path: Path, kafkajs: Path
) -> None:
    topic = tmp_path.name
    every = [flock.start("kafkajs", script=str(kafkajs / "worker.js"))]
    every += [flock.start(kind) for kind in KINDS]
    numbers = count()

    def all_have_some() -> bool:
        at = next(numbers) * 60
        produce(group_cluster, topic, range(at, at + 60), 6)
        return all(worker.processed for worker in every)

    flock.until(all_have_some, 60)
    flock.until_all_is_committed()
    assert not flock.skipped()
    # All but one leave. They are waited for: a record that comes while kcat is told to end is
    # committed by it, and not printed.
    for worker in every[1:]:
        worker.signal(signal.SIGTERM)
    for worker in every[1:]:
        worker.process.wait(20)
    produce(group_cluster, topic, range(60), 6)
    flock.until_all_is_committed()
    assert not flock.skipped()


def test_members_that_are_killed_paused_and_slow(group_cluster: Cluster, tmp_path: Path) -> None:
    topic = tmp_path.name
    fill(group_cluster, topic)
    with Flock(tmp_path, group_cluster.bootstrap, topic, topic, PARTITIONS) as flock:
        killed = flock.start("confluent-kafka", act="die", after=15)
        paused = flock.start("confluent-kafka", act="stop", after=15)
        slow = flock.start(
            "confluent-kafka", act="sleep", after=15, seconds=1.5 * SESSION_MS / 1000
        )
        flock.start("confluent-kafka")
        numbers = count(1)

        def all_have_acted() -> bool:
            at = next(numbers) * 40
            produce(group_cluster, topic, range(at, at + 40))
            dead = killed.process.poll() == -signal.SIGKILL
            return dead and paused.is_stopped and bool(slow.refused)

        flock.until(all_have_acted)
        flock.until_all_is_committed()
        assert not flock.skipped()
        # The others have long taken over what the paused one now says that it has done.
        before = flock.committed()
        paused.signal(signal.SIGCONT)
        flock.until(lambda: paused.refused)
        assert flock.committed() == before
        produce(group_cluster, topic, range(40))
        flock.until_all_is_committed()
        assert not flock.skipped()
        assert flock.processed == {(p, o) for p, n in flock.ends().items() for o in range(n)}
