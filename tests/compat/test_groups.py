"""Consumer groups with real clients: what is read once, who takes over, and where one goes on."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import TopicPartition

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.cluster import Cluster
from tests.support.group_members import (
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
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient


@pytest.mark.long
def test_a_member_commits_and_the_next_one_resumes(group_cluster: Cluster) -> None:
    values = fill(group_cluster, "resume")
    first = member(group_cluster, "resume", "resume")
    assert sorted(read(first, 40)) == sorted(values)
    begun = time.monotonic()
    first.close()  # it commits what it has read, and leaves
    assert time.monotonic() - begun < 10
    more = produce(group_cluster, "resume", range(40, 60))
    second = member(group_cluster, "resume", "resume")
    assert sorted(read(second, 20)) == sorted(more)
    second.close()


def test_two_members_share_and_take_over(group_cluster: Cluster) -> None:
    fill(group_cluster, "share")
    a, b = member(group_cluster, "share", "share"), member(group_cluster, "share", "share")
    until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    assert owned(a) | owned(b) == set(range(PARTITIONS))
    b.close()
    until(lambda: owned(a) == set(range(PARTITIONS)), a)
    a.close()


@pytest.mark.long
def test_cooperative_members_keep_what_they_have(group_cluster: Cluster) -> None:
    fill(group_cluster, "sticky")
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    a = member(group_cluster, "sticky", "sticky", cooperative)
    until(lambda: len(owned(a)) == 4, a)
    b = member(group_cluster, "sticky", "sticky", cooperative)
    until(lambda: len(owned(b)) == 2 and len(owned(a)) == 2, a, b)
    assert owned(a) | owned(b) == set(range(PARTITIONS))
    for consumer in (a, b):
        consumer.close()


@pytest.mark.long
def test_a_static_member_comes_back_without_a_rebalance(group_cluster: Cluster) -> None:
    fill(group_cluster, "static")
    revoked: list[int] = []
    a = member(group_cluster, "static", "static", {"group.instance.id": "a"}, revoked.append)
    b = member(group_cluster, "static", "static", {"group.instance.id": "b"})
    until(lambda: len(owned(a)) == len(owned(b)) == 2, a, b)
    before = owned(b)
    revoked.clear()
    b.close()  # a static member does not leave
    again = member(group_cluster, "static", "static", {"group.instance.id": "b"})
    until(lambda: owned(again) == before, a, again)
    assert not revoked
    for consumer in (a, again):
        consumer.close()


def test_metadata_comes_back(group_cluster: Cluster) -> None:
    fill(group_cluster, "metadata")
    consumer = member(group_cluster, "metadata", "metadata", {"enable.auto.commit": False})
    until(lambda: len(owned(consumer)) == 4, consumer)
    place = TopicPartition("metadata", 1, 7, "métadonnées ☃")
    consumer.commit(offsets=[place], asynchronous=False)
    (found,) = consumer.committed([TopicPartition("metadata", 1)], timeout=10)
    assert (found.offset, found.metadata) == (7, "métadonnées ☃")
    (nothing,) = consumer.committed([TopicPartition("metadata", 2)], timeout=10)
    assert nothing.offset < 0
    consumer.close()


@pytest.mark.long
async def test_aiokafka_in_one_group_with_confluent_kafka(group_cluster: Cluster) -> None:
    values = fill(group_cluster, "mixed")
    librdkafka = member(group_cluster, "mixed", "mixed")
    found = until(lambda: len(owned(librdkafka)) == 4, librdkafka)
    aio = AIOKafkaConsumer(
        "mixed",
        bootstrap_servers=group_cluster.bootstrap,
        group_id="mixed",
        auto_offset_reset="earliest",
        session_timeout_ms=2_000,
        heartbeat_interval_ms=200,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    starting = asyncio.create_task(aio.start())
    give_up = time.monotonic() + SECONDS
    # Each learns of its part by itself: one may have it before the other.
    while not (starting.done() and len(aio.assignment()) == len(owned(librdkafka)) == 2):
        assert time.monotonic() < give_up
        found += await asyncio.to_thread(poll, librdkafka)
    await starting
    assert {p.partition for p in aio.assignment()} | owned(librdkafka) == {0, 1, 2, 3}
    while len(set(found)) < len(values):
        assert time.monotonic() < give_up
        batches = await aio.getmany(timeout_ms=100)
        found += [record.value for batch in batches.values() for record in batch]
        found += await asyncio.to_thread(poll, librdkafka)
    await aio.stop()
    librdkafka.close()
    assert set(found) == set(values)


@pytest.mark.long
def test_kcat_is_killed_and_another_takes_over(
    group_cluster: Cluster, kcat: str, tmp_path: Path
) -> None:
    values = fill(group_cluster, "kcat")
    common = ["-q", "-b", group_cluster.bootstrap, "-X", "auto.offset.reset=earliest"]
    common += ["-X", "session.timeout.ms=2000", "-X", "heartbeat.interval.ms=200"]
    out = tmp_path / "out"
    with out.open("wb") as file:
        command = [kcat, *common, "-u", "-G", "kcat", "kcat"]
        killed = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        try:
            until(lambda: len(out.read_bytes().split()) == len(values))
        finally:
            killed.kill()
            killed.wait()
    after = member(group_cluster, "kcat", "kcat")
    # It had no time to commit: what it has read is read again, and nothing is left out.
    assert set(read(after, 40)) == set(values)
    after.close()


@pytest.mark.parametrize("version", range(11))
def test_commits_from_outside_of_a_group(group_cluster: Cluster, version: int) -> None:
    with RawClient(group_cluster.address) as client:
        create_topic(client, f"outside-{version}", 1)
        part = OffsetCommitRequestPartition(committed_offset=5, committed_metadata=None)
        topic = OffsetCommitRequestTopic(name=f"outside-{version}", partitions=[part])
        request = OffsetCommitRequest(group_id=f"outside-{version}", topics=[topic])
        if version >= 10:
            topic.topic_id = b"\x01" * 16
        answer = client.call(request, OffsetCommitResponse, version)
        (found,) = answer.topics[0].partitions
        expected = ErrorCode.NONE if version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
        assert found.error_code == expected
