"""The topics of two brokers as one list, and which broker has which topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace

import pytest

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.catalog import UNKNOWN_BROKER, Catalog
from quafka_gateway.cluster.routes import OrgRoutes, parse, to_one
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp, TopicDescription
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext

ROUTES = OrgRoutes(parse("logs.*=b:1,*=a:1"), 1)
LOGS, HOME = 0, 1  # numbers of the brokers b:1 and a:1
WEB, ORDERS = TopicDescription("logs.web", b"web", 2), TopicDescription("orders", b"orders", 3)
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class Broker:
    """Describes its topics as a broker does. `gate`: answers wait for it."""

    number: int
    topics: dict[str, TopicDescription] = field(default_factory=dict[str, TopicDescription])
    version: bytes = b""
    available: bool = True
    gate: asyncio.Event | None = None
    asked: list[DescribeTopics] = field(default_factory=list[DescribeTopics])

    async def describe(self, op: DescribeTopics) -> DescribeTopicsResp | None:
        self.asked.append(op)
        if self.gate is not None:
            await self.gate.wait()
        if not self.available:
            return None
        by_id = {topic.topic_id: topic for topic in self.topics.values()}
        named = [
            self.topics.get(name) or TopicDescription(name, b"", 0, MISSING)
            for name in op.topics or []
        ]
        with_id = [
            by_id.get(i) or TopicDescription("", i, 0, ErrorCode.UNKNOWN_TOPIC_ID)
            for i in op.topic_ids or []
        ]
        every = [*self.topics.values()] if op.topics is None and not op.topic_ids else []
        return DescribeTopicsResp(f"cluster {self.number}", every + named + with_id, self.version)


class Two:
    """A catalog over two brokers."""

    def __init__(self) -> None:
        self.brokers = [Broker(LOGS, {"logs.web": WEB}), Broker(HOME, {"orders": ORDERS})]
        self.catalog = Catalog(ROUTES, self._describe)

    def _describe(
        self, broker: int, op: DescribeTopics, _trace: TraceContext | None
    ) -> Awaitable[DescribeTopicsResp | None]:
        return self.brokers[broker].describe(op)

    def asked_now(self) -> list[list[DescribeTopics]]:
        """The ops that each broker was sent since the last call."""
        found = [broker.asked for broker in self.brokers]
        for broker in self.brokers:
            broker.asked = []
        return found

    async def describe(self, op: DescribeTopics) -> list[TopicDescription]:
        return (await self.catalog.describe(op, None)).topics

    async def brokers_of(self, *topics: str | bytes) -> list[int]:
        named = [(t, b"") if isinstance(t, str) else ("", t) for t in topics]
        return await self.catalog.brokers_of(named, None)


@pytest.fixture
def two() -> Two:
    return Two()


# --- descriptions ---------------------------------------------------------------------------


async def test_each_broker_describes_its_own_topics(two: Two) -> None:
    two.catalog.cluster_id = "known"
    op = DescribeTopics(["orders", "logs.web", "logs.x"], [], auto_create=True, create_at_most=7)
    other = two.brokers[LOGS].topics["logs.x"] = TopicDescription("logs.x", b"x", 1)
    assert await two.describe(op) == [ORDERS, WEB, other]
    logs = DescribeTopics(["logs.web", "logs.x"], [], auto_create=True, create_at_most=7)
    orders = DescribeTopics(["orders"], [], auto_create=True, create_at_most=7)
    assert two.asked_now() == [[logs], [orders]]


async def test_a_broker_without_any_of_the_topics_is_not_asked(two: Two) -> None:
    first = await two.catalog.describe(DescribeTopics(["logs.web"], []), None)
    assert (first.cluster_id, first.topics) == ("cluster 1", [WEB])
    logs = DescribeTopics(["logs.web"], [])
    assert two.asked_now() == [[logs], [DescribeTopics([], [])]]  # home, for the cluster's id
    assert two.catalog.cluster_id == "cluster 1"
    assert await two.describe(DescribeTopics(["logs.web"], [])) == [WEB]
    assert two.asked_now() == [[logs], []]


async def test_ids_are_asked_of_all_brokers_until_they_are_known(two: Two) -> None:
    op = DescribeTopics([], [b"orders", b"?", b"web"])
    unknown = TopicDescription("", b"?", 0, ErrorCode.UNKNOWN_TOPIC_ID)
    assert await two.describe(op) == [ORDERS, unknown, WEB]
    assert [len(ops) for ops in two.asked_now()] == [1, 1]
    assert await two.describe(op) == [ORDERS, unknown, WEB]
    assert two.asked_now() == [
        [DescribeTopics([], [b"?", b"web"])],
        [DescribeTopics([], [b"orders", b"?"])],
    ]


async def test_all_topics_are_one_sorted_list(two: Two) -> None:
    two.brokers[LOGS].topics["orders"] = TopicDescription("orders", b"left", 1)  # an old route
    assert await two.describe(DescribeTopics()) == [WEB, ORDERS]
    assert (await two.catalog.describe(DescribeTopics(), None)).cluster_id == "cluster 1"
    assert await two.brokers_of(b"left") == [HOME]  # nobody serves it


async def test_a_list_that_has_not_changed_is_the_same_object(two: Two) -> None:
    for broker in two.brokers:
        broker.version = b"v%d" % broker.number
    first = await two.catalog.describe(DescribeTopics(), None)
    assert first.version == b"v0v1"
    assert await two.catalog.describe(DescribeTopics(), None) is first
    two.brokers[LOGS].topics.clear()
    two.brokers[LOGS].version = b"w0"
    assert await two.describe(DescribeTopics()) == [ORDERS]
    two.brokers[HOME].available = False
    last_seen = await two.catalog.describe(DescribeTopics(), None)
    assert (last_seen.topics, last_seen.version) == ([ORDERS], b"")


# --- unavailable brokers --------------------------------------------------------------------


async def test_topics_of_an_unavailable_broker_are_as_last_seen(two: Two) -> None:
    await two.describe(DescribeTopics())
    two.brokers[LOGS].available = False
    unseen = TopicDescription("logs.x", b"", 0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert await two.describe(DescribeTopics(["orders", "logs.x", "logs.web"], [])) == [
        ORDERS, unseen, WEB,
    ]  # fmt: skip
    unknown = TopicDescription("", b"?", 0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert await two.describe(DescribeTopics([], [b"web", b"?"])) == [WEB, unknown]
    assert await two.describe(DescribeTopics()) == [WEB, ORDERS]


async def test_an_extended_topic_keeps_its_new_partitions_while_its_broker_is_away(
    two: Two,
) -> None:
    await two.describe(DescribeTopics())
    two.catalog.extend("logs.web", 5)
    two.catalog.extend("logs.web", 4)  # of an earlier request
    two.catalog.extend("logs.never-seen", 2)
    two.brokers[LOGS].available = False
    longer = replace(WEB, partitions=5)
    assert await two.describe(DescribeTopics(["logs.web"], [])) == [longer]
    assert await two.describe(DescribeTopics([], [b"web"])) == [longer]
    assert await two.describe(DescribeTopics()) == [longer, ORDERS]


async def test_a_created_topic_is_listed_while_its_broker_is_away(two: Two) -> None:
    await two.describe(DescribeTopics())
    two.catalog.add("logs.new", b"new", 2)
    two.brokers[LOGS].available = False
    new = TopicDescription("logs.new", b"new", 2)
    assert await two.describe(DescribeTopics(["logs.new"], [])) == [new]
    assert new in await two.describe(DescribeTopics())


async def test_a_list_without_the_topics_of_a_broker_is_never_made_up(two: Two) -> None:
    """Clients would take its topics for deleted."""
    for broker in two.brokers:
        broker.available = False
    with pytest.raises(BrokerUnavailableError):
        await two.describe(DescribeTopics())
    two.brokers[LOGS].available = True
    await two.describe(DescribeTopics(["logs.web"], []))
    with pytest.raises(BrokerUnavailableError, match="a:1"):
        await two.describe(DescribeTopics())
    two.brokers[HOME].available = True
    two.brokers[LOGS].available = False
    assert await two.describe(DescribeTopics()) == [WEB, ORDERS]


async def test_deleted_topics_are_removed(two: Two) -> None:
    await two.describe(DescribeTopics())
    two.brokers[LOGS].topics.clear()
    (gone,) = await two.describe(DescribeTopics(["logs.web"], []))
    assert gone.error_code == MISSING
    two.brokers[LOGS].available = False
    (unseen,) = await two.describe(DescribeTopics(["logs.web"], []))
    assert unseen.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    two.brokers[HOME].topics.clear()
    await two.describe(DescribeTopics([], [b"orders"]))
    two.brokers[HOME].available = False
    (unseen,) = await two.describe(DescribeTopics(["orders"], []))
    assert unseen.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_topic_that_this_gateway_deleted_is_removed(two: Two) -> None:
    await two.describe(DescribeTopics())
    two.catalog.remove("logs.web")
    two.brokers[LOGS].available = False
    assert await two.describe(DescribeTopics()) == [ORDERS]


# --- which broker ---------------------------------------------------------------------------


async def test_names_and_known_ids_need_no_question(two: Two) -> None:
    await two.describe(DescribeTopics())
    two.asked_now()
    assert await two.brokers_of("logs.x", "x", b"web", b"orders") == [LOGS, HOME, LOGS, HOME]
    assert two.asked_now() == [[], []]


async def test_unknown_ids_are_asked_of_all_brokers(two: Two) -> None:
    assert await two.brokers_of(b"web", b"?", "logs.x") == [LOGS, HOME, LOGS]
    op = DescribeTopics([], [b"web", b"?"])
    assert two.asked_now() == [[op], [op]]


async def test_an_id_may_be_at_a_broker_that_does_not_answer(two: Two) -> None:
    two.brokers[HOME].available = False
    assert await two.brokers_of(b"web", b"orders") == [LOGS, UNKNOWN_BROKER]


async def test_calls_return_in_the_order_in_which_they_were_made(two: Two) -> None:
    gate = two.brokers[LOGS].gate = asyncio.Event()
    returned: list[str] = []

    async def call(name: str, *topics: str | bytes) -> None:
        await two.brokers_of(*topics)
        returned.append(name)

    calls = [
        asyncio.create_task(call("asks", b"web")),
        asyncio.create_task(call("asks the same", b"web")),
        asyncio.create_task(call("need not ask", "orders")),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    assert returned == []
    gate.set()
    await asyncio.gather(*calls)
    assert returned == ["asks", "asks the same", "need not ask"]
    assert [len(ops) for ops in two.asked_now()] == [1, 1]


async def test_topics_elsewhere_are_those_of_other_brokers(two: Two) -> None:
    topics = [("orders", b""), ("logs.web", b""), ("", b"web"), ("", b"orders")]
    found = await two.catalog.describe_elsewhere(topics, HOME, None)
    assert found == {("logs.web", b""): WEB, ("", b"web"): WEB}
    two.asked_now()
    assert await two.catalog.describe_elsewhere([("orders", b"")], HOME, None) == {}
    assert two.asked_now() == [[], []]


async def test_one_broker_has_every_topic() -> None:
    async def describe(*_: object) -> None:
        raise AssertionError

    catalog = Catalog(OrgRoutes(to_one("a:1"), 1), describe)
    assert await catalog.brokers_of([("orders", b""), ("", b"?")], None) == [0, 0]
