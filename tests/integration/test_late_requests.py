"""Requests of transactional producers that arrive late, on connections that they have left.

Before KIP-890 a producer keeps its epoch over many transactions. So nothing in a late EndTxn or
TxnOffsetCommit tells that it belongs to an earlier transaction; only its connection does.

Apache Kafka 4.3, with the same requests (measured): the late commit and the late abort are answered
without an error, and end the next transaction. Of the one, half of a transaction is visible that
its producer then wants to abort; of the other, the producer's commit fails. The late offset is
answered without an error, and appears with the next commit. The late end after KIP-890 is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from quafka_proto.errors import ErrorCode
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from quafka_proto.schema.transactions import (
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from tests.support.cluster import Cluster
from tests.support.confluent import LASTING
from tests.support.isolated_reader import IsolatedReader
from tests.support.raw_client import RawClient
from tests.support.request_proxy import PASSED, Fate, Held, RequestProxy, api_key, request_proxy
from tests.support.transactional import ADD_PARTITIONS, TV1, TV2, RawProducer

pytestmark = pytest.mark.long

SECONDS = 30.0


@pytest.fixture
def producer(client: RawClient, topic: str) -> RawProducer:
    """A TV1 producer with a session."""
    made = RawProducer(client, topic, TV1)
    assert made.find_coordinator() == made.initialise() == 0
    return made


def visible(client: RawClient, topic: str) -> list[bytes]:
    """What a read_committed consumer finds in partition 0."""
    reader = IsolatedReader(topic, 1, committed=True)
    found: list[bytes] = []
    while not reader.is_at_end():
        found += [record.value or b"" for _, record in reader.poll(client)]
    return found


def committed_offsets(client: RawClient, topic: str) -> list[int]:
    """Of the group that has the topic's name, in partitions 0 and 1; -1: none."""
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])
    groups = [OffsetFetchRequestGroup(group_id=topic, topics=[wanted])]
    answer = client.call(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 8)
    return [part.committed_offset for part in answer.groups[0].topics[0].partitions]


def open_with(producer: RawProducer, topic: str, value: bytes) -> None:
    assert producer.add_partitions(topic, [0]) == 0
    assert producer.produce(topic, {0: [value]}) == 0


def test_a_delayed_end_does_not_tear_the_next_transaction(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    open_with(producer, topic, b"first")
    late = producer.end_request(commit=True)
    # No answer comes to the first copy: the client repeats it on another connection.
    moved = replace(producer, client=other)
    assert moved.end(commit=True) == 0
    open_with(moved, topic, b"half")
    answer: EndTxnResponse = client.call(late, EndTxnResponse, TV1.end)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert visible(other, topic) == [b"first"]
    assert moved.produce(topic, {0: [b"whole"]}) == 0
    assert moved.end(commit=False) == 0
    assert visible(other, topic) == [b"first"]


def test_a_delayed_abort_does_not_lose_the_next_transaction(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    open_with(producer, topic, b"aborted")
    late = producer.end_request(commit=False)
    moved = replace(producer, client=other)
    assert moved.end(commit=False) == 0
    open_with(moved, topic, b"kept")
    assert client.call(late, EndTxnResponse, TV1.end).error_code == ErrorCode.NOT_COORDINATOR
    assert moved.end(commit=True) == 0
    assert visible(other, topic) == [b"kept"]


def test_a_delayed_produce_does_not_join_the_next_transaction(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    """The second copy is answered, and the transaction aborted for other reasons."""
    assert producer.add_partitions(topic, [0]) == 0
    late = producer.produce_request(topic, {0: [b"aborted"]})
    moved = replace(producer, client=other)
    assert not moved.send(late)[0].error
    assert moved.end(commit=False) == 0
    open_with(moved, topic, b"other")
    answer = client.call(late, ProduceResponse, TV1.produce)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert moved.end(commit=True) == 0
    assert visible(other, topic) == [b"other"]


def test_a_delayed_produce_of_a_batch_that_was_given_up(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    """Clients raise their epoch then (KIP-360), so that it is told before anything new is sent."""
    assert producer.add_partitions(topic, [0]) == 0
    late = producer.produce_request(topic, {0: [b"given up"]})
    moved = replace(producer, client=other)
    assert moved.end(commit=False) == 0
    assert moved.initialise(anew=False) == 0
    assert moved.add_partitions(topic, [0]) == 0
    answer = client.call(late, ProduceResponse, TV1.produce)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert moved.produce(topic, {0: [b"other"]}) == 0
    assert moved.end(commit=True) == 0
    assert visible(other, topic) == [b"other"]


def test_a_delayed_offset_does_not_join_the_next_transaction(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    """It would skip records: the transaction that has processed them was aborted."""
    assert producer.add_offsets(topic) == 0
    late = producer.commit_offset_request(topic, topic, 0, 99)
    # The second copy is answered, so that the client may abort the transaction for other reasons.
    moved = replace(producer, client=other)
    assert moved.commit_offset(topic, topic, 0, 99) == 0
    assert moved.end(commit=False) == 0
    assert moved.add_offsets(topic) == 0
    answer = client.call(late, TxnOffsetCommitResponse, TV1.offsets)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert moved.commit_offset(topic, topic, 1, 7) == 0
    assert moved.end(commit=True) == 0
    assert committed_offsets(other, topic) == [-1, 7]


def test_a_delayed_add_opens_no_transaction(
    producer: RawProducer, client: RawClient, other: RawClient, topic: str
) -> None:
    """Nobody would end it; its timeout would fence the producer."""
    late = producer.add_partitions_request(topic, [0])
    moved = replace(producer, client=other)
    open_with(moved, topic, b"first")
    assert moved.end(commit=True) == 0
    answer = client.call(late, AddPartitionsToTxnResponse, ADD_PARTITIONS)
    (part,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert part.partition_error_code == ErrorCode.NOT_COORDINATOR
    request = DescribeTransactionsRequest(transactional_ids=[topic])
    (found,) = other.call(request, DescribeTransactionsResponse, 0).transaction_states
    assert found.transaction_state == "CompleteCommit"
    open_with(moved, topic, b"second")
    assert moved.end(commit=True) == 0
    assert visible(other, topic) == [b"first", b"second"]


def test_a_delayed_end_after_kip_890_is_told_by_its_epoch(
    client: RawClient, other: RawClient, topic: str
) -> None:
    producer = RawProducer(client, topic, TV2)
    assert producer.find_coordinator() == producer.initialise() == 0
    assert producer.produce(topic, {0: [b"first"]}) == 0
    late = producer.end_request(commit=True)
    moved = replace(producer, client=other)
    assert moved.end(commit=True) == 0
    assert moved.produce(topic, {0: [b"half"]}) == 0
    assert client.call(late, EndTxnResponse, TV2.end).error_code
    assert moved.end(commit=False) == 0
    assert visible(other, topic) == [b"first"]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, RequestProxy]]:
    """A cluster whose clients connect through a proxy."""
    with request_proxy() as proxy:
        args = ("--advertised-listener", proxy.bootstrap)
        with Cluster(tmp_path_factory.mktemp("late"), gateway_args=args) as cluster:
            proxy.target = cluster.address[1]
            yield cluster, proxy


def test_a_delayed_end_of_librdkafka(proxied: tuple[Cluster, RequestProxy]) -> None:
    """The proxy holds its EndTxn back until the next transaction is half done."""
    cluster, proxy = proxied
    held = Held(SECONDS)
    waiting = [held]

    def fate(frame: bytes) -> Fate:
        return waiting.pop() if waiting and api_key(frame) == EndTxnRequest.api_key else PASSED

    proxy.fate = fate
    producer = Producer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "transactional.id": "late",
            "log_level": 0,
            **LASTING,
        }
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("late", b"first", partition=0)
    producer.commit_transaction(SECONDS)
    assert held.arrived.is_set()
    producer.begin_transaction()
    producer.produce("late", b"half", partition=0)
    assert producer.flush(SECONDS) == 0
    held.deliver()
    assert held.answered.wait(SECONDS)
    with RawClient(cluster.address) as client:
        assert visible(client, "late") == [b"first"]
    producer.abort_transaction(SECONDS)
    with RawClient(cluster.address) as client:
        assert visible(client, "late") == [b"first"]
