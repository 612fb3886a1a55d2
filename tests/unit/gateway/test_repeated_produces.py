"""Produces that repeat the last one: what they are answered, and which are decoded all the same.

Gateway and broker are whole, in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest import mock

import pytest

from quafka_gateway.edge import pipeline, request_decoding
from quafka_gateway.edge.framing import RequestFramer
from quafka_gateway.edge.request_decoding import decode_request
from quafka_gateway.edge.request_trace import ConnectionTracing, RequestTrace
from quafka_gateway.security.authorizer import Authorizer
from quafka_loop.eager_task import DirectFuture
from quafka_mesh_ops.errors import OutcomeUnknownError
from quafka_mesh_ops.ops.base import Op, R
from quafka_mesh_ops.ops.records import ProduceOps
from quafka_proto.codec import decode
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.records import DELETE_HORIZON, read_header
from quafka_proto.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quafka_proto.schema.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quafka_telemetry.tracing import NO_SPAN
from tests.support.joined import Connected, Joined, Mesh
from tests.support.kafka_calls import produce_request
from tests.unit.proto.batches import resealed

V = 9


class SlowMesh(Mesh):
    """Holds produces up, or fails them, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[DirectFuture[None]] | None = None
        self.error: Exception | None = None

    async def call(self, op: Op[R], *, org_id: int, **more: Any) -> R:
        if isinstance(op, ProduceOps):
            if self.held is not None:
                self.held.append(DirectFuture())
                await self.held[-1]
            if self.error is not None:
                raise self.error
        return await super().call(op, org_id=org_id, **more)


class Producer:
    """One client, and how many of its requests were decoded."""

    def __init__(self, joined: Joined, decoding: mock.Mock) -> None:
        self.client: Connected = joined.connect()
        self._decoding = decoding

    async def produce(self, value: bytes = b"x", partition: int = 0) -> PartitionProduceResponse:
        request = produce_request("t", value, partition=partition)
        return _only(await self.client.call(request, ProduceResponse, V))

    async def end_offset(self, partition: int = 0) -> int:
        wanted = [ListOffsetsPartition(partition, timestamp=-1)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", wanted)])
        answer = await self.client.call(request, ListOffsetsResponse, 7)
        return answer.topics[0].partitions[0].offset

    async def answers(self, count: int) -> list[bytes]:
        """So many answers, in the order in which they come."""
        transport, framer = self.client.transport, RequestFramer(1 << 20)
        frames: list[bytes] = []
        async with asyncio.timeout(10):
            while len(frames) < count:
                if not transport.written:
                    transport.some.clear()
                    await transport.some.wait()
                written, transport.written = transport.written, b""
                frames += framer.feed(bytes(written))
        return frames

    def decoded(self) -> int:
        """Since the last call."""
        count = self._decoding.call_count
        self._decoding.reset_mock()
        return count


def _produced(frame: bytes) -> ProduceResponse:
    _, at = decode_response_header(ProduceResponse, V, frame)
    return decode(ProduceResponse, V, frame, at)


def _only(response: ProduceResponse) -> PartitionProduceResponse:
    ((part,),) = (topic.partition_responses for topic in response.responses)
    return part


@pytest.fixture
def decoding() -> Iterator[mock.Mock]:
    with mock.patch.object(pipeline, "decode_request", wraps=decode_request) as spy:
        yield spy


@pytest.fixture
async def joined() -> AsyncIterator[Joined]:
    both = Joined(mesh=SlowMesh())
    await both.start_broker()
    new = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    await both.connect().call(CreateTopicsRequest(topics=[new]), CreateTopicsResponse, 5)
    yield both
    await both.stop_broker()


@pytest.fixture
def mesh(joined: Joined) -> SlowMesh:
    assert isinstance(joined.mesh, SlowMesh)
    return joined.mesh


@pytest.fixture
async def producer(joined: Joined, decoding: mock.Mock) -> Producer:
    """Whose next request repeats its last one."""
    found = Producer(joined, decoding)
    await found.produce()
    found.decoded()
    return found


async def test_a_repetition_is_not_decoded_and_has_the_same_effect(producer: Producer) -> None:
    for number, partition in enumerate((0, 1, 1, 0, 2), 1):
        part = await producer.produce(b"y" * number, partition)
        assert (part.index, part.error_code) == (partition, 0)
    assert not producer.decoded()
    assert [await producer.end_offset(n) for n in range(3)] == [3, 2, 1]


async def test_an_error_is_answered_in_full(producer: Producer) -> None:
    part = await producer.produce(partition=7)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not producer.decoded()
    request = produce_request("t", b"y")
    batch = request.topic_data[0].partition_data[0]
    assert batch.records is not None
    batch.records = bytes(batch.records)[:-1] + b"!"
    part = _only(await producer.client.call(request, ProduceResponse, V))
    assert part.error_code == ErrorCode.CORRUPT_MESSAGE
    assert part.error_message
    assert not producer.decoded()


async def test_a_delete_horizon_is_cleared_whichever_way_the_batch_takes(
    joined: Joined, producer: Producer
) -> None:
    """Decoded, repeated and not decoded, and as one of several partitions."""
    await _send_horizons(producer.client, 1)
    await _send_horizons(producer.client, 1)
    await _send_horizons(producer.client, 3)
    assert joined.mesh.state is not None
    state = joined.mesh.state
    topic = state.registry.find(1, "t", b"")
    assert topic is not None
    found: list[int] = []
    for number in range(3):
        partition = state.log.partitions.get(topic.partition_id(number))
        batches = await state.log.reader.read(partition, 0, 1 << 20, at_least_one=True)
        found += [read_header(batch).attributes for batch in batches]
    assert found == [0] * 6


async def _send_horizons(client: Connected, partitions: int) -> None:
    """Send a batch with a delete horizon to each of the first partitions."""
    request = produce_request("t", b"y")
    (part,) = request.topic_data[0].partition_data
    records = resealed(bytes(part.records or b""), attributes=DELETE_HORIZON)
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=number, records=records) for number in range(partitions)
    ]
    answer = await client.call(request, ProduceResponse, V)
    assert {each.error_code for each in answer.responses[0].partition_responses} == {0}


async def test_requests_are_counted_and_their_bytes_released(
    joined: Joined, producer: Producer
) -> None:
    before = joined.services.stats.apis["Produce"].requests
    await producer.produce()
    await producer.produce(partition=9)
    stats = joined.services.stats.apis["Produce"]
    assert stats.requests == before + 2
    assert stats.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
    assert joined.services.request_memory.held == 0


async def test_other_requests_wait_for_it_and_it_for_them(
    joined: Joined, mesh: SlowMesh, producer: Producer
) -> None:
    mesh.held = []
    producer.client.begin(produce_request("t", b"y"), V)
    wanted = [ListOffsetsPartition(0, timestamp=-1)]
    producer.client.begin(ListOffsetsRequest(topics=[ListOffsetsTopic("t", wanted)]), 7)
    producer.client.begin(produce_request("t", b"z"), V)
    assert len(mesh.held) == 1  # the second produce waits for the ListOffsets
    held, mesh.held = mesh.held, None
    held[0].set_result(None)
    first, second, third = await producer.answers(3)
    assert _only(_produced(first)).base_offset == 1
    offsets = decode(ListOffsetsResponse, 7, second, 5)
    assert offsets.topics[0].partitions[0].offset == 2
    assert _only(_produced(third)).base_offset == 2


async def test_responses_leave_in_the_order_of_the_requests(
    mesh: SlowMesh, producer: Producer
) -> None:
    held: list[DirectFuture[None]] = []
    mesh.held = held
    for number in range(3):
        producer.client.begin(produce_request("t", b"y", partition=number), V)
    mesh.held = None
    for future in reversed(held):
        future.set_result(None)
    answers = await producer.answers(3)
    assert [_only(_produced(each)).index for each in answers] == [0, 1, 2]


async def test_a_client_that_goes_takes_nothing_with_it(
    joined: Joined, mesh: SlowMesh, producer: Producer
) -> None:
    held: list[DirectFuture[None]] = []
    mesh.held = held
    producer.client.begin(produce_request("t", b"y"), V)
    connection = producer.client.connection
    connection.connection_lost(None)
    ended = asyncio.ensure_future(connection.wait_ended())
    await asyncio.sleep(0)
    assert not ended.done()
    mesh.held = None
    held[0].set_result(None)
    await asyncio.wait_for(ended, 10)
    assert joined.services.request_memory.held == 0
    assert await Producer(joined, mock.Mock()).end_offset() == 2


async def test_without_an_answer_the_client_gets_an_error(
    mesh: SlowMesh, producer: Producer
) -> None:
    mesh.error = OutcomeUnknownError("the connection was lost")
    assert (await producer.produce()).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not producer.decoded()


async def test_a_defect_closes_the_connection(
    joined: Joined, mesh: SlowMesh, producer: Producer
) -> None:
    mesh.error = RuntimeError("a defect")
    producer.client.begin(produce_request("t", b"y"), V)
    await asyncio.sleep(0)
    assert producer.client.transport.is_closing()
    assert joined.services.request_memory.held == 0


async def test_one_that_fails_takes_the_later_ones_back(
    joined: Joined, mesh: SlowMesh, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[DirectFuture[None]] = []
    mesh.held = held
    for _ in range(3):
        producer.client.begin(produce_request("t", b"y"), V)
    held[0].set_exception(RuntimeError("a defect"))
    assert producer.client.transport.is_closing()
    assert [each.cancelled() for each in held] == [False, True, True]
    await producer.client.connection.wait_ended()
    assert len(caplog.records) == 1, "only the first one has failed"
    assert joined.services.request_memory.held == 0


async def test_clients_with_quotas_are_served_as_ever(joined: Joined, producer: Producer) -> None:
    with mock.patch.object(type(joined.services.quotas), "of", return_value=mock.Mock()):
        frame = b"".join(encode_request(7, "joined", produce_request("t", b"y"), V))
        with mock.patch("quafka_gateway.handlers.repeated_produce.RepeatedProduce.begin") as start:
            producer.client.connection.data_received(frame)
    assert not start.called
    assert producer.decoded() == 1


async def test_a_sampled_one_is_decoded_and_sampled_once(producer: Producer) -> None:
    trace = mock.MagicMock(spec=RequestTrace, request=NO_SPAN, trace_id="")
    trace.start_encoding.return_value = NO_SPAN
    with (
        mock.patch.object(ConnectionTracing, "on", new=True),
        mock.patch.object(ConnectionTracing, "sample", return_value=trace) as sample,
        mock.patch.object(
            pipeline, "decode_at_once", wraps=request_decoding.decode_at_once
        ) as decode,
    ):
        assert (await producer.produce()).error_code == 0
    assert sample.call_count == decode.call_count == 1
    assert trace.end.called


async def test_without_the_right_it_is_decoded_and_refused(
    joined: Joined, producer: Producer
) -> None:
    access = mock.Mock(**{"allows.return_value": False, "is_super": False})
    connection = producer.client.connection
    session = connection._session
    authorizer = mock.Mock(spec=Authorizer)
    with (
        mock.patch.object(type(session), "access_by", return_value=access),
        mock.patch.object(type(joined.services), "authorizer", new=authorizer, create=True),
    ):
        part = await producer.produce()
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert producer.decoded() == 1


async def test_another_topic_or_a_transaction_is_decoded(producer: Producer) -> None:
    request = produce_request("t", b"y")
    request.transactional_id = "mine"
    await producer.client.call(request, ProduceResponse, V)
    assert producer.decoded() == 1
    await producer.produce()
    assert not producer.decoded(), "it repeats the one before the transaction"
    other: ProduceRequest = produce_request("u", b"y")
    part = _only(await producer.client.call(other, ProduceResponse, V))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.decoded() == 1
