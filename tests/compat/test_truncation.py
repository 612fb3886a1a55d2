"""After a power cut under `wal.fsync=never`: consumers whose records are gone notice it (KIP-320).

The broker is killed and what it had not synced is cut off its log. Then so much is written that
every consumer's position is within the log again: only the leader epoch tells that it has changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from quafka_proto.schema.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartitionData,
    TopicData,
)
from tests.support.cluster import Cluster
from tests.support.consumers import CONSUMERS, DEFAULTS, Arrived, Consumer, OutOfRange, Truncated
from tests.support.fetch_calls import get, part, request_of
from tests.support.java import JAVA_CLIENTS
from tests.support.kafka_calls import metadata
from tests.support.kafka_calls import values as values_of
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.long, JAVA_CLIENTS]

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


class After(NamedTuple):
    """The cluster after the cut, and what each consumer was given, or the error that it raised."""

    cluster: Cluster
    outcomes: dict[tuple[str, str], object]


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[After]:
    never = ("--wal-fsync", "never")
    with (
        Cluster(tmp_path_factory.mktemp("truncation"), broker_args=never) as cluster,
        ExitStack() as closing,
    ):
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
            closing.callback(consumer.close)
            consumer.assign([0])
        for consumer in consumers.values():
            assert read(consumer, READ) == values("old", 0, READ)
            consumer.pause([0])  # or it might look while its position is out of range
        read_by_whom_tells_no_epoch(cluster, b"old")
        cluster.broker.kill()
        for path, size in sizes.items():
            os.truncate(path, size)
        # One that was taken meanwhile has synced what the cut takes: no power cut leaves both.
        for checkpoint in (cluster.data / "wal").glob("checkpoint-*"):
            checkpoint.unlink()
        cluster.start_broker()
        read_by_whom_tells_no_epoch(cluster, b"new")
        send(cluster, "new", SURVIVES, END)
        for consumer in consumers.values():
            consumer.resume([0])
        yield After(cluster, {case: outcome(consumer) for case, consumer in consumers.items()})


def read_by_whom_tells_no_epoch(cluster: Cluster, label: bytes) -> None:
    """The gateway has kept what consumers have read; it must not give it to anybody now."""
    with RawClient(cluster.address) as raw:
        for _ in range(20):
            (found,) = get(raw, request_of(TOPIC, part(0, SURVIVES)))
            assert all(value.startswith(label) for value in values_of(found))
            time.sleep(0.01)


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
    except (OutOfRange, Truncated) as e:
        return e


@pytest.mark.parametrize(("client", "reset"), EXPECTED)
def test_a_consumer_notices(after: After, client: str, reset: str) -> None:
    found, goes_on = after.outcomes[client, reset], EXPECTED[client, reset]
    if goes_on is None:
        assert isinstance(found, Truncated)
        if client.startswith("java"):
            assert found.args == (SURVIVES,)
    else:
        assert found == values("new", goes_on, END)


@pytest.fixture
def raw(after: After) -> Iterator[RawClient]:
    with RawClient(after.cluster.address) as connected:
        yield connected


def test_everybody_is_told_the_new_epoch(raw: RawClient) -> None:
    described = metadata(raw, TOPIC).topics[0]
    assert [part.leader_epoch for part in described.partitions] == [1]
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
    found = raw.call(asked, DescribeTopicPartitionsResponse, 0).topics[0]
    assert [part.leader_epoch for part in found.partitions] == [1]
    quorum = TopicData(topic_name="__cluster_metadata", partitions=[QuorumPartitionData()])
    answer = raw.call(DescribeQuorumRequest(topics=[quorum]), DescribeQuorumResponse, 2)
    assert answer.topics[0].partitions[0].leader_epoch == 1


@pytest.mark.parametrize("version", range(5))
def test_where_each_epoch_ends(raw: RawClient, version: int) -> None:
    asked = [(-1, -1), (0, -1), (1, -1), (2, -1), (0, 1), (0, 0), (0, 2)]
    partitions = [
        OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        for epoch, current in asked
    ]
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)], replica_id=-1
    )
    answer = raw.call(request, OffsetForLeaderEpochResponse, version).topics[0]
    found = [(p.error_code, p.leader_epoch, p.end_offset) for p in answer.partitions]
    first, second = (0, 0 if version else -1, SURVIVES), (0, 1 if version else -1, END)
    fenced = (ErrorCode.FENCED_LEADER_EPOCH, -1, -1) if version >= 2 else first
    unknown = (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1) if version >= 2 else first
    assert found == [(0, -1, -1), first, second, (0, -1, -1), first, fenced, unknown]


@pytest.mark.parametrize(("current", "error"), [(-1, 0), (1, 0), (0, 74), (2, 75)])
def test_offsets_come_with_their_epoch(raw: RawClient, current: int, error: int) -> None:
    for timestamp, epoch in ((-2, 0), (-1, 1), (0, 0), (-3, 1)):
        place = ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, current_leader_epoch=current
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[place])]
        )
        (found,) = raw.call(request, ListOffsetsResponse, 7).topics[0].partitions
        assert (found.error_code, found.leader_epoch) == (error, -1 if error else epoch)


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(SURVIVES, 0, None), (READ, 0, (0, SURVIVES)), (READ, 1, None), (END + 1, 1, (1, END))],
)
def test_a_fetch_behind_a_cut_diverges(
    raw: RawClient, offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:
    (found,) = get(raw, request_of(TOPIC, part(0, offset, last_fetched_epoch=epoch)))
    assert found.error_code == 0
    end = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset)
    assert end == (diverging or (-1, -1))
    assert bool(found.records) == (diverging is None)


@pytest.mark.parametrize("version", [12, 16, 18])
def test_a_fenced_fetch_is_told_the_leader(after: After, raw: RawClient, version: int) -> None:
    topic = metadata(raw, TOPIC).topics[0].topic_id if version > 12 else TOPIC
    fenced = ErrorCode.FENCED_LEADER_EPOCH if version >= 16 else None
    for epoch, error in ((0, 74), (1, 0), (2, 75)):
        answer = raw.call(request_of(topic, part(leader_epoch=epoch)), FetchResponse, version)
        (found,) = answer.responses[0].partitions
        told = error == fenced
        assert (found.error_code, found.current_leader.leader_epoch) == (error, 1 if told else -1)
        leaders = [(node.host, node.port) for node in answer.node_endpoints]
        assert leaders == ([after.cluster.address] if told else [])
