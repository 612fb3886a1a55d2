"""What fetch promises, item by item, over real processes and a real mesh."""

from __future__ import annotations

import time

import pytest

from quafka_proto.errors import ErrorCode
from quafka_proto.headers import encode_request
from quafka_proto.schema.fetch import FetchResponse, FetchTopic, ReplicaState
from quafka_proto.schema.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.fetch_calls import (
    LONG,
    PARTITIONS,
    V,
    delete,
    delete_records,
    get,
    one,
    park,
    part,
    put,
    request_of,
    woken,
)
from tests.support.kafka_calls import metadata, values
from tests.support.raw_client import RawClient

# --- 1. limits and the long poll ------------------------------------------------------------


@pytest.mark.long
def test_max_wait_ms_ends_the_wait(client: RawClient, topic: str) -> None:
    began = time.monotonic()
    assert one(client, topic, part(), wait=300).error_code == 0
    assert 0.25 < time.monotonic() - began < 5


def test_min_bytes_is_counted_over_all_partitions(
    client: RawClient, other: RawClient, topic: str
) -> None:
    park(client, request_of(topic, part(0), part(1), part(2), wait=LONG, min_bytes=2_000))
    put(other, topic, b"x" * 900, partition=0)
    put(other, topic, b"x" * 900, partition=1)
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(10)
    put(other, topic, b"x" * 900, partition=2)
    assert [len(values(data)) for data in woken(client)] == [1, 1, 1]


@pytest.mark.long
def test_an_append_wakes_a_parked_fetch_at_once(
    client: RawClient, other: RawClient, topic: str
) -> None:
    """Also one of many partitions, and one after another: none is missed, none is late."""
    slowest = 0.0
    for offset in range(20):
        client.send(request_of(topic, part(0), part(3, offset), wait=LONG), V)
        time.sleep(0.01)
        began = time.monotonic()
        put(other, topic, b"wake", partition=3)
        _, answer = client.receive(FetchResponse, V)
        slowest = max(slowest, time.monotonic() - began)
        assert values(answer.responses[0].partitions[1]) == [b"wake"]
    assert slowest < 8


def test_an_append_just_before_the_fetch_parks_is_not_missed(
    client: RawClient, other: RawClient, topic: str
) -> None:
    for offset in range(50):
        client.send(request_of(topic, part(0, offset), wait=LONG), V)
        put(other, topic, b"race")
        assert len(woken(client)) == 1


def test_max_bytes_and_partition_max_bytes(client: RawClient, topic: str) -> None:
    for partition in range(3):
        for _ in range(3):
            put(client, topic, b"x" * 1_000, partition=partition)
    size = len(one(client, topic, part()).records or b"") // 3

    def counts(*limits: int, max_bytes: int = 1 << 20) -> list[int]:
        parts = [part(index, 0, limit) for index, limit in enumerate(limits)]
        return [len(values(d)) for d in get(client, request_of(topic, *parts, max_bytes=max_bytes))]

    assert counts(2 * size, 1, 3 * size) == [2, 0, 3]
    assert counts(1, 1, 1) == [1, 0, 0]
    assert counts(1 << 20, 1 << 20, 1 << 20, max_bytes=4 * size) == [3, 1, 0]
    assert counts(1 << 20, 1 << 20, 1 << 20, max_bytes=1) == [1, 0, 0]
    assert counts(1 << 20, 1 << 20, 1 << 20, max_bytes=4 * size - 1) == [3, 0, 0]


def test_at_least_one_batch_is_returned_however_large(client: RawClient, topic: str) -> None:
    put(client, topic, b"x" * 50_000, partition=1)
    put(client, topic, b"next", partition=1)
    empty, data = get(client, request_of(topic, part(0), part(1, 0, 10), max_bytes=10))
    assert values(empty) == []
    assert values(data) == [b"x" * 50_000]


# --- 2. offsets -----------------------------------------------------------------------------


@pytest.mark.long
def test_a_fetch_at_the_high_watermark_waits_and_returns_empty(
    client: RawClient, topic: str
) -> None:
    put(client, topic, b"a")
    began = time.monotonic()
    data = one(client, topic, part(offset=1), wait=200)
    assert 0.15 < time.monotonic() - began < 5
    assert (data.error_code, values(data), data.high_watermark) == (0, [], 1)


@pytest.mark.parametrize("offset", [-1, 0, 4, 1 << 62])
def test_offset_out_of_range_carries_log_start_and_high_watermark(
    client: RawClient, topic: str, offset: int
) -> None:
    put(client, topic, b"a", b"b", b"c")
    delete_records(client, topic, 2)
    data = one(client, topic, part(offset=offset), wait=LONG)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.log_start_offset, data.high_watermark) == (2, 3)
    assert values(data) == []


def test_a_fetch_offset_in_the_middle_of_a_batch_returns_the_whole_batch(
    client: RawClient, topic: str
) -> None:
    put(client, topic, b"a", b"b", b"c")
    put(client, topic, b"d")
    for offset in range(3):
        assert values(one(client, topic, part(offset=offset))) == [b"a", b"b", b"c", b"d"]
    delete_records(client, topic, 1)
    assert values(one(client, topic, part(offset=1))) == [b"a", b"b", b"c", b"d"]


# --- 3. isolation ---------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", [0, 1])
def test_isolation_levels_read_to_the_last_stable_offset(
    client: RawClient, topic: str, isolation: int
) -> None:
    """Nothing is undecided without transactions; the aborted list is null or empty by level."""
    put(client, topic, b"a", b"b")
    (data,) = get(client, request_of(topic, part(), isolation=isolation))
    assert values(data) == [b"a", b"b"]
    assert (data.high_watermark, data.last_stable_offset) == (2, 2)
    assert data.aborted_transactions == ([] if isolation else None)


@pytest.mark.parametrize("version", [V, 15])
def test_a_replica_reads_to_the_log_end(client: RawClient, topic: str, version: int) -> None:
    put(client, topic, b"a", b"b")
    topic_id = metadata(client, topic).topics[0].topic_id
    request = request_of(topic if version < 13 else topic_id, part())
    request.replica_id = 3
    request.replica_state = ReplicaState(replica_id=3)
    (data,) = get(client, request, version)
    assert values(data) == [b"a", b"b"]


def test_a_rack_is_accepted_and_no_other_replica_preferred(client: RawClient, topic: str) -> None:
    put(client, topic, b"a")
    request = request_of(topic, part())
    request.rack_id = "rack-1"
    (data,) = get(client, request)
    assert (values(data), data.preferred_read_replica) == ([b"a"], -1)


# --- 4. errors ------------------------------------------------------------------------------


def test_unknown_topic_id_and_unknown_topic_or_partition(client: RawClient, topic: str) -> None:
    topic_id = metadata(client, topic).topics[0].topic_id
    for unknown in (b"\x01" * 16, bytes(16)):
        (data,) = get(client, request_of(unknown, part(), wait=LONG), 13)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for version, wanted in ((V, topic), (13, topic_id)):
        for index in (-1, PARTITIONS):
            (data,) = get(client, request_of(wanted, part(index), wait=LONG), version)
            assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(client, "no-such", part()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_current_leader_epoch_is_checked(
    client: RawClient, topic: str, epoch: int, error: ErrorCode
) -> None:
    put(client, topic, b"a")
    data = one(client, topic, part(leader_epoch=epoch), wait=LONG)
    assert data.error_code == error
    assert values(data) == ([] if error else [b"a"])


@pytest.mark.parametrize(
    ("epoch", "offset", "error", "diverging"),
    [
        (0, 1, ErrorCode.NONE, (-1, -1)),
        (0, 3, ErrorCode.NONE, (0, 2)),
        (4, 1, ErrorCode.OFFSET_OUT_OF_RANGE, (-1, -1)),
    ],
    ids=["the same log", "a longer log", "an epoch that never was"],
)
def test_last_fetched_epoch_finds_divergence(
    client: RawClient,
    topic: str,
    epoch: int,
    offset: int,
    error: ErrorCode,
    diverging: tuple[int, int],
) -> None:
    put(client, topic, b"a", b"b")
    data = one(client, topic, part(offset=offset, last_fetched_epoch=epoch), wait=LONG)
    assert data.error_code == error
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == diverging
    assert bool(data.records) == (offset == 1 and not error)


@pytest.mark.parametrize("version", range(5))
def test_offset_for_leader_epoch(client: RawClient, topic: str, version: int) -> None:
    put(client, topic, b"a", b"b")
    asked = [(0, 0, -1), (0, 0, 0), (0, 5, -1), (0, -1, -1), (0, 0, 5), (0, 0, -2), (9, 0, -1)]
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition, leader_epoch=epoch, current_leader_epoch=current
                    )
                    for partition, epoch, current in asked
                ],
            )
        ]
    )
    answer = client.call(request, OffsetForLeaderEpochResponse, version).topics[0]
    found = [(p.error_code, p.leader_epoch, p.end_offset) for p in answer.partitions]
    known = 0 if version else -1  # the epoch travels from version 1 on
    current_is_known = version >= 2
    assert found == [
        (0, known, 2),
        (0, known, 2),
        (0, -1, -1),
        (0, -1, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1) if current_is_known else (0, known, 2),
        (ErrorCode.FENCED_LEADER_EPOCH, -1, -1) if current_is_known else (0, known, 2),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


@pytest.mark.long
def test_one_bad_partition_neither_spoils_nor_delays_the_others(
    client: RawClient, topic: str
) -> None:
    put(client, topic, b"good", partition=1)
    parts = (part(0, 99), part(1), part(77), part(2, leader_epoch=4))
    request = request_of(topic, *parts, wait=LONG, min_bytes=1 << 20)
    request.topics.append(FetchTopic(topic="no-such", partitions=[part()]))
    began = time.monotonic()
    answers = get(client, request)
    assert time.monotonic() - began < 5
    assert [ErrorCode(data.error_code) for data in answers] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert values(answers[1]) == [b"good"]


# --- what happens while a fetch is parked ---------------------------------------------------


@pytest.mark.parametrize("version", [V, 13])
def test_a_topic_deleted_while_a_fetch_is_parked(
    client: RawClient, other: RawClient, topic: str, version: int
) -> None:
    topic_id = metadata(client, topic).topics[0].topic_id
    put(client, topic, b"stays", partition=0)
    wanted = topic if version < 13 else topic_id
    request = request_of(wanted, part(0, 1), part(1), wait=LONG)
    park(client, request, version)
    delete(other, topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID
    answers = woken(client, version)
    assert [data.error_code for data in answers] == [unknown] * 2


def test_a_log_start_that_passes_a_parked_fetch_is_told_at_once(
    client: RawClient, other: RawClient, topic: str
) -> None:
    put(client, topic, b"a", b"b")
    park(client, request_of(topic, part(0, 0), part(1), wait=LONG, min_bytes=1 << 20))
    delete_records(other, topic, 1)
    data, _ = woken(client)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.log_start_offset, data.high_watermark) == (1, 2)


# --- what real clients have been seen to do -------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_any_version_is_served_whatever_was_agreed_on(
    client: RawClient, topic: str, version: int
) -> None:
    """librdkafka 2.6.0 sends Fetch 12 also where the answer to ApiVersions ended at 11."""
    put(client, topic, b"a", b"b")
    (data,) = get(client, request_of(topic, part()), version)
    assert values(data) == [b"a", b"b"]


def test_a_version_that_nobody_knows_costs_its_connection_only(
    client: RawClient, other: RawClient, topic: str
) -> None:
    put(client, topic, b"a")
    frame = b"".join(encode_request(1, "too-new", request_of(topic, part()), 12))
    client.socket.sendall(frame[:6] + (99).to_bytes(2, "big") + frame[8:])
    assert client.closed_by_peer()
    assert values(one(other, topic, part())) == [b"a"]
