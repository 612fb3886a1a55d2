"""Transactions: large ones, many, abandoned ones, and those that hide or reveal what they should
not."""

from __future__ import annotations

import time

from quafka_proto.errors import ErrorCode
from quafka_proto.message import Message
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from quafka_proto.schema.producer_id import InitProducerIdRequest
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from quafka_proto.schema.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.isolated_reader import IsolatedReader
from tests.support.raw_client import RawClient
from tests.support.transactional import TV2, RawProducer

_MOST = 10_000
"""`transaction.max.partitions`."""
_IDS, _IN_FLIGHT = 20_000, 200
_ABORTED = 3_000


def _begun(client: RawClient, name: str, timeout_ms: int = 60_000) -> RawProducer:
    producer = RawProducer(client, name, TV2, timeout_ms)
    assert producer.initialise() == 0
    return producer


def _pipelined(client: RawClient, requests: list[tuple[Message, int]]) -> None:
    """Send requests with their versions, `_IN_FLIGHT` at a time; the answers are not looked at."""
    for at in range(0, len(requests), _IN_FLIGHT):
        some = requests[at : at + _IN_FLIGHT]
        for _ in client.send_together(*some):
            client.receive_frame()


@attack("transactions with as many partitions as are allowed are filled, ended and described",
        part_of_tests=True)  # fmt: skip
def wide(arena: Arena) -> None:
    topic = arena.topic(_MOST)
    with arena.connect() as client:
        for commit in (True, False):
            producer = _begun(client, arena.name("txn"))
            assert producer.add_partitions(topic, range(_MOST)) == 0
            assert producer.add_partitions(arena.topic(), [0]) == ErrorCode.POLICY_VIOLATION
            values = {number: [b"x"] for number in range(0, _MOST, 4)}
            assert producer.produce(topic, values) == 0
            asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
            answer = client.call(asked, DescribeTransactionsResponse, 0)
            assert len(answer.transaction_states[0].topics[0].partitions) == _MOST
            assert producer.end(commit=commit) == 0


@attack("20,000 transactional ids begin a transaction and leave; all are listed by a pattern")
def many(arena: Arena) -> None:
    topic, prefix = arena.topic(100), arena.name("txn")
    names = [f"{prefix}-{number}" for number in range(_IDS)]
    with arena.connect(120) as client:
        _pipelined(
            client,
            [
                (InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=2_000), 4)
                for name in names
            ],
        )
        producer = _begun(client, names[0], 2_000)
        assert producer.produce(topic, {0: [b"x"]}) == 0
        listing = ListTransactionsRequest(transactional_id_pattern=f"({prefix}|(a|aa)*)-.*")
        answer = client.call(listing, ListTransactionsResponse, 2)
        assert len(answer.transaction_states) == _IDS
        describing = DescribeTransactionsRequest(transactional_ids=names)
        found = client.call(describing, DescribeTransactionsResponse, 0)
        assert all(each.error_code == 0 for each in found.transaction_states)


@attack("a transaction stays open below 3,000 aborted ones, all of which each fetch must find")
def hidden(arena: Arena) -> None:
    """The index of aborted transactions is searched from the first that is still open."""
    topic = arena.topic()
    with arena.connect(120) as client, arena.connect(120) as other:
        holder = _begun(client, arena.name("txn"), 600_000)
        assert holder.produce(topic, {0: [b"held"]}) == 0
        aborting = _begun(other, arena.name("txn"))
        for _ in range(_ABORTED):
            assert aborting.produce(topic, {0: [b"no"]}) == 0
            assert aborting.end(commit=False) == 0
        assert holder.end(commit=True) == 0
        reader = IsolatedReader(topic, 1, committed=True)
        found = reader.poll(client)
        while not reader.is_at_end():
            found += reader.poll(client)
        assert [record.value for _, record in found] == [b"held"]


@attack("offsets beyond the bound of a transaction, then their group is asked for all of them",
        part_of_tests=True)  # fmt: skip
def offsets(arena: Arena) -> None:
    topic, group = arena.topic(_MOST), arena.name("group")
    with arena.connect() as client:
        producer = _begun(client, arena.name("txn"))
        parts = [
            TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=1, committed_metadata="m" * 100
            )
            for number in range(_MOST)
        ]

        def store(some: list[TxnOffsetCommitRequestPartition]) -> set[int]:
            request = TxnOffsetCommitRequest(
                transactional_id=producer.transactional_id,
                group_id=group,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=some)],
            )
            answer = client.call(request, TxnOffsetCommitResponse, 5)
            return {part.error_code for part in answer.topics[0].partitions}

        for _ in range(3):  # the same ones count once
            codes = store(parts)
            assert codes == {0}, codes
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(_MOST)))
        request = OffsetFetchRequest(group_id=group, topics=[asked], require_stable=True)
        found = client.call(request, OffsetFetchResponse, 7).topics[0].partitions
        assert {part.error_code for part in found} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
        assert producer.end(commit=True) == 0
        found = client.call(request, OffsetFetchResponse, 7).topics[0].partitions
        assert {part.committed_offset for part in found} == {1}


@attack("brokers' requests for transactions come in bulk, for ids that nobody has",
        part_of_tests=True)  # fmt: skip
def forged(arena: Arena) -> None:
    topic = arena.topic()
    parts = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    adding = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=f"nobody-{n}", producer_id=n, producer_epoch=0,
                verify_only=bool(n % 2), topics=parts,
            )
            for n in range(5_000)
        ]
    )  # fmt: skip
    where = [WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    markers = WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=n, topics=where) for n in range(5_000)]
    )
    ending = EndTxnRequest(transactional_id="", producer_id=-1, producer_epoch=-1, committed=True)
    with arena.connect() as client:
        answer = client.call(adding, AddPartitionsToTxnResponse, 5)
        codes = {
            part.partition_error_code
            for each in answer.results_by_transaction
            for found in each.topic_results
            for part in found.results_by_partition
        }
        assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        marked = client.call(markers, WriteTxnMarkersResponse, 1)
        assert len(marked.markers) == 5_000
        _pipelined(client, [(ending, 5)] * 1_000)
        reader = IsolatedReader(topic, 1, committed=True)
        reader.poll(client)
        assert reader.high == {0: 0}, "nothing was written for producers that have nothing open"


@attack("abandoned transactions hold back a partition until their timeout", part_of_tests=True)
def abandoned(arena: Arena) -> None:
    topic = arena.topic()
    for _ in range(50):
        with arena.connect() as client:
            assert _begun(client, arena.name("txn"), 500).produce(topic, {0: [b"no"]}) == 0
    reader = IsolatedReader(topic, 1, committed=True)
    give_up = time.monotonic() + 30
    with arena.connect() as client:
        while not reader.is_at_end() or reader.positions.get(0, 0) < 100:
            assert reader.poll(client) == []
            assert time.monotonic() < give_up, (reader.stable, reader.high)
            time.sleep(0.05)
