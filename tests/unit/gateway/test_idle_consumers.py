"""Consumers at the tail that fetch again and again: ops at the broker, answers, and what ends them.

Gateway and broker are whole, in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quafka_broker.partitions.purgatory import Purgatory
from quafka_broker.state import BrokerState
from quafka_gateway.fetch import standing_polls
from quafka_gateway.fetch.idle_fetch import epoch_position
from quafka_gateway.fetch.reader import FetchReader
from quafka_mesh_ops.ops.base import AnyOp, Op, R
from quafka_mesh_ops.ops.records import FetchOps
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_request_header, encode_request
from quafka_proto.schema.fetch import FetchRequest, FetchResponse, PartitionData
from quafka_proto.schema.partitions import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.support.fetch_calls import part, request_of
from tests.support.joined import Connected, Joined, Mesh
from tests.support.kafka_calls import produce_request

V = 12
WAIT = 10
"""Milliseconds of the idle fetches."""


class CountingMesh(Mesh):
    """Keeps the fetches that were sent, and may hold up those without partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[FetchOps] = []
        self.confirms = asyncio.Event()
        self.confirms.set()

    async def call(self, op: Op[R], *, org_id: int, **more: Any) -> R:
        await self._note(op)
        return await super().call(op, org_id=org_id, **more)

    async def _note(self, op: AnyOp) -> None:
        if isinstance(op, FetchOps):
            self.fetched.append(op)
            if not op.partitions:
                await self.confirms.wait()

    def of_partitions(self) -> list[FetchOps]:
        """The fetches sent since the last call, without the confirmations."""
        found = [op for op in self.fetched if op.partitions]
        self.fetched.clear()
        return found


class Idle(Joined):
    """With a topic "t" of three partitions."""

    mesh: CountingMesh

    def __init__(self) -> None:
        super().__init__(mesh=CountingMesh(), lease_seconds=2.0)

    @property
    def state(self) -> BrokerState:
        assert self.mesh.state is not None
        return self.mesh.state

    @property
    def reader(self) -> FetchReader:
        reader = self.services.tenant.reader.only
        assert reader is not None
        return reader

    async def produce(self, value: bytes = b"x", partition: int = 0) -> None:
        request = produce_request("t", value, partition=partition)
        answer = await self.connect().call(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def begin_topic(self) -> None:
        await self.start_broker()
        new = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        await self.connect().call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)


class Consumer:
    """One client with a fetch session, or without."""

    def __init__(self, idle: Idle, *partitions: int, session: bool = True) -> None:
        self.client: Connected = idle.connect()
        self._partitions = partitions or (0,)
        self._session = session
        self._id = self._epoch = 0
        self.offsets = dict.fromkeys(self._partitions, 0)

    def request(self, wait: int) -> FetchRequest:
        wanted = [part(each, self.offsets[each]) for each in self._partitions]
        if not self._session:
            return request_of("t", *wanted, wait=wait)
        if not self._id:
            return request_of("t", *wanted, session=(0, 0), wait=0)
        self._epoch += 1
        return request_of("t", session=(self._id, self._epoch), wait=wait)

    def begin(self, wait: int = WAIT) -> None:
        self.client.begin(self.request(wait), V)

    async def receive(self) -> FetchResponse:
        answer = await self.client.receive(FetchResponse, V)
        self._id = answer.session_id
        return answer

    async def fetch(self, wait: int = WAIT) -> FetchResponse:
        self.begin(wait)
        return await self.receive()

    async def settle(self, mesh: CountingMesh, wait: int = WAIT) -> None:
        """Fetch until the fetches cost no op."""
        for _ in range(200):
            mesh.of_partitions()
            await self.fetch(wait)
            if not mesh.of_partitions():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("every fetch costs an op")


def partitions_of(answer: FetchResponse) -> list[PartitionData]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def values_in(answer: FetchResponse) -> int:
    """Bytes of records."""
    return sum(len(each.records or b"") for each in partitions_of(answer))


@pytest.fixture
async def idle(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Idle]:
    monkeypatch.setattr(standing_polls, "_SETTLED_SECONDS", 0.0)
    both = Idle()
    await both.begin_topic()
    yield both
    await both.services.tenant.close()
    if both.mesh.state is not None:
        await both.stop_broker()


@pytest.mark.parametrize("session", [True, False])
async def test_idle_fetches_share_one_op_and_cost_none(idle: Idle, session: bool) -> None:
    first, second = (Consumer(idle, 0, 1, session=session) for _ in range(2))
    await first.settle(idle.mesh)
    await second.settle(idle.mesh)
    assert len(idle.reader.standing) == 1
    assert len(idle.state.parked_fetches) == 1
    for _ in range(5):
        for consumer in (first, second):
            answer = await consumer.fetch()
            assert answer.error_code == 0
            assert len(partitions_of(answer)) == (0 if session else 2)
    assert idle.mesh.of_partitions() == []


@pytest.mark.parametrize("session", [True, False])
async def test_an_append_answers_the_fetch_that_waits(idle: Idle, session: bool) -> None:
    consumer, now = Consumer(idle, 0, 1, session=session), asyncio.get_running_loop().time
    await consumer.settle(idle.mesh, wait=1_500)
    began = now()
    consumer.begin(wait=1_500)
    assert idle.reader.standing.waiting == 1
    await idle.produce(b"seen", 1)
    assert values_in(await consumer.receive()) > 0
    assert now() - began < 1.4


async def test_an_append_between_two_fetches_is_in_the_next(idle: Idle) -> None:
    consumer = Consumer(idle)
    for _ in range(10):
        await consumer.settle(idle.mesh)
        await idle.produce()
        assert values_in(await consumer.fetch()) > 0
        consumer = Consumer(idle, session=False)
        for answer in partitions_of(await consumer.fetch()):
            consumer.offsets[0] = answer.high_watermark


async def test_a_fetch_that_does_not_wait_costs_no_op_of_partitions(idle: Idle) -> None:
    consumer = Consumer(idle, 0, 1, 2)
    await consumer.settle(idle.mesh, wait=0)
    for _ in range(5):
        assert partitions_of(await consumer.fetch(0)) == []
    assert idle.mesh.of_partitions() == []


async def test_a_deleted_topic_is_an_error_at_once(idle: Idle) -> None:
    consumer = Consumer(idle)
    await consumer.settle(idle.mesh)
    delete = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
    await idle.connect().call(delete, DeleteTopicsResponse, 5)
    (gone,) = partitions_of(await consumer.fetch())
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("session", [True, False])
async def test_the_next_answer_has_a_log_start_that_moved(idle: Idle, session: bool) -> None:
    await idle.produce()
    consumer = Consumer(idle, session=session)
    consumer.offsets[0] = 1
    await consumer.settle(idle.mesh)
    cut = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
    )
    request = DeleteRecordsRequest(topics=[cut], timeout_ms=5_000)
    await idle.connect().call(request, DeleteRecordsResponse, 2)
    (answer,) = partitions_of(await consumer.fetch())
    assert answer.log_start_offset == 1


@pytest.mark.parametrize("version", range(7, 19))
def test_the_epoch_is_where_it_is_looked_for(version: int) -> None:
    request = FetchRequest(session_id=5, session_epoch=0x01020304)
    frame = b"".join(encode_request(1, "client", request, version))[4:]
    _, body = decode_request_header(frame)
    at = body + epoch_position(version)
    assert frame[at : at + 4] == b"\x01\x02\x03\x04"


async def test_an_epoch_counts_once(idle: Idle) -> None:
    consumer = Consumer(idle)
    await consumer.settle(idle.mesh)
    last = consumer.request(WAIT)
    assert (await consumer.client.call(last, FetchResponse, V)).error_code == 0
    again = await consumer.client.call(last, FetchResponse, V)
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_an_evicted_session_is_not_found(idle: Idle) -> None:
    consumer = Consumer(idle)
    await consumer.settle(idle.mesh)
    table = idle.services.tenant.fetch_sessions.table
    session = table.find((await consumer.fetch()).session_id)
    assert session is not None
    table.remove(session)
    answer = await consumer.fetch()
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_another_request_may_use_the_session_during_the_wait(idle: Idle) -> None:
    consumer = Consumer(idle)
    await consumer.settle(idle.mesh)
    request = consumer.request(WAIT)
    await consumer.client.send(request, V)
    assert idle.reader.standing.waiting == 1
    request.max_wait_ms = 0
    assert (await idle.connect().call(request, FetchResponse, V)).error_code == 0
    answer = await consumer.receive()
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_client_that_goes_cancels_the_op(idle: Idle) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh, WAIT)
    consumer.begin()
    assert idle.reader.standing.waiting == 1
    consumer.client.connection.connection_lost(None)
    await consumer.client.connection.wait_ended()
    await asyncio.sleep(0.01)
    assert len(idle.reader.standing) == len(idle.state.parked_fetches) == 0
    assert idle.reader.parked == 0


async def test_an_op_that_nobody_uses_ends(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_polls, "LINGER_SECONDS", 0.05)
    consumer = Consumer(idle)
    await consumer.settle(idle.mesh)
    assert len(idle.state.parked_fetches) == 1
    await asyncio.sleep(0.2)
    assert len(idle.reader.standing) == len(idle.state.parked_fetches) == 0
    await consumer.settle(idle.mesh)


async def test_unused_ops_are_bounded(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_polls, "_MOST_UNUSED", 2)
    for partition in range(3):
        await Consumer(idle, partition).settle(idle.mesh)
        assert len(idle.reader.standing) == min(partition + 1, 2)
    await asyncio.sleep(0)
    assert len(idle.state.parked_fetches) == 2


async def test_an_op_that_ends_is_sent_again(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_polls, "STANDING_SECONDS", 0.05)
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    assert idle.reader.standing.begun
    for _ in range(20):
        assert len(partitions_of(await consumer.fetch())) == 1
    assert 1 <= len(idle.mesh.of_partitions()) <= 15
    await idle.produce()
    assert values_in(await consumer.fetch()) > 0


async def test_a_draining_broker_ends_the_waits(idle: Idle) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    consumer.begin()
    assert idle.reader.standing.waiting == 1
    idle.state.parked_fetches.drain()
    assert len(partitions_of(await consumer.receive())) == 1
    assert idle.reader.standing.waiting == 0


async def test_a_broker_that_is_away_is_an_error(idle: Idle) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    await idle.stop_broker()
    (answer,) = partitions_of(await consumer.fetch())
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _marks_nothing(_table: object, _partitions: object) -> list[object]:
    return []


async def test_a_fetch_after_an_acknowledged_produce_sees_it_though_the_op_does_not(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    monkeypatch.setattr(Purgatory, "mark_changed", _marks_nothing)
    await idle.produce()
    assert values_in(await consumer.fetch()) > 0


async def test_an_answer_without_records_needs_an_answer_of_the_broker(idle: Idle) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    idle.mesh.confirms.clear()
    await asyncio.sleep(0.001)  # the confirmation of the last fetch is older than the next one
    consumer.begin()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await consumer.receive()
    idle.mesh.confirms.set()
    assert len(partitions_of(await consumer.receive())) == 1


async def test_other_requests_of_the_connection_wait_and_are_served(idle: Idle) -> None:
    consumer = Consumer(idle, session=False)
    await consumer.settle(idle.mesh)
    consumer.begin()
    later = request_of("t", part(2), wait=0)
    consumer.client.begin(later, V)
    while len(consumer.client.transport.written) < 100:
        await asyncio.sleep(0.001)
    size = int.from_bytes(consumer.client.transport.written[:4], "big")
    assert len(consumer.client.transport.written) == 2 * (4 + size)
