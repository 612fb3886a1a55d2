"""One gateway, two brokers, a route table: one of them killed. And two gateways on one broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quafka_proto.schema.fetch import FetchRequest, FetchResponse, FetchTopic, PartitionData
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quafka_proto.schema.produce import ProduceRequest, ProduceResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.confluent import consume
from tests.support.fetch_calls import LONG, create, part, put
from tests.support.fleet import Fleet
from tests.support.kafka_calls import VERSION, produce_request, values
from tests.support.raw_client import RawClient

LEADER_NOT_AVAILABLE, NOT_LEADER, UNKNOWN_TOPIC, UNKNOWN_ID = 5, 6, 3, 100
ROUTES = [("logs.*", "b"), ("*", "a")]
HERE, THERE = "orders", "logs.web"
V = VERSION["fetch"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, ROUTES) as running:
        yield running


@pytest.fixture
def client(fleet: Fleet) -> Iterator[RawClient]:
    with RawClient(fleet.address()) as connected:
        until_connected(connected, HERE, THERE)
        yield connected


def describe(client: RawClient, *topics: str | bytes, version: int = 12) -> MetadataResponse:
    asked = [
        MetadataRequestTopic(topic_id=t, name=None)
        if isinstance(t, bytes)
        else MetadataRequestTopic(name=t)
        for t in topics
    ]
    request = MetadataRequest(topics=asked or None, allow_auto_topic_creation=True)
    return client.call(request, MetadataResponse, version)


def until_connected(client: RawClient, *topics: str) -> None:
    give_up = time.monotonic() + 30
    while any(t.error_code for t in describe(client, *topics).topics):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def request_of(
    *wanted: tuple[str | bytes, int], wait: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> FetchRequest:
    """Partition 0 of each topic, by name or id, from an offset on."""
    topics = []
    for topic, offset in wanted:
        entry = FetchTopic(partitions=[part(0, offset)])
        if isinstance(topic, bytes):
            entry.topic_id = topic
        else:
            entry.topic = topic
        topics.append(entry)
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=-1,
        topics=topics,
    )


def received(client: RawClient, version: int = V) -> list[PartitionData]:
    _, answer = client.receive(FetchResponse, version)
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


def get(
    client: RawClient, *wanted: tuple[str | bytes, int], version: int = V
) -> list[PartitionData]:
    client.send(request_of(*wanted), version)
    return received(client, version)


def produce_both(client: RawClient, here: bytes, there: bytes) -> list[int]:
    """One request with a partition at each broker; the error codes, in the order asked."""
    request = produce_request(THERE, there)
    request.topic_data += produce_request(HERE, here).topic_data
    answer = client.call(request, ProduceResponse, VERSION["produce"])
    assert [topic.name for topic in answer.responses] == [THERE, HERE]
    return [t.partition_responses[0].error_code for t in answer.responses]


def offsets(client: RawClient) -> list[tuple[int, int]]:
    """The end of both topics: error and offset."""
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
            for name in (THERE, HERE)
        ]
    )
    answer = client.call(request, ListOffsetsResponse, VERSION["list_offsets"])
    return [(t.partitions[0].error_code, t.partitions[0].offset) for t in answer.topics]


def test_a_request_over_both_brokers_is_one_answer_in_its_order(
    fleet: Fleet, client: RawClient
) -> None:
    assert produce_both(client, b"h0", b"t0") == [0, 0]
    assert offsets(client) == [(0, 1), (0, 1)]
    both = get(client, (THERE, 0), (HERE, 0))
    assert [values(data) for data in both] == [[b"t0"], [b"h0"]]
    both = get(client, (HERE, 0), (THERE, 0))
    assert [values(data) for data in both] == [[b"h0"], [b"t0"]]
    assert sorted(t.name or "" for t in describe(client).topics) == [THERE, HERE]
    # Each broker has its own alone.
    for name, topic in (("a", HERE), ("b", THERE)):
        assert topic.encode() in b"".join(
            path.read_bytes() for path in (fleet.folder / f"data-{name}" / "wal").glob("*.log")
        )


@pytest.mark.long
def test_a_parked_fetch_is_answered_by_whichever_broker_has_something_first(
    fleet: Fleet, client: RawClient
) -> None:
    with RawClient(fleet.address()) as other:
        for topic, ends, expected in (
            (HERE, [0, 0], [[], [b"x"]]),
            (THERE, [0, 1], [[b"x"], []]),
            (HERE, [1, 1], [[], [b"x"]]),
        ):
            wanted = zip((THERE, HERE), ends, strict=True)
            client.send(request_of(*wanted, wait=LONG), V)
            time.sleep(0.3)
            began = time.monotonic()
            put(other, topic, b"x")
            answers = received(client)
            assert time.monotonic() - began < 5
            assert [values(data) for data in answers] == expected
            marks = [end + len(new) for end, new in zip(ends, expected, strict=True)]
            assert [data.high_watermark for data in answers] == marks
    client.send(request_of((THERE, 1), (HERE, 2), wait=200), V)
    assert [values(data) for data in received(client)] == [[], []]


@pytest.mark.long
def test_min_bytes_is_over_both_brokers(fleet: Fleet, client: RawClient) -> None:
    with RawClient(fleet.address()) as other:
        put(other, HERE, bytes(600))
        client.send(request_of((THERE, 0), (HERE, 0), wait=LONG, min_bytes=1_200), V)
        time.sleep(0.3)
        began = time.monotonic()
        put(other, THERE, bytes(600))
        assert [len(values(data)[0]) for data in received(client)] == [600, 600]
        assert time.monotonic() - began < 5


def test_topics_are_known_by_their_ids(fleet: Fleet, client: RawClient) -> None:
    assert produce_both(client, b"h0", b"t0") == [0, 0]
    ids = {topic.name: topic.topic_id for topic in describe(client, HERE, THERE).topics}
    fleet.gateways["g"].stop()
    fleet.start_gateway("g")
    with RawClient(fleet.address()) as fresh:  # its gateway has not heard of the ids
        until_some_data(fresh, ids[THERE])
        both = get(fresh, (ids[THERE], 0), (bytes(15) + b"?", 0), (ids[HERE], 0), version=13)
        assert [data.error_code for data in both] == [0, UNKNOWN_ID, 0]
        assert [values(both[0]), values(both[2])] == [[b"t0"], [b"h0"]]
        found = describe(fresh, ids[THERE], bytes(15) + b"?").topics
        assert [(t.name or "", t.error_code) for t in found] == [(THERE, 0), ("", UNKNOWN_ID)]
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[])
        request.topic_data = produce_request("", b"t1").topic_data
        request.topic_data[0].topic_id = ids[THERE]
        answer = fresh.call(request, ProduceResponse, 13)
        assert answer.responses[0].partition_responses[0].base_offset == 1
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=ids[THERE])])
        deleted = fresh.call(gone, DeleteTopicsResponse, 6)
        assert [(t.name, t.error_code) for t in deleted.responses] == [(THERE, 0)]
        (data,) = get(fresh, (ids[THERE], 0), version=13)
        assert data.error_code == UNKNOWN_ID


def until_some_data(client: RawClient, topic_id: bytes) -> None:
    give_up = time.monotonic() + 30
    while get(client, (topic_id, 0), version=13)[0].error_code:
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.long
def test_a_broker_that_is_killed_costs_its_own_partitions_and_nobody_else_anything(
    fleet: Fleet, client: RawClient
) -> None:
    assert produce_both(client, b"h0", b"t0") == [0, 0]
    whole = describe(client)
    client.send(request_of((THERE, 1), (HERE, 1), wait=LONG), V)
    time.sleep(0.3)
    fleet.brokers["b"].kill()
    time.sleep(1.5)
    with RawClient(fleet.address()) as other:
        began = time.monotonic()
        put(other, HERE, b"h1")  # the parked fetch goes on for those who are there
        there, here = received(client)
        assert (there.error_code, values(here)) == (NOT_LEADER, [b"h1"])
        assert produce_both(other, b"h2", b"t-") == [NOT_LEADER, 0]
        assert offsets(other) == [(NOT_LEADER, -1), (0, 3)]
        there, here = get(other, (THERE, 0), (HERE, 2))
        assert (there.error_code, here.error_code) == (NOT_LEADER, 0)
        assert values(here) == [b"h2"]
        now = describe(other)
        assert now.cluster_id == whole.cluster_id
        assert now.topics == whole.topics  # they are not gone; nobody must take them for deleted
        codes = {t.name: t.error_code for t in describe(other, "logs.new", "new").topics}
        assert codes == {"logs.new": LEADER_NOT_AVAILABLE, "new": 0}
        assert time.monotonic() - began < 8
    fleet.start_broker("b")
    until_connected(client, "logs.new")
    assert produce_both(client, b"h3", b"t1") == [0, 0]
    there, here = get(client, (THERE, 1), (HERE, 3))
    assert [values(there), values(here)] == [[b"t1"], [b"h3"]]


def test_the_clusters_id_is_the_home_brokers(fleet: Fleet, client: RawClient) -> None:
    named = describe(client).cluster_id
    assert named
    fleet.brokers["a"].kill()
    assert describe(client, THERE).cluster_id == named
    fleet.gateways["g"].stop()
    fleet.start_gateway("g")
    with RawClient(fleet.address()) as fresh:
        until_connected(fresh, THERE)
        assert describe(fresh, THERE).cluster_id is None
        fleet.start_broker("a")
        until_connected(fresh, HERE)
        assert describe(fresh, HERE).cluster_id == named


def test_producer_ids_are_given_by_whoever_is_there_and_never_twice(
    fleet: Fleet, client: RawClient
) -> None:
    def take() -> int:
        answer = client.call(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4
        )
        assert answer.error_code == 0
        return answer.producer_id

    given = [take(), take()]
    fleet.brokers["a"].kill()
    given += [take(), take()]
    assert len(set(given)) == 4
    assert len({producer_id >> 32 for producer_id in given}) == 2


@pytest.mark.long
def test_librdkafka_over_two_brokers_one_of_which_is_killed(
    fleet: Fleet, client: RawClient
) -> None:
    create(client, "numbers")
    create(client, "logs.numbers")
    producer = Producer(
        {
            "bootstrap.servers": fleet.bootstrap(),
            "enable.idempotence": True,
            "linger.ms": 1,
            "retry.backoff.max.ms": 200,
        }
    )
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        failed.extend([error] if error is not None else [])

    for n in range(300):
        for topic in ("numbers", "logs.numbers"):
            producer.produce(topic, b"%d" % n, partition=0, on_delivery=delivered)
        producer.poll(0.005)
        if n == 100:
            fleet.brokers["b"].kill()
        if n == 200:
            fleet.start_broker("b")
    assert producer.flush(60) == 0
    assert failed == []
    for topic in ("numbers", "logs.numbers"):
        read = [message.value() for message in consume(fleet.bootstrap(), topic, 300)]
        assert read == [b"%d" % n for n in range(300)]
    both = Consumer(
        {
            "bootstrap.servers": fleet.bootstrap(),
            "group.id": "not-used",
            "enable.auto.commit": False,
        }
    )
    both.assign([TopicPartition("numbers", 0, 0), TopicPartition("logs.numbers", 0, 0)])
    seen = {"numbers": 0, "logs.numbers": 0}
    give_up = time.monotonic() + 30
    while sum(seen.values()) < 600:
        assert time.monotonic() < give_up, seen
        for message in both.consume(600, timeout=1):
            assert message.value() == b"%d" % seen[message.topic() or ""]
            seen[message.topic() or ""] += 1
    both.close()


@pytest.mark.long
def test_two_gateways_on_one_broker(tmp_path: Path) -> None:
    with (
        Fleet(tmp_path, [("*", "a")], ("g1", "g2")) as fleet,
        RawClient(fleet.address("g1")) as one,
        RawClient(fleet.address("g2")) as two,
    ):
        until_connected(one, "t")
        until_connected(two, "t")
        two.send(request_of(("t", 0), wait=LONG), V)
        time.sleep(0.2)
        assert put(one, "t", b"from one") == 0
        (data,) = received(two)
        assert values(data) == [b"from one"]
        assert put(two, "t", b"from two") == 1
        fleet.gateways["g1"].kill()
        assert put(two, "t", b"still there") == 2
        (data,) = get(two, ("t", 1))
        assert values(data) == [b"from two", b"still there"]
