"""Ops of transactions to brokers that answer, fail or are gone; errors by version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.cluster import Cluster, RouteBy, Send
from quafka_gateway.cluster.groups import Groups
from quafka_gateway.cluster.routes import OrgRoutes, parse
from quafka_gateway.cluster.topics import ClusterTopics
from quafka_gateway.cluster.transactions import ClusterTransactions
from quafka_gateway.handlers.transaction_errors import NewErrors
from quafka_gateway.transaction_traces import TransactionTraces
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, PeerUnavailableError
from quafka_mesh_ops.ops.admin import PartitionsByTopic
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.group_offsets import CommitOffset
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOpResp, ProduceOps, ProduceOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_mesh_ops.ops.transactions import (
    AddOffsets,
    AddOffsetsResp,
    AddPartitions,
    AddPartitionsResp,
    BrokerPartitions,
    CommitTxnOffsets,
    CommitTxnOffsetsResp,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResp,
    EndTransaction,
    InitTransactions,
    InitTransactionsResp,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResp,
    TransactionalProducer,
    WriteMarkers,
    WriteMarkersResp,
)
from quafka_proto.errors import ErrorCode as E
from quafka_telemetry.tracing import TraceContext

PRODUCER = TransactionalProducer("x", 1, 0)
TOPICS = [PartitionsByTopic("logs.a", [0, 1]), PartitionsByTopic("b", [2])]


class Client:
    """A mesh client that fails every op, or answers with the number of the partition."""

    connected = True
    seconds_disconnected = 0.0
    is_old = False

    def __init__(self, failure: Exception | None = None) -> None:
        self.peer = f"{id(self):064x}"
        self._failure = failure
        self.called: list[AnyOp] = []

    async def call(self, op: AnyOp, **_: Any) -> object:
        self.called.append(op)
        if self._failure is not None:
            raise self._failure
        if isinstance(op, AddPartitions):
            far = [] if self.is_old else [t for each in op.elsewhere or () for t in each.topics]
            return AddPartitionsResp([p for t in (*op.topics, *far) for p in t.partitions])
        if isinstance(op, ProduceOps):
            return ProduceOpsResp([ProduceOpResp(0) for _ in op.partitions])
        if isinstance(op, WriteMarkers):
            return WriteMarkersResp([p for topic in op.topics for p in topic.partitions])
        if isinstance(op, AddOffsets):
            return AddOffsetsResp()
        if isinstance(op, InitTransactions):
            return InitTransactionsResp(error_code=E.NOT_COORDINATOR)
        if isinstance(op, CommitTxnOffsets):
            return CommitTxnOffsetsResp([0] * len(op.offsets))
        if isinstance(op, DescribeTopics):
            topics = [TopicDescription(name, b"id", 3) for name in op.topics or ()]
            return DescribeTopicsResp("cluster", topics)
        if isinstance(op, ListTransactions):
            return ListTransactionsResp([ListedTransaction(self.peer, 1, "Empty")])
        assert isinstance(op, DescribeTransactions)
        found = [DescribedTransaction(name) for name in op.transactional_ids]
        return DescribeTransactionsResp(found)


def cluster(*clients: Client) -> Cluster:
    links = [BrokerLink(cast(MeshClient, client), 1) for client in clients]
    rules = "logs.*=b:1,*=a:1" if len(clients) == 2 else "*=a:1"
    return Cluster(links, OrgRoutes(parse(rules), 1))


def shards(*clients: Client) -> Cluster:
    """Shards that have a group and a transactional id each."""
    links = [
        BrokerLink(cast(MeshClient, client), 1, f"shard:{number}")
        for number, client in enumerate(clients)
    ]
    rules = parse("transaction:x=shard:0,group:g=shard:1")
    return Cluster(links, OrgRoutes(rules, 1, len(clients), by_name=True))


async def described_by(its: Cluster, names: list[str]) -> list[DescribedTransaction]:
    async def call(send: Send, some: list[str]) -> list[DescribedTransaction]:
        return (await send(DescribeTransactions(some))).transactions

    def failed(name: str, code: int, _text: str) -> DescribedTransaction:
        return DescribedTransaction(name, code)

    return await its.ask(RouteBy.TRANSACTION, names, call, failed, None)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (PeerUnavailableError("gone"), E.NOT_COORDINATOR),
        (OpFailedError(E.REQUEST_TIMED_OUT), E.NOT_COORDINATOR),
        (
            OpFailedError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
async def test_a_coordinator_that_fails(failure: Exception, code: int) -> None:
    its = cluster(Client(failure))
    transactions, groups = ClusterTransactions(its), Groups(its)
    assert (await transactions.init(InitTransactions(PRODUCER, 1), None)).error_code == code
    assert await transactions.add_partitions(AddPartitions(PRODUCER, TOPICS), None) == [code] * 3
    assert await transactions.add_offsets(AddOffsets(PRODUCER, "g"), None) == code
    assert (await transactions.end(EndTransaction(PRODUCER, True), None)).error_code == code
    offsets = CommitTxnOffsets(PRODUCER, "g", -1, "", "", [CommitOffset("b", 0, 1)])
    assert await groups.of("g").commit_offsets(offsets, None) == [code]
    (described,) = await described_by(its, ["x"])
    assert (described.transactional_id, described.error_code) == ("x", code)
    with pytest.raises(BrokerUnavailableError) as listed:
        await transactions.list_all(ListTransactions([], []), None)
    assert listed.value.code == code


async def test_a_session_on_an_old_connection_closes_it() -> None:
    """An error code would have the client ask again on the same connection, for ever in vain."""
    transactions = ClusterTransactions(cluster(Client()))
    with pytest.raises(BrokerUnavailableError, match="newer connection"):
        await transactions.init(InitTransactions(PRODUCER, 1), None)


async def test_partitions_of_other_brokers_are_named_by_their_node_ids() -> None:
    b, home = Client(), Client()
    transactions = ClusterTransactions(cluster(b, home))
    # The answer is in the order of the request: home answers its own partitions first.
    codes = await transactions.add_partitions(AddPartitions(PRODUCER, TOPICS), None)
    assert codes == [0, 1, 2]
    assert not b.called
    elsewhere = [BrokerPartitions(b.peer, TOPICS[:1])]
    assert home.called == [AddPartitions(PRODUCER, TOPICS[1:], False, elsewhere)]
    assert await transactions.add_partitions(AddPartitions(PRODUCER, TOPICS[1:]), None) == [2]
    assert home.called[-1] == AddPartitions(PRODUCER, TOPICS[1:])


async def test_an_older_home_broker_knows_no_partitions_elsewhere() -> None:
    home = Client()
    home.is_old = True
    transactions = ClusterTransactions(cluster(Client(), home))
    codes = await transactions.add_partitions(AddPartitions(PRODUCER, TOPICS), None)
    assert codes == [E.POLICY_VIOLATION] * 2 + [2]


async def test_a_broker_that_was_never_connected_has_no_name() -> None:
    b, home = Client(), Client()
    b.peer = ""
    transactions = ClusterTransactions(cluster(b, home))
    codes = await transactions.add_partitions(AddPartitions(PRODUCER, TOPICS), None)
    assert codes == [E.COORDINATOR_LOAD_IN_PROGRESS] * 3
    assert not home.called


async def test_a_produce_elsewhere_names_the_home_broker() -> None:
    b, home = Client(), Client()
    parts = [ProduceOp("logs.a", 0, b""), ProduceOp("b", 0, b"")]
    op = ProduceOps(parts, -1, "x", True, b"")
    await ClusterTopics(cluster(b, home)).produce(op, 0, 1.0, None)
    assert b.called == [ProduceOps(parts[:1], -1, "x", True, b"", home.peer)]
    assert home.called == [ProduceOps(parts[1:], -1, "x", True, b"")]
    home.peer = ""
    with pytest.raises(BrokerUnavailableError):  # the client's connection is closed; it tries again
        await ClusterTopics(cluster(b, home)).produce(
            replace(op, partitions=parts[:1]), 0, 1.0, None
        )
    await ClusterTopics(cluster(b, home)).produce(ProduceOps(parts[:1]), 0, 1.0, None)
    assert b.called[-1] == ProduceOps(parts[:1])


async def test_markers_are_written_by_the_broker_of_each_topic() -> None:
    b, home = Client(), Client(OpFailedError(E.CLUSTER_AUTHORIZATION_FAILED))
    op = WriteMarkers(1, 0, False, TOPICS, 3)
    found = await ClusterTransactions(cluster(b, home)).write_markers(op, None)
    assert found == [0, 1, E.CLUSTER_AUTHORIZATION_FAILED]
    assert b.called == [WriteMarkers(1, 0, False, TOPICS[:1], 3)]
    assert home.called[0] == WriteMarkers(1, 0, False, [])  # a known transaction ends as a whole


async def test_offsets_of_a_group_at_another_shard_than_the_transactional_id() -> None:
    home, its = Client(), Client()
    transactions, groups = ClusterTransactions(shards(home, its)), Groups(shards(home, its))
    assert await transactions.add_offsets(AddOffsets(PRODUCER, "g"), None) == 0
    op = CommitTxnOffsets(PRODUCER, "g", -1, "", "", [CommitOffset("b", 0, 1)])
    await groups.of("g").commit_offsets(op, None)
    assert home.called == [AddOffsets(PRODUCER, "g", "shard:1")]
    (commit,) = (each for each in its.called if isinstance(each, CommitTxnOffsets))
    assert commit.home == "shard:0"


async def test_lists_are_of_all_shards_and_markers_are_for_the_home_of_the_producer() -> None:
    clients = [Client() for _ in range(3)]
    its = shards(*clients)
    transactions = ClusterTransactions(its)
    found = await transactions.list_all(ListTransactions([], []), None)
    assert [each.transactional_id for each in found.transactions] == [c.peer for c in clients]
    names = [f"{number}" for number in range(20)]
    described = await described_by(its, names)
    assert [each.transactional_id for each in described] == names
    assert all(len(client.called) == 2 for client in clients)
    await transactions.write_markers(WriteMarkers(1, 0, False, TOPICS, 3), None)
    whole = WriteMarkers(1, 0, False, [])
    assert all(whole in client.called for client in clients)


async def test_many_ids_are_several_ops() -> None:
    client = Client()
    names = [f"{number}" for number in range(1_201)]
    found = await described_by(cluster(client), names)
    assert [each.transactional_id for each in found] == names
    assert len(client.called) == 3


def test_errors_by_version() -> None:
    errors = NewErrors(fenced=2, abortable=4)
    assert [errors.code(E.PRODUCER_FENCED, v) for v in (1, 2)] == [47, 90]
    assert [errors.code(E.TRANSACTION_ABORTABLE, v) for v in (3, 4)] == [48, 120]
    assert [errors.code(code, 0) for code in (0, 16, 51)] == [0, 16, 51]


def test_the_traces_of_producers_are_bounded() -> None:
    traces = TransactionTraces(limit=2)
    for number in (1, 2, 1, 3):
        traces.begin(number, TraceContext(number, 1))
    assert [traces.find(number) is not None for number in (1, 2, 3)] == [True, False, True]
    traces.continue_as(3, 4)
    traces.continue_as(9, 10)
    assert [traces.find(number) is not None for number in (3, 4, 10)] == [False, True, False]
