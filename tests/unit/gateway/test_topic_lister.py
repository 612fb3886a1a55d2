"""All topics of a broker: in pages, sent again only if they have changed, and never stale."""

from __future__ import annotations

import asyncio

import pytest

from quafka_broker.ops import topics
from quafka_broker.state import BrokerState
from quafka_gateway.cluster import topic_lister
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.cluster.topic_lister import TopicLister
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_proto.errors import ErrorCode
from quafka_telemetry.tracing import TraceContext
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context, running_state

ALL = DescribeTopics()


class Broker:
    """The broker's handler, and the ops that it was sent."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.ops: list[DescribeTopics] = []
        self.held: asyncio.Event | None = None
        self.available = True

    async def __call__(
        self, op: DescribeTopics, trace: TraceContext | None, seconds: float
    ) -> DescribeTopicsResp:
        self.ops.append(op)
        if not self.available:
            raise BrokerUnavailableError("disconnected")
        answer = await topics.describe(self.state, context(), op)
        if self.held is not None:
            await self.held.wait()
        return answer


async def names(lister: TopicLister, op: DescribeTopics = ALL) -> list[str]:
    return [topic.topic for topic in (await lister.describe(op, None, 1.0)).topics]


async def test_pages_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lister, "PAGE", 3)
    async with running_state(MemoryDisk()) as state:
        broker = Broker(state)
        lister = TopicLister(broker)
        assert await names(lister) == []
        every = [f"t{number}" for number in range(8)]
        for name in every:
            await state.topics.create(ORG, name, 1)
        assert await names(lister) == every
        assert [op.after for op in broker.ops] == ["", "", "t2", "t5"]
        broker.ops.clear()
        first = await lister.describe(ALL, None, 1.0)
        again = await lister.describe(ALL, None, 1.0)
        assert first.topics is again.topics
        assert len(broker.ops) == 2
        await state.topics.create(ORG, "t25", 1)
        assert await names(lister) == sorted([*every, "t25"])
        assert (await lister.describe(ALL, None, 1.0)).version != first.version


async def test_many_names_are_sent_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lister, "PAGE", 3)
    async with running_state(MemoryDisk()) as state:
        broker = Broker(state)
        lister = TopicLister(broker)
        topic, _ = await state.topics.create(ORG, "old", 1)
        new = [f"t{number}" for number in range(5)]
        op = DescribeTopics(new, [b"?" * 16, topic.uuid], auto_create=True)
        assert await names(lister, op) == [*new, "", "old"]
        assert [len(op.topics or op.topic_ids or []) for op in broker.ops] == [3, 2, 2]


async def test_the_pages_of_one_op_share_a_bound_of_creations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_lister, "PAGE", 2)
    async with running_state(MemoryDisk()) as state:
        lister = TopicLister(Broker(state))
        new = [f"t{number}" for number in range(5)]
        op = DescribeTopics(new, auto_create=True, create_at_most=3)
        found = (await lister.describe(op, None, 1.0)).topics
        assert [t.error_code for t in found] == [0, 0, 0] + [ErrorCode.POLICY_VIOLATION] * 2


async def test_a_late_caller_gets_a_later_list() -> None:
    async with running_state(MemoryDisk()) as state:
        broker = Broker(state)
        lister = TopicLister(broker)
        broker.held = asyncio.Event()
        early = asyncio.create_task(names(lister))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await state.topics.create(ORG, "t", 1)
        late = [asyncio.create_task(names(lister)) for _ in range(5)]
        await asyncio.sleep(0)
        late[0].cancel()
        broker.held.set()
        assert await early == []
        assert await asyncio.gather(*late[1:]) == [["t"]] * 4
        assert len(broker.ops) == 2


async def test_an_unavailable_broker_is_called_again() -> None:
    async with running_state(MemoryDisk()) as state:
        broker = Broker(state)
        lister = TopicLister(broker)
        broker.available = False
        with pytest.raises(BrokerUnavailableError):
            await names(lister)
        broker.available = True
        assert await names(lister) == []
