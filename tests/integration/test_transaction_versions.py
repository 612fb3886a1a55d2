"""Transactions on the wire, in each version: errors, fencing, isolation levels, connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quafka_proto.errors import ErrorCode as E
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.fetch import FetchResponse, PartitionData
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from quafka_proto.schema.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from quafka_proto.schema.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, fetch_request, produce_request
from tests.support.raw_client import RawClient

_TOPIC, _GROUP = "txn", "txn-group"
_IMPLICIT = 12
"""The version of Produce that adds its partitions to the transaction."""


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(shared_cluster.address) as connected:
        yield connected


class Session:
    """A producer's session on one connection."""

    def __init__(self, client: RawClient, name: str, topic: str = "") -> None:
        self.client = client
        self.name = name
        self.topic = topic
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = client.call(request, InitProducerIdResponse, 4)
        assert answer.error_code == 0
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequence = 0

    def add(self, version: int, *partitions: int) -> list[int]:
        topic = AddPartitionsToTxnTopic(name=self.topic, partitions=list(partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        answer = self.client.call(request, AddPartitionsToTxnResponse, version)
        (found,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    def batch(self, *, transactional: bool = True) -> bytearray:
        made = build_batch(
            [Record(0, 1_000, None, b"value", [])],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            transactional=transactional,
        )
        self._sequence += 1
        return made

    def send(
        self, version: int = _IMPLICIT, name: str | None = "", client: RawClient | None = None
    ) -> int:
        """Produce a batch; the error code."""
        request = produce_request(self.topic, b"")
        request.topic_data[0].partition_data[0].records = self.batch()
        request.transactional_id = self.name if name == "" else name
        answer = (client or self.client).call(request, ProduceResponse, version)
        (found,) = answer.responses[0].partition_responses
        if found.error_code:
            self._sequence -= 1
        return found.error_code

    def end(self, version: int = 4, *, commit: bool = True, client: RawClient | None = None) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = (client or self.client).call(request, EndTxnResponse, version)
        if version >= 5 and not answer.error_code:
            assert (answer.producer_id, answer.producer_epoch) == (self.id, self.epoch + 1)
            self.epoch, self._sequence = answer.producer_epoch, 0
        return answer.error_code

    def add_offsets(self, version: int) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=_GROUP,
        )
        return self.client.call(request, AddOffsetsToTxnResponse, version).error_code

    def commit_offset(self, version: int, offset: int) -> int:
        part = TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=f"{_GROUP}-{self.name}",
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[part])],
        )
        answer = self.client.call(request, TxnOffsetCommitResponse, version)
        return answer.topics[0].partitions[0].error_code


def session(client: RawClient, name: str) -> Session:
    """A session with a topic of its own."""
    topic = f"{_TOPIC}-{name}"
    create_topic(client, topic, 2)
    return Session(client, name, topic)


def fetched(client: RawClient, topic: str, level: int, offset: int = 0) -> PartitionData:
    request = fetch_request(topic, offset)
    request.isolation_level = level
    return client.call(request, FetchResponse, 12).responses[0].partitions[0]


# --- sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_init_producer_id(client: RawClient, version: int) -> None:
    def init(name: str | None, **fields: int | bool) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        for field, value in fields.items():
            setattr(request, field, value)
        return client.call(request, InitProducerIdResponse, version)

    name = f"init-{version}"
    first, second = init(name), init(name)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert init("").error_code == E.INVALID_REQUEST
    assert init(name, transaction_timeout_ms=1 << 30).error_code == E.INVALID_TRANSACTION_TIMEOUT
    if version >= 3:
        assert init(name, producer_id=first.producer_id).error_code == E.INVALID_REQUEST
        again = init(name, producer_id=first.producer_id, producer_epoch=1)  # KIP-360
        assert (again.error_code, again.producer_epoch) == (0, 2)
        fenced = init(name, producer_id=first.producer_id, producer_epoch=0)
        code = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
        assert (fenced.error_code, fenced.producer_id) == (code, -1)
    if version >= 6:
        assert (first.ongoing_txn_producer_id, first.ongoing_txn_producer_epoch) == (-1, -1)
        assert init(name, enable_2pc=True).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert init(name, keep_prepared_txn=True).error_code == E.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(6))
def test_fencing(client: RawClient, version: int) -> None:
    """An older version knows no PRODUCER_FENCED; Produce and TxnOffsetCommit never do."""
    old = session(client, f"fencing-{version}")
    assert old.add_offsets(3) == 0
    Session(client, old.name)
    new = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert old.end(version) == new
    assert old.commit_offset(version, 1) == E.INVALID_PRODUCER_EPOCH
    if version < 5:
        assert old.add_offsets(version) == new
    if version < 4:
        assert old.add(version, 0) == [new]
    for produce in (9, 11, 12):
        assert old.send(produce) == E.INVALID_PRODUCER_EPOCH


# --- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(client: RawClient, version: int) -> None:
    one = session(client, f"adding-{version}")
    assert [one.send(9), one.send(10)] == [E.INVALID_TXN_STATE] * 2
    assert one.send(11) == E.TRANSACTION_ABORTABLE
    unknown, not_tried = E.UNKNOWN_TOPIC_OR_PARTITION, E.OPERATION_NOT_ATTEMPTED
    assert one.add(version, 0, 7) == [not_tried, unknown]
    assert one.send(9) == E.INVALID_TXN_STATE
    assert one.add(version, 0, 1) == [0, 0]
    assert one.send(9) == 0
    assert one.end(0) == 0
    assert one.end(0) == 0, "a repetition is answered the same"
    assert one.end(0, commit=False) == E.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [4, 5])
def test_batches_of_transactions(client: RawClient, version: int) -> None:
    sessions = [session(client, f"batched-{version}-{number}") for number in range(2)]

    def ask(*, verify: bool) -> list[int]:
        asked = [
            AddPartitionsToTxnTransaction(
                transactional_id=each.name,
                producer_id=each.id,
                producer_epoch=each.epoch,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name=each.topic, partitions=[1])],
            )
            for each in sessions
        ]
        request = AddPartitionsToTxnRequest(transactions=asked)
        answer = client.call(request, AddPartitionsToTxnResponse, version)
        assert [each.transactional_id for each in answer.results_by_transaction] == [
            each.name for each in sessions
        ]
        return [
            part.partition_error_code
            for each in answer.results_by_transaction
            for topic in each.topic_results
            for part in topic.results_by_partition
        ]

    missing = E.TRANSACTION_ABORTABLE if version >= 5 else E.INVALID_TXN_STATE
    assert ask(verify=True) == [missing] * 2
    assert ask(verify=False) == ask(verify=True) == [0, 0]


@pytest.mark.parametrize("version", [3, 8, 9, 11, 12])
def test_a_transactional_batch_needs_a_transactional_id(client: RawClient, version: int) -> None:
    one = session(client, f"nameless-{version}")
    assert one.send(version, name=None) == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_plain_batch_within_a_transaction_is_refused(client: RawClient) -> None:
    one = session(client, "mixed")
    assert one.send() == 0
    request = produce_request(one.topic, b"")
    request.topic_data[0].partition_data[0].records = one.batch(transactional=False)
    answer = client.call(request, ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == E.INVALID_TXN_STATE


# --- what consumers see -------------------------------------------------------------------------


def test_isolation_levels(client: RawClient) -> None:
    one = session(client, "isolated")
    assert [one.send(), one.send()] == [0, 0]

    def latest(level: int) -> int:
        part = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsTopic(name=one.topic, partitions=[part])
        request = ListOffsetsRequest(isolation_level=level, topics=[topic])
        return client.call(request, ListOffsetsResponse, 7).topics[0].partitions[0].offset

    for _ in range(2):  # the second time from memory
        uncommitted, committed = fetched(client, one.topic, 0), fetched(client, one.topic, 1)
        assert len(uncommitted.records or b"") > 0
        assert not committed.records
        assert (committed.high_watermark, committed.last_stable_offset) == (2, 0)
    assert (latest(0), latest(1)) == (2, 0)
    assert one.end(5, commit=False) == 0
    for _ in range(2):
        committed = fetched(client, one.topic, 1)
        assert (committed.high_watermark, committed.last_stable_offset) == (3, 3)
        (aborted,) = committed.aborted_transactions or []
        assert (aborted.producer_id, aborted.first_offset) == (one.id, 0)
        assert len(committed.records or b"") == len(uncommitted.records or b"") + 78
        assert fetched(client, one.topic, 0).aborted_transactions is None
        behind = fetched(client, one.topic, 1, 2)  # the control batch alone
        assert len(behind.records or b"") == 78
        assert [each.first_offset for each in behind.aborted_transactions or []] == [0]
    assert latest(1) == 3


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction(client: RawClient, version: int) -> None:
    one = session(client, f"offsets-{version}")
    group = f"{_GROUP}-{one.name}"

    def committed(*, stable: bool) -> tuple[int, int]:
        topic = OffsetFetchRequestTopic(name=one.topic, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=group, topics=[topic], require_stable=stable)
        (found,) = client.call(request, OffsetFetchResponse, 7).topics[0].partitions
        return found.error_code, found.committed_offset

    if version < 5:
        missing = E.TRANSACTION_ABORTABLE if version >= 4 else E.INVALID_TXN_STATE
        assert one.commit_offset(version, 5) == missing
        request = AddOffsetsToTxnRequest(
            transactional_id=one.name,
            producer_id=one.id,
            producer_epoch=one.epoch,
            group_id=group,
        )
        assert client.call(request, AddOffsetsToTxnResponse, 3).error_code == 0
    assert one.commit_offset(version, 5) == 0
    assert committed(stable=False) == (0, -1)
    assert committed(stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert one.end() == 0
    assert committed(stable=True) == (0, 5)


# --- connections --------------------------------------------------------------------------------


def test_a_delayed_request_of_a_connection_that_was_left(
    shared_cluster: Cluster, client: RawClient
) -> None:
    """Version 1 of transactions has no epoch that tells a delayed request from a current one."""
    one = session(client, "delayed")
    assert one.add(3, 0) == [0]
    assert one.send(9) == 0
    with RawClient(shared_cluster.address) as newer:
        assert one.end(client=newer) == 0
        one.client, older = newer, client
        assert one.add(3, 0) == [0]
        assert one.send(9) == 0
        assert one.end(client=older) == E.NOT_COORDINATOR
        assert one.send(9, client=older) == E.NOT_LEADER_OR_FOLLOWER
        assert not fetched(newer, one.topic, 1, 2).records, "the transaction is still open"
        assert one.send(9) == 0
        assert one.end() == 0


# --- administration -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_aborts(client: RawClient, version: int) -> None:
    one = session(client, f"admin-{version}")
    assert one.send() == 0
    topic = WritableTxnMarkerTopic(name=one.topic, partition_indexes=[0, 7])
    marker = WritableTxnMarker(producer_id=one.id, producer_epoch=one.epoch, topics=[topic])
    request = WriteTxnMarkersRequest(markers=[marker])
    (answer,) = client.call(request, WriteTxnMarkersResponse, version).markers
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert fetched(client, one.topic, 1).last_stable_offset == 2
    assert one.end() != 0


@pytest.mark.parametrize("version", range(3))
def test_lists(client: RawClient, version: int) -> None:
    one = session(client, f"listed-{version}")
    assert one.send() == 0

    def listed(**filters: object) -> list[str]:
        request = ListTransactionsRequest()
        for field, value in filters.items():
            setattr(request, field, value)
        answer = client.call(request, ListTransactionsResponse, version)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    assert one.name in listed()
    assert listed(producer_id_filters=[one.id]) == [one.name]
    assert one.name not in listed(state_filters=["Empty"])
    assert listed(state_filters=["Odd"]) == []
    if version >= 1:
        assert listed(producer_id_filters=[one.id], duration_filter=0) == [one.name]
        assert one.name not in listed(duration_filter=3_600_000)
    if version >= 2:
        assert listed(transactional_id_pattern="listed-[2]") == [one.name]
        request = ListTransactionsRequest(transactional_id_pattern="(")
        answer = client.call(request, ListTransactionsResponse, version)
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    names = [one.name, one.name, ""]
    question = DescribeTransactionsRequest(transactional_ids=names)
    found = client.call(question, DescribeTransactionsResponse, 0).transaction_states
    assert [each.error_code for each in found] == [0, E.INVALID_REQUEST]
    assert (found[0].transaction_state, found[0].producer_id) == ("Ongoing", one.id)
    assert [(each.topic, each.partitions) for each in found[0].topics] == [(one.topic, [0])]
