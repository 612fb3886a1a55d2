"""A cluster of one broker and of two: where ops go, and what an unavailable broker costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.cluster.catalog import UNKNOWN_BROKER
from quafka_gateway.cluster.cluster import Cluster, RouteBy, Send, part_of
from quafka_gateway.cluster.groups import Groups
from quafka_gateway.cluster.routes import OrgRoutes, parse, to_one
from quafka_gateway.cluster.topics import ClusterTopics
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.ops.base import AnyOp, WireStruct
from quafka_mesh_ops.ops.group_offsets import (
    CommitOffset,
    CommitOffsets,
    CommitOffsetsResp,
    CommittedOffsets,
    CommittedOffsetsResp,
    CommittedQuestion,
    ForgetTopic,
    ForgetTopicResp,
)
from quafka_mesh_ops.ops.groups import Heartbeat, HeartbeatResp
from quafka_mesh_ops.ops.offsets import (
    ListOffsetsOp,
    ListOffsetsOpResp,
    ListOffsetsOps,
    ListOffsetsOpsResp,
)
from quafka_mesh_ops.ops.records import (
    InitProducerId,
    InitProducerIdResp,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import (
    CreateTopic,
    CreateTopicResp,
    DeleteTopic,
    DeleteTopicResp,
    DescribeTopics,
    DescribeTopicsResp,
    TopicDescription,
)
from quafka_proto.errors import ErrorCode

ROUTES = OrgRoutes(parse("logs.*=b:1,*=a:1"), 1)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass
class Client:
    """A mesh client. Offsets and producer ids in its answers are `number`."""

    number: int
    connected: bool = True
    seconds_disconnected: float = 0.0
    failure: Exception | None = None
    ops: list[AnyOp] = field(default_factory=list[AnyOp])

    async def call(self, op: AnyOp, **_: Any) -> WireStruct:
        self.ops.append(op)
        if not self.connected:
            raise PeerUnavailableError("not connected")
        if self.failure is not None:
            raise self.failure
        answers: dict[type[AnyOp], Callable[[Any], WireStruct]] = {
            ProduceOps: self._produced,
            ListOffsetsOps: self._listed,
            DescribeTopics: self._described,
            CreateTopic: lambda op: CreateTopicResp(b"id", op.partitions, 0, ""),
            DeleteTopic: lambda op: DeleteTopicResp(op.topic, b"id", 0),
            InitProducerId: lambda op: InitProducerIdResp(self.number, 0),
            ForgetTopic: lambda op: ForgetTopicResp(),
            Heartbeat: lambda op: HeartbeatResp(self.number),
            CommitOffsets: lambda op: CommitOffsetsResp([0] * len(op.offsets)),
            CommittedOffsets: lambda op: CommittedOffsetsResp([]),
        }
        return answers[type(op)](op)

    def _produced(self, op: ProduceOps) -> ProduceOpsResp:
        return ProduceOpsResp([ProduceOpResp(self.number) for _ in op.partitions])

    def _listed(self, op: ListOffsetsOps) -> ListOffsetsOpsResp:
        return ListOffsetsOpsResp([ListOffsetsOpResp(self.number) for _ in op.partitions])

    def _described(self, op: DescribeTopics) -> DescribeTopicsResp:
        names = op.topics or []
        return DescribeTopicsResp("", [TopicDescription(n, n.encode(), 2) for n in names])

    def leave(self) -> None:
        self.connected, self.seconds_disconnected = False, 60.0


def cluster(*clients: Client) -> Cluster:
    """`clients`: b:1, which has the topics "logs.*", and a:1, the home broker; or one for all."""
    routes = ROUTES if len(clients) > 1 else OrgRoutes(to_one("a:1"), 1)
    return Cluster([BrokerLink(cast(MeshClient, client), 1) for client in clients], routes)


@pytest.fixture
def b() -> Client:
    return Client(1)


@pytest.fixture
def home() -> Client:
    return Client(2)


def produce(*topics: str) -> ProduceOps:
    return ProduceOps([ProduceOp(topic, 0, b"") for topic in topics])


def list_offsets(*topics: str) -> ListOffsetsOps:
    return ListOffsetsOps([ListOffsetsOp(topic, 0, -1) for topic in topics])


async def looked_up(its: Cluster, *topics: str) -> list[ListOffsetsOpResp]:
    async def call(send: Send, parts: list[ListOffsetsOp]) -> list[ListOffsetsOpResp]:
        return (await send(ListOffsetsOps(parts))).partitions

    def failed(_part: ListOffsetsOp, code: int, _text: str) -> ListOffsetsOpResp:
        return ListOffsetsOpResp(-1, error_code=code)

    return await its.ask(RouteBy.PARTITION, list_offsets(*topics).partitions, call, failed, None)


# --- one broker -----------------------------------------------------------------------------


async def test_ops_to_one_broker_are_sent_as_they_are(home: Client) -> None:
    one = cluster(home)
    assert one.only is one.home
    topics, groups = ClusterTopics(one), Groups(one)
    appended = produce("orders", "logs.web")
    commit = CommitOffsets("g", -1, "", "", [CommitOffset("logs.web", 0, 1)])
    assert [each.base_offset for each in await topics.produce(appended, 0, 1.0, None)] == [2, 2]
    assert [each.offset for each in await looked_up(one, "orders", "")] == [2, 2]
    assert await groups.of("g").commit_offsets(commit, None) == [0]
    assert home.ops == [appended, list_offsets("orders", ""), commit]
    assert home.ops[0] is appended


async def test_ops_that_name_topics_raise_if_the_only_broker_does_not_answer(home: Client) -> None:
    home.failure = PeerUnavailableError("gone")
    one = cluster(home)
    topics = ClusterTopics(one)
    with pytest.raises(BrokerUnavailableError):
        await topics.describe(DescribeTopics(["orders"]), None)
    with pytest.raises(BrokerUnavailableError):
        await topics.create(CreateTopic("orders", 1), None)
    with pytest.raises(BrokerUnavailableError):
        await topics.delete(DeleteTopic("orders"), None)
    with pytest.raises(BrokerUnavailableError):
        await topics.init_producer_id(InitProducerId(), None)
    answers = await looked_up(one, "orders")
    assert [each.error_code for each in answers] == [NOT_LEADER]


async def test_the_only_broker_s_errors_are_answers(home: Client) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    home.failure = OpFailedError(code)
    one = cluster(home)
    topics = ClusterTopics(one)
    (described,) = (await topics.describe(DescribeTopics(["orders"]), None)).topics
    created = await topics.create(CreateTopic("orders", 1), None)
    deleted = await topics.delete(DeleteTopic("orders"), None)
    given = await topics.init_producer_id(InitProducerId(), None)
    (listed,) = await looked_up(one, "orders")
    (appended,) = await topics.produce(produce("orders"), 0, 1.0, None)
    assert [described.error_code, created.error_code, deleted.error_code] == [code] * 3
    assert [given.error_code, listed.error_code, appended.error_code] == [code] * 3
    assert created.error_message == "TOPIC_AUTHORIZATION_FAILED"


# --- two brokers ----------------------------------------------------------------------------


async def test_an_op_is_split_and_its_answers_are_in_its_order(b: Client, home: Client) -> None:
    topics = ClusterTopics(cluster(b, home))
    op = produce("orders", "logs.web", "x")
    assert [each.base_offset for each in await topics.produce(op, 0, 1.0, None)] == [2, 1, 2]
    assert [produce("logs.web")] == b.ops
    assert [produce("orders", "x")] == home.ops


async def test_a_disconnected_broker_is_not_called_among_others(b: Client, home: Client) -> None:
    b.leave()
    both = cluster(b, home)
    answers = await looked_up(both, "logs.web", "orders")
    assert [(each.offset, each.error_code) for each in answers] == [(-1, NOT_LEADER), (2, 0)]
    assert b.ops == []
    await looked_up(both, "logs.web")  # no other broker waits for it
    assert len(b.ops) == 1


async def test_the_broker_s_error_or_a_retriable_one_is_in_its_partitions(
    b: Client, home: Client
) -> None:
    both = cluster(b, home)
    for failure, code in (
        (OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (PeerUnavailableError("gone"), NOT_LEADER),
    ):
        b.failure = failure
        answers = await looked_up(both, "logs.web", "orders")
        assert [each.error_code for each in answers] == [code, 0]


async def test_an_id_at_an_unknown_broker_is_a_retriable_error(b: Client, home: Client) -> None:
    b.leave()
    both = cluster(b, home)
    op = ProduceOps([ProduceOp("", 0, b"", b"?"), ProduceOp("orders", 0, b"")])
    answers = await ClusterTopics(both).produce(op, 0, 1.0, None)
    assert [each.error_code for each in answers] == [NOT_LEADER, 0]
    assert not both.is_connected(UNKNOWN_BROKER)
    deleted = await ClusterTopics(both).delete(DeleteTopic("", b"?"), None)
    assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_the_part_of_an_op_that_is_the_whole_is_the_op_itself() -> None:
    op = produce("a", "b")
    assert part_of(op, [0, 1]) is op
    assert part_of(op, [1]) == produce("b")


async def test_the_home_broker_forgets_the_offsets_of_a_deleted_topic(
    b: Client, home: Client
) -> None:
    topics = ClusterTopics(cluster(b, home))
    await topics.delete(DeleteTopic("logs.web"), None)
    await topics.delete(DeleteTopic("orders"), None)
    assert home.ops == [ForgetTopic("logs.web", b"id"), DeleteTopic("orders")]
    home.leave()
    assert (await topics.delete(DeleteTopic("logs.x"), None)).error_code == 0
    assert len(home.ops) == 2


async def test_another_broker_assigns_producer_ids_for_a_lost_home_broker(
    b: Client, home: Client
) -> None:
    topics = ClusterTopics(cluster(b, home))
    assert (await topics.init_producer_id(InitProducerId(), None)).producer_id == 2
    home.failure = OutcomeUnknownError("lost")
    assert (await topics.init_producer_id(InitProducerId(), None)).producer_id == 1
    home.failure = OpFailedError(ErrorCode.KAFKA_STORAGE_ERROR)
    refused = await topics.init_producer_id(InitProducerId(), None)
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    home.leave()
    assert (await topics.init_producer_id(InitProducerId(), None)).producer_id == 1
    b.leave()
    with pytest.raises(BrokerUnavailableError):
        await topics.init_producer_id(InitProducerId(), None)


# --- groups ---------------------------------------------------------------------------------


async def test_the_home_broker_is_the_coordinator(b: Client, home: Client) -> None:
    groups = Groups(cluster(b, home))
    assert await groups.of("g").heartbeat(Heartbeat("g", 1, "m", ""), None) == 2
    for failure, code in (
        (PeerUnavailableError("gone"), ErrorCode.NOT_COORDINATOR),
        (OpFailedError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.NOT_COORDINATOR),
        (OpFailedError(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        home.failure = failure
        assert await groups.of("g").heartbeat(Heartbeat("g", 1, "m", ""), None) == code
    assert b.ops == []


async def test_the_home_broker_is_sent_the_ids_of_topics_elsewhere(b: Client, home: Client) -> None:
    groups = Groups(cluster(b, home))
    offsets = [CommitOffset("orders", 0, 1), CommitOffset("logs.web", 1, 2)]
    offsets.append(CommitOffset("logs.web", 2, 3))  # the topic has partitions 0 and 1
    answers = await groups.of("g").commit_offsets(CommitOffsets("g", -1, "", "", offsets), None)
    assert answers == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    elsewhere = CommitOffset("logs.web", 1, 2, topic_id=b"logs.web", elsewhere=True)
    sent = CommitOffsets("g", -1, "", "", [offsets[0], elsewhere])
    assert [op for op in home.ops if isinstance(op, CommitOffsets)] == [sent]


async def test_what_is_committed_in_an_unseen_topic_is_not_made_up(b: Client, home: Client) -> None:
    b.leave()
    groups = Groups(cluster(b, home))
    question = CommittedQuestion("logs.web", [0])
    answer = await groups.of("g").committed_offsets(CommittedOffsets("g", [question]), None)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not any(isinstance(op, CommittedOffsets) for op in home.ops)
    commit = CommitOffsets("g", -1, "", "", [CommitOffset("logs.web", 0, 1)])
    loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await groups.of("g").commit_offsets(commit, None) == loading
