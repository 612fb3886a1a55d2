"""Ordering, back-pressure and the fate of requests whose client goes, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge import request_serving
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_loop import slices
from quafka_loop.eager_task import DirectFuture
from quafka_loop.slices import SLICE_SECONDS
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.records import (
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOpResp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import DescribeTopicsResp, TopicDescription
from quafka_proto.config_kinds import ResourceType
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_proto.schema.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from quafka_proto.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from quafka_proto.schema.metadata import MetadataRequest, MetadataRequestTopic
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_telemetry.tracing import TraceContext, Tracer
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import LISTENER, only, tenant_over
from tests.support.virtual.threads import current_hub


class HeldBroker:
    """A broker that answers when the test sets the result."""

    def __init__(self) -> None:
        self.produced: list[DirectFuture[None]] = []
        self.fetched: list[DirectFuture[None]] = []
        self.dropped = 0

    def hurry(self) -> None:
        """It holds no op back."""

    async def produce(
        self, op: ProduceOps, lane: int, timeout: float, trace: TraceContext | None
    ) -> list[ProduceOpResp]:
        held: DirectFuture[None] = DirectFuture()
        self.produced.append(held)
        await held
        return [ProduceOpResp(base_offset=0)] * len(op.partitions)

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        raise BrokerUnavailableError("it gives no leases")

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        held: DirectFuture[None] = DirectFuture()
        self.fetched.append(held)
        try:
            await held
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        return FetchOpsResp([FetchOpResp([], high_watermark=0)] * len(op.partitions))


class Client:
    """A connection under test with its client and its broker."""

    def __init__(
        self, memory: RequestMemory | None = None, apis: Mapping[int, AnyApi] = APIS
    ) -> None:
        self.broker = HeldBroker()
        self.transport = MemoryTransport()
        self.memory = memory or RequestMemory(1 << 20)
        broker = cast(BrokerLink, self.broker)
        responses = ResponseMemory(1 << 20)
        self.services = services = Services(
            apis,
            only(tenant_over(broker, responses)),
            (LISTENER,),
            Tracer(),
            1 << 20,
            self.memory,
            responses,
            EdgeSettings(),
        )
        self.closed: list[KafkaConnection] = []
        self.connection = KafkaConnection(services, apis, LISTENER, 0, self.closed.append)
        self.connection.connection_made(self.transport)

    def send(self, correlation_id: int, request: Message, version: int) -> None:
        frame = b"".join(encode_request(correlation_id, "test", request, version))
        self.connection.data_received(frame)

    def produce(self, correlation_id: int, acks: int = -1, records: bytes = b"batch") -> None:
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        self.send(correlation_id, ProduceRequest(acks=acks, topic_data=[topic]), 9)

    def fetch(self, correlation_id: int) -> None:
        topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])
        self.send(correlation_id, FetchRequest(topics=[topic]), 12)

    def versions(self, correlation_id: int) -> None:
        self.send(correlation_id, ApiVersionsRequest(), 0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def client() -> Client:
    return Client()


async def test_responses_leave_in_request_order(client: Client) -> None:
    client.produce(1)
    client.versions(2)
    client.produce(3)
    await settle()
    assert len(client.broker.produced) == 2  # both in flight at once
    client.broker.produced[1].set_result(None)
    await settle()
    assert client.transport.answered() == []
    client.broker.produced[0].set_result(None)
    await settle()
    assert client.transport.answered() == [1, 2, 3]


async def test_a_long_request_keeps_its_place(client: Client) -> None:
    """While it is decoded, other work has turns, but no later request of its connection."""
    current_hub().reading_seconds = SLICE_SECONDS / 4
    parts = [PartitionProduceData(index=i, records=b"batch") for i in range(20_000)]
    topic = TopicProduceData(name="t", partition_data=parts)
    client.produce(1)
    client.send(2, ProduceRequest(acks=-1, topic_data=[topic]), 9)
    client.produce(3)
    assert client.connection.busy
    turns = 0
    while len(client.broker.produced) < 1:
        await asyncio.sleep(0)
    client.broker.produced[0].set_result(None)
    while len(client.broker.produced) < 2:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    await settle()
    assert len(client.broker.produced) == 2  # the third waits for the long one
    client.broker.produced[1].set_result(None)
    while client.transport.answered() != [1, 2, 3]:
        await asyncio.sleep(0)
        if len(client.broker.produced) == 3 and not client.broker.produced[2].done():
            client.broker.produced[2].set_result(None)


async def test_a_long_request_that_is_malformed_closes_the_connection(client: Client) -> None:
    current_hub().reading_seconds = SLICE_SECONDS / 4
    topics = [MetadataRequestTopic(name=f"t{i}") for i in range(20_000)]
    frame = b"".join(encode_request(1, "test", MetadataRequest(topics=topics), 1))
    body = frame[4:-3]  # cut short
    client.connection.data_received(len(body).to_bytes(4, "big") + body)
    assert client.memory.held == len(body)
    while not client.transport.is_closing():
        await asyncio.sleep(0)
    assert client.memory.held == 0


@pytest.mark.parametrize("acks", [0, 1])
async def test_a_long_produce_is_begun_though_its_client_has_gone(
    client: Client, acks: int
) -> None:
    current_hub().reading_seconds = SLICE_SECONDS / 4
    parts = [PartitionProduceData(index=i, records=b"batch") for i in range(20_000)]
    topic = TopicProduceData(name="t", partition_data=parts)
    client.send(1, ProduceRequest(acks=acks, topic_data=[topic]), 9)
    client.connection.connection_lost(None)
    while not client.broker.produced:
        await asyncio.sleep(0)
    client.broker.produced[0].set_result(None)
    await client.connection.wait_ended()
    assert client.memory.held == 0


async def test_acks_0_leaves_no_gap_in_the_responses(client: Client) -> None:
    client.produce(1, acks=0)
    client.versions(2)
    await settle()
    client.broker.produced[0].set_result(None)
    await settle()
    assert client.transport.answered() == [2]


async def test_a_response_that_cannot_be_encoded_closes_the_connection_and_never_hangs(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_args: object) -> None:
        raise ValueError("a string of 40000 bytes is above Kafka's limit of 32767")

    monkeypatch.setattr(request_serving, "encode_response", refuse)
    client.versions(1)
    await settle()
    assert client.transport.is_closing()
    assert "ApiVersions v0" in caplog.text


@pytest.mark.parametrize("kind", [ResourceType.CLIENT_METRICS, ResourceType.BROKER_LOGGER])
async def test_a_refusal_that_repeats_a_long_request_is_answered(
    client: Client, kind: ResourceType
) -> None:
    configs = [IncrementalAlterableConfig(name=f"{n}" * 1_000, value="") for n in range(100)]
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name="0", configs=configs
    )
    client.send(1, IncrementalAlterConfigsRequest(resources=[resource]), 0)
    await settle()
    assert client.transport.answered() == [1]


class ManyTopics:
    """Counts the calls of a broker with 3,000 topics."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *_args: object) -> DescribeTopicsResp:
        self.asked += 1
        topics = [TopicDescription(f"t{n}", bytes([n % 256] * 16), 1) for n in range(3_000)]
        return DescribeTopicsResp("c", topics, b"1")


async def test_other_work_has_turns_while_a_long_response_is_encoded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(client.broker, "describe_topics", ManyTopics(), raising=False)
    client.send(1, MetadataRequest(topics=None), 12)
    turns = 0
    while not client.transport.written:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3_000
    assert client.transport.answered() == [1]


async def test_a_long_response_is_made_once_and_after_the_client_has_read_the_one_before(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ManyTopics()
    monkeypatch.setattr(client.broker, "describe_topics", topics, raising=False)
    answers = client.services.tenant.response_cache
    client.connection.pause_writing()
    for number in range(1, 9):
        client.send(number, MetadataRequest(topics=None), 12)
    await settle()
    assert (topics.asked, answers.held) == (0, 0)
    client.connection.resume_writing()
    while len(client.transport.answered()) < 8:
        await asyncio.sleep(0)
    assert topics.asked == 8
    assert client.transport.answered() == [*range(1, 9)]
    assert 0 < answers.held < len(client.transport.written) // 7
    assert client.services.response_memory.held == answers.held


async def test_long_responses_wait_while_their_org_holds_too_much_memory(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ManyTopics()
    monkeypatch.setattr(client.broker, "describe_topics", topics, raising=False)
    responses = client.connection.responses
    responses.hold(2 << 20)
    client.send(1, MetadataRequest(topics=None), 12)
    client.versions(2)
    await settle()
    assert topics.asked == 0
    responses.release(2 << 20)
    while len(client.transport.answered()) < 2:
        await asyncio.sleep(0)
    assert topics.asked == 1


async def test_no_long_response_waits_while_another_org_holds_too_much_memory(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ManyTopics()
    monkeypatch.setattr(client.broker, "describe_topics", topics, raising=False)
    theirs = client.services.response_memory.of(99)
    theirs.hold(2 << 20)
    assert client.services.response_memory.excess > 0
    client.send(1, MetadataRequest(topics=None), 12)
    while len(client.transport.answered()) < 1:
        await asyncio.sleep(0)
    assert topics.asked == 1


async def test_a_long_response_is_dropped_with_its_client(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.broker, "describe_topics", ManyTopics(), raising=False)
    client.connection.pause_writing()
    for number in range(3):
        client.send(number, MetadataRequest(topics=None), 12)
    await settle()
    client.connection.connection_lost(None)
    await client.connection.wait_ended()
    assert client.memory.held == client.services.response_memory.held == 0


async def test_a_fetch_waits_for_the_responses_before_it(client: Client) -> None:
    client.produce(1)
    client.fetch(2)
    client.fetch(3)
    await settle()
    assert client.broker.fetched == []
    client.broker.produced[0].set_result(None)
    await settle()
    assert len(client.broker.fetched) == 1
    client.broker.fetched[0].set_result(None)
    await settle()
    assert client.transport.answered() == [1, 2]
    assert len(client.broker.fetched) == 2


async def test_a_client_that_does_not_read_gets_no_more_fetches(client: Client) -> None:
    client.connection.pause_writing()
    client.fetch(1)
    await settle()
    assert client.broker.fetched == []
    client.connection.resume_writing()
    await settle()
    assert len(client.broker.fetched) == 1


async def test_a_full_pipeline_is_not_read_from(client: Client) -> None:
    for correlation_id in range(70):
        client.produce(correlation_id)
    await settle()
    assert len(client.broker.produced) == 64
    assert client.transport.paused == 1
    for held in list(client.broker.produced):
        held.set_result(None)
    await settle()
    assert client.transport.paused == 0
    assert len(client.broker.produced) == 70


async def test_a_parked_fetch_is_dropped_with_its_client_and_a_produce_is_not(
    client: Client,
) -> None:
    client.fetch(1)
    await settle()
    client.produce(2)
    await settle()
    client.connection.connection_lost(None)
    await settle()
    assert client.broker.dropped == 1
    assert not client.broker.produced[0].cancelled()
    assert client.closed == [client.connection]
    client.broker.produced[0].set_result(None)
    await client.connection.wait_ended()
    assert client.transport.answered() == []


async def test_draining_answers_the_requests_in_flight_and_closes(client: Client) -> None:
    client.produce(1)
    await settle()
    client.connection.drain()
    await settle()
    assert not client.transport.gone
    client.broker.produced[0].set_result(None)
    await settle()
    assert client.transport.answered() == [1]
    assert client.transport.gone


async def test_malformed_bytes_close_the_connection(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.connection.data_received(b"GET / HTTP/1.1\r\n")
    assert client.transport.gone
    assert [record.message for record in caplog.records] == [
        "closing 192.0.2.1:5: an HTTP request: this port speaks the Kafka protocol"
    ]


async def test_while_requests_hold_too_much_memory_no_client_is_read_from() -> None:
    memory = RequestMemory(10_000)
    big, other = Client(memory), Client(memory)
    big.produce(1, records=bytes(20_000))
    await settle()
    other.produce(1)  # a request that has arrived is still served
    await settle()
    assert (big.transport.paused, other.transport.paused) == (1, 1)
    assert len(other.broker.produced) == 1
    big.broker.produced[0].set_result(None)
    await settle()
    assert (big.transport.paused, other.transport.paused) == (0, 0)


async def test_too_many_unfinished_bytes_close_the_connection_with_most_of_them() -> None:
    memory = RequestMemory(10_000)
    large, small, late = Client(memory), Client(memory), Client(memory)
    large.connection.data_received((1 << 19).to_bytes(4, "big") + bytes(8_000))
    for client in (small, late):
        client.connection.data_received((1 << 19).to_bytes(4, "big") + bytes(1_500))
    assert [c.transport.gone for c in (large, small, late)] == [True, False, False]
    assert memory.held == 3_000
    large.connection.connection_lost(None)
    assert memory.held == 3_000


@pytest.mark.parametrize("fate", ["answered", "client gone", "drained"])
async def test_all_memory_is_released(fate: str) -> None:
    memory = RequestMemory(1_000)
    client = Client(memory)
    client.produce(1, records=bytes(5_000))
    client.fetch(2)
    client.fetch(3)
    client.connection.data_received((1 << 19).to_bytes(4, "big") + bytes(500))
    await settle()
    assert memory.full
    if fate == "client gone":
        client.connection.connection_lost(None)
    elif fate == "drained":
        client.connection.drain()
    client.broker.produced[0].set_result(None)
    for _ in range(2):  # the second fetch begins when the first is answered
        await settle()
        for held in client.broker.fetched:
            if not held.done():
                held.set_result(None)
    await client.connection.wait_ended()
    if fate != "client gone":
        client.connection.connection_lost(None)
    assert memory.held == 0


async def test_a_request_must_go_on_arriving(client: Client) -> None:
    connection = client.connection
    now = asyncio.get_running_loop().time()
    assert not connection.stalled(now + 1_000)  # idle, not stalled
    connection.data_received((200_000).to_bytes(4, "big") + b"x")
    assert not connection.stalled(now + 59)
    assert connection.stalled(now + 61)
    connection.data_received(bytes(100_000))  # bytes that come early allow no long pause
    assert not connection.stalled(now + 59)
    assert connection.stalled(now + 61)


async def test_a_client_that_is_not_read_from_does_not_stall() -> None:
    memory = RequestMemory(10_000)
    slow, big = Client(memory), Client(memory)
    slow.connection.data_received((200_000).to_bytes(4, "big") + b"x")
    big.produce(1, records=bytes(20_000))
    await settle()
    slow.connection.data_received(b"x")
    assert slow.transport.paused == 1
    now = asyncio.get_running_loop().time()
    assert not slow.connection.stalled(now + 1_000)
    big.broker.produced[0].set_result(None)
    await settle()
    assert slow.transport.paused == 0
    assert not slow.connection.stalled(now + 59)
    assert slow.connection.stalled(now + 61)
