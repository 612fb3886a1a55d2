"""`quafka transactions` against a server with scripted answers."""

from __future__ import annotations

import asyncio

import pytest

from quafka.commands import transactions
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Response
from quafka_proto.schema.groups import FindCoordinatorResponse, FoundCoordinator
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quafka_proto.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quafka_proto.schema.producer_id import InitProducerIdResponse
from quafka_proto.schema.transaction_admin import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    PartitionResponse,
    ProducerState,
    TopicResponse,
    TransactionState,
    TransactionTopicData,
)
from quafka_proto.schema.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.support.command import Command, Ran
from tests.unit.deploy.fake_kafka import HOST, SECONDS, Fake, serving

NOW = 1_000_000
APIS = {
    2: (1, 10), 3: (0, 12), 10: (0, 6), 22: (0, 5), 27: (1, 1), 61: (0, 0), 65: (0, 0), 66: (0, 1),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_now_ms", lambda: NOW)


def scripted(error: int = 0, state_name: str = "Ongoing") -> Fake:
    fake = Fake(APIS)
    state = TransactionState(
        error_code=error, transactional_id="slow", transaction_state=state_name,
        transaction_timeout_ms=60_000, transaction_start_time_ms=NOW - 90_000, producer_id=7,
        producer_epoch=3, topics=[TransactionTopicData(topic="orders", partitions=[1])],
    )  # fmt: skip
    broker = MetadataResponseBroker(node_id=0, host=HOST)
    partitions = [MetadataResponsePartition(partition_index=n, leader_id=0) for n in range(2)]
    topic = MetadataResponseTopic(name="orders", partitions=partitions)
    producers = [
        ProducerState(producer_id=7, producer_epoch=3, current_txn_start_offset=5),
        ProducerState(producer_id=8, producer_epoch=0, current_txn_start_offset=-1),
    ]
    found = PartitionResponse(partition_index=1, active_producers=producers)
    listed = [
        ListTransactionsTransactionState(
            transactional_id=name, producer_id=id_, transaction_state=state_
        )
        for name, id_, state_ in (("idle", 9, "Empty"), ("slow", 7, "Ongoing"))
    ]
    ends = [ListOffsetsPartitionResponse(partition_index=n, offset=12) for n in range(2)]
    answers: list[Response] = [
        MetadataResponse(cluster_id="c", brokers=[broker], topics=[topic]),
        FindCoordinatorResponse(coordinators=[FoundCoordinator(key="slow", node_id=0, host=HOST)]),
        DescribeTransactionsResponse(transaction_states=[state]),
        ListTransactionsResponse(transaction_states=listed),
        DescribeProducersResponse(topics=[TopicResponse(name="orders", partitions=[found])]),
        ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=ends)]),
        InitProducerIdResponse(),
    ]
    fake.answers.update({answer.api_key: answer for answer in answers})
    return fake


async def run(fake: Fake, line: str, code: int = 0) -> Ran:
    async with serving(fake):
        for answer in fake.answers.values():
            if isinstance(answer, MetadataResponse):
                answer.brokers[0].port = fake.port
            elif isinstance(answer, FindCoordinatorResponse):
                answer.coordinators[0].port = fake.port
        quafka = Command(f"{HOST}:{fake.port}", SECONDS)
        return await asyncio.to_thread(quafka, f"transactions {line}", code=code)


async def test_the_longest_open_transaction_comes_first() -> None:
    ran = await run(scripted(), "list")
    assert [row[:6] for row in ran.rows] == [
        ["slow", "Ongoing", "1m", "30s", "1m", "1"],
        ["idle", "Empty", "-", "-", "-", "9"],
    ]
    (found,) = (await run(scripted(), "list --open-for 60 --format json")).json["transactions"]
    assert (found["transactional_id"], found["open_seconds"], found["partitions"]) == (
        "slow",
        90,
        1,
    )
    assert (await run(scripted(), "list --open-for 91")).out == "no such transactions\n"


async def test_a_transaction_that_has_ended_is_not_open() -> None:
    ran = await run(scripted(state_name="CompleteCommit"), "describe slow --format json")
    (found,) = ran.json["transactions"]
    assert (found["state"], found["open_seconds"]) == ("CompleteCommit", None)


async def test_a_transaction_names_what_it_holds_back() -> None:
    (found,) = (await run(scripted(), "describe slow --format json")).json["transactions"]
    assert found["partitions"] == [
        {
            "topic": "orders", "partition": 1, "first_offset": 5, "last_stable_offset": 12,
            "high_watermark": 12, "held_back": 0,
        }
    ]  # fmt: skip
    ran = await run(scripted(), "describe slow")
    assert "open for          1m 30s" in ran.out
    assert "producer          7, epoch 3" in ran.out


async def test_an_unknown_id_is_neither_described_nor_created() -> None:
    fake = scripted(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    ran = await run(fake, "abort slow", code=1)
    assert "transactional id 'slow': no such transactional id" in ran.err
    assert InitProducerIdResponse.api_key not in {key for key, _ in fake.asked}
    assert "no such transactional id" in (await run(fake, "describe slow", code=1)).err


async def test_abort_fences_the_producer() -> None:
    fake = scripted()
    assert (await run(fake, "abort slow")).out == "aborted slow; its producer is fenced\n"
    assert InitProducerIdResponse.api_key in {key for key, _ in fake.asked}


async def test_what_no_coordinator_knows_is_ended_in_its_partitions() -> None:
    fake = scripted()
    results = [WritableTxnMarkerPartitionResult(partition_index=1)]
    topics = [WritableTxnMarkerTopicResult(name="orders", partitions=results)]
    marker = WritableTxnMarkerResult(producer_id=7, topics=topics)
    fake.answers[27] = WriteTxnMarkersResponse(markers=[marker])
    assert (await run(fake, "abort -t orders:1")).out == "aborted producer 7 in orders:1\n"
    results[0].error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        "producer 7 in orders:1: the producer has moved on"
        in (await run(fake, "abort -t orders:1", code=1)).err
    )
    assert "no open transactions" in (await run(fake, "abort -t orders:1 --producer 8", code=1)).err
    assert "has no partition 9" in (await run(fake, "abort -t orders:9", code=1)).err


async def test_ids_and_partitions_exclude_each_other() -> None:
    for line in ("abort", "abort slow -t orders", "abort slow --producer 7"):
        assert (await run(scripted(), line, code=2)).err
