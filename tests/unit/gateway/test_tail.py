"""A record's way from the broker's commit to a parked consumer, in turns of the loop and in ops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quafka_broker.partitions.parked_fetches import ParkedFetches
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.state import BrokerState
from quafka_broker.wal.commit_group import GroupedBatch
from quafka_mesh_ops.ops.base import AnyOp, Op, R
from quafka_mesh_ops.ops.records import FetchOps
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import read_header
from quafka_proto.schema.fetch import FetchResponse
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.support.fetch_calls import LONG, part, request_of
from tests.support.joined import Connected, Joined, Mesh
from tests.support.kafka_calls import produce_request
from tests.unit.broker.tools import ORG, checked

V = 12


class CountingMesh(Mesh):
    """Counts the fetches that reach the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches: list[FetchOps] = []

    async def call(self, op: Op[R], *, org_id: int, **ignored: Any) -> R:
        any_op: AnyOp = op
        if isinstance(any_op, FetchOps):
            self.fetches.append(any_op)
        return await super().call(op, org_id=org_id, **ignored)


class Tail(Joined):
    """With a topic "t" of three partitions, and a consumer with a session and a lease."""

    def __init__(self) -> None:
        self.counting = CountingMesh()
        super().__init__(mesh=self.counting, lease_seconds=60)

    async def open(self) -> None:
        await self.start_broker()
        new = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        await self.connect().call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)
        await self.connect().call(request_of("t", part()), FetchResponse, V)
        await asyncio.sleep(0.01)  # the lease is valid with the answer to its op

    @property
    def state(self) -> BrokerState:
        assert self.mesh.state is not None
        return self.mesh.state

    def partition_id(self, number: int = 0) -> PartitionId:
        topic = self.state.registry.find(ORG, "t", b"")
        assert topic is not None
        return topic.partition_id(number)

    async def append(self, *partitions: int) -> None:
        """Append a record to each of these partitions, in one commit."""
        log = self.state.log
        first, *others = [log.partitions.get(self.partition_id(number)) for number in partitions]
        record = Record(0, 1_000, None, b"x", [])
        data = build_batch([record], base_sequence=len(others) or -1)
        head = read_header(data), memoryview(data)
        members = [GroupedBatch(each, *checked(b"x")[0]) for each in others]
        await log.queue.append(first, [head], members=members)


@asynccontextmanager
async def opened() -> AsyncIterator[Tail]:
    both = Tail()
    await both.open()
    yield both
    await both.stop_broker()


@pytest.fixture
async def tail() -> AsyncIterator[Tail]:
    async with opened() as both:
        yield both


async def test_a_fetch_is_parked_within_the_call_that_brings_it(tail: Tail) -> None:
    client = tail.connect()
    client.begin(request_of("t", part(), wait=LONG), V)
    assert len(tail.state.parked_fetches) == 1


async def test_an_append_is_at_the_client_within_the_call_that_commits_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients: list[Connected] = []
    seen: list[list[bool]] = []
    wake = ParkedFetches.wake

    def watched(parked: ParkedFetches, grown: Set[PartitionId]) -> None:
        seen.append([client.transport.whole for client in clients])
        wake(parked, grown)
        seen.append([client.transport.whole for client in clients])

    monkeypatch.setattr(ParkedFetches, "wake", watched)
    async with opened() as tail:
        clients += [tail.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            client.begin(request_of("t", part(number), wait=LONG), V)
        assert len(tail.state.parked_fetches) == 3
        seen.clear()
        await tail.append(1)
        assert seen == [[False] * 3, [False, True, False]]
        answer = await clients[1].receive(FetchResponse, V)
        assert answer.responses[0].partitions[0].high_watermark == 1
        assert len(tail.state.parked_fetches) == 2


async def test_the_records_of_one_commit_are_one_answer(tail: Tail) -> None:
    client = tail.connect()
    client.begin(request_of("t", part(0), part(1), part(2), wait=LONG), V)
    before = len(tail.counting.fetches)
    await tail.append(0, 1, 2)
    answer = await client.receive(FetchResponse, V)
    found = [bool(each.records) for topic in answer.responses for each in topic.partitions]
    assert found == [True] * 3
    assert len(tail.counting.fetches) == before


async def test_one_op_for_each_record_that_a_consumer_waits_for(tail: Tail) -> None:
    consumer, producer = tail.connect(), tail.connect()
    before = len(tail.counting.fetches)
    for offset in range(20):
        consumer.begin(request_of("t", part(offset=offset), wait=LONG), V)
        answer = await producer.call(produce_request("t", b"x"), ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].base_offset == offset
        found = await consumer.receive(FetchResponse, V)
        assert found.responses[0].partitions[0].high_watermark == offset + 1
    assert len(tail.counting.fetches) - before == 20


async def test_one_op_for_a_consumer_that_follows_a_moving_tail(tail: Tail) -> None:
    consumer, producer = tail.connect(), tail.connect()
    consumer.begin(request_of("t", part(), wait=LONG), V)
    await producer.call(produce_request("t", b"x"), ProduceResponse, 9)
    await consumer.receive(FetchResponse, V)
    for offset in range(1, 20):
        # The record is there before the consumer fetches again.
        await producer.call(produce_request("t", b"x"), ProduceResponse, 9)
        before = len(tail.counting.fetches)
        answer = await consumer.call(
            request_of("t", part(offset=offset), wait=LONG), FetchResponse, V
        )
        assert answer.responses[0].partitions[0].high_watermark == offset + 1
        assert len(tail.counting.fetches) == before + 1


async def test_many_consumers_of_one_tail_share_one_op(tail: Tail) -> None:
    clients = [tail.connect() for _ in range(200)]
    before = len(tail.counting.fetches)
    for client in clients:
        client.begin(request_of("t", part(), wait=LONG), V)
    assert len(tail.counting.fetches) == before + 1
    await tail.append(0)
    answers = await asyncio.gather(*(client.receive(FetchResponse, V) for client in clients))
    assert all(answer.responses[0].partitions[0].records for answer in answers)
    assert len(tail.counting.fetches) == before + 1
