"""Requests that begin and end within one call: order, failures, clients that go."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import replace

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.edge import pipeline
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_loop.eager_task import DirectFuture
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsResponse
from tests.unit.gateway.test_connection import Client, settle

_PRODUCE, _FETCH, _LIST_OFFSETS, _VERSIONS, _CREATE_TOPICS = 0, 1, 2, 18, 19


class ScriptedClient(Client):
    """A client of handlers that answer at once, wait for a future of the test, or raise."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.depths: list[int] = []
        self.held: dict[int, asyncio.Future[None]] = {}
        self.failing: dict[int, Exception] = {}
        self.answers_earlier = False
        """Whether a request answers the one before it."""
        super().__init__(apis=self._table())

    def _table(self) -> Mapping[int, AnyApi]:
        return {key: replace(api, handle=self._handle) for key, api in APIS.items()}

    async def _handle(self, _request: Message, context: RequestContext) -> EncodedResponse:
        number = context.correlation_id
        self.begun.append(number)
        self.depths.append(_depth())
        if self.answers_earlier and number:
            self.held[number - 1].set_result(None)
        if number in self.failing:
            raise self.failing[number]
        if number in self.held:
            await self.held[number]
        return EncodedResponse(ApiVersionsResponse, [b"x"])

    def hold(self, *numbers: int) -> None:
        """Let these requests wait."""
        for number in numbers:
            self.held[number] = DirectFuture()

    def is_closed(self) -> bool:
        return self.transport.gone

    def request(self, *keys: int, garbage: bytes = b"") -> None:
        """Send one request of each key in one piece, numbered from 0 on."""
        frames = [
            encode_request(number, "test", APIS[key].request(), APIS[key].versions.high)
            for number, key in enumerate(keys)
        ]
        self.connection.data_received(b"".join(piece for f in frames for piece in f) + garbage)


def _depth() -> int:
    frame, depth = inspect.currentframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


@pytest.fixture(autouse=True)
def one_long_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that are about slices make them short."""
    monkeypatch.setattr(pipeline, "SLICE_SECONDS", 60.0)


@pytest.fixture
async def client() -> ScriptedClient:
    return ScriptedClient()


async def test_the_op_leaves_and_the_response_leaves_without_a_turn_of_the_loop() -> None:
    client = Client()
    client.produce(1)
    (held,) = client.broker.produced
    held.set_result(None)
    assert client.transport.answered() == [1]
    assert client.memory.held == 0


async def test_a_request_that_waits_for_nothing_is_answered_at_once(client: ScriptedClient) -> None:
    client.request(_VERSIONS, _VERSIONS)
    assert client.transport.answered() == [0, 1]


async def test_a_chain_of_requests_that_wait_for_each_other_does_not_recurse(
    client: ScriptedClient,
) -> None:
    client.hold(0)
    client.request(*[_PRODUCE, _LIST_OFFSETS] * 32)
    assert client.begun == [0]
    client.held[0].set_result(None)
    assert client.begun == [*range(64)]
    assert client.transport.answered() == [*range(64)]
    assert max(client.depths[1:]) == min(client.depths[1:])


async def test_many_requests_at_once_take_slices(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SLICE_SECONDS", 0.0)
    client.request(*[_VERSIONS] * 20)
    assert client.begun == [0]
    client.connection.data_received(b"\0")  # more bytes do not make the slice longer
    assert client.begun == [0]
    await asyncio.sleep(0)
    assert len(client.begun) == 2
    await client.connection.wait_ended()
    assert client.transport.answered() == [*range(20)]


async def test_draining_between_two_slices(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SLICE_SECONDS", 0.0)
    client.request(*[_VERSIONS] * 5)
    client.connection.drain()
    assert not client.is_closed()
    await client.connection.wait_ended()
    assert client.transport.answered() == [0]
    assert client.is_closed()
    client.connection.connection_lost(None)
    assert client.memory.held == 0


async def test_a_client_that_goes_between_two_slices(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SLICE_SECONDS", 0.0)
    client.request(*[_VERSIONS] * 5)
    client.connection.connection_lost(None)
    await client.connection.wait_ended()
    assert client.begun == [0]
    assert client.transport.answered() == []
    assert client.memory.held == 0


async def test_after_a_request_that_fails_at_once_nothing_begins(client: ScriptedClient) -> None:
    client.failing[1] = BrokerUnavailableError("it left")
    client.request(_VERSIONS, _LIST_OFFSETS, _CREATE_TOPICS, _VERSIONS)
    assert client.begun == [0, 1]
    assert client.is_closed()
    client.connection.connection_lost(None)
    assert client.memory.held == 0


async def test_a_failure_closes_before_the_requests_that_waited_begin(
    client: ScriptedClient,
) -> None:
    client.hold(0)
    client.request(_PRODUCE, _LIST_OFFSETS, _CREATE_TOPICS)
    client.held[0].set_exception(BrokerUnavailableError("it left"))
    assert client.begun == [0]
    assert client.is_closed()


async def test_a_failure_takes_the_later_produces_back(client: ScriptedClient) -> None:
    """Their ops may still wait for the broker: they must not reach its log before the first one,
    which the client sends again."""
    client.hold(0, 1, 2, 3)
    client.request(_PRODUCE, _PRODUCE, _PRODUCE, _PRODUCE)
    client.held[1].set_exception(BrokerUnavailableError("the connection was lost"))
    assert client.is_closed()
    assert [client.held[n].cancelled() for n in range(4)] == [False, False, True, True]
    client.connection.connection_lost(None)
    client.held[0].set_result(None)
    await client.connection.wait_ended()
    assert client.memory.held == 0


async def test_requests_after_a_malformed_one_never_begin(client: ScriptedClient) -> None:
    versions = b"".join(encode_request(9, "test", APIS[_VERSIONS].request(), 0))
    client.request(_VERSIONS, garbage=b"\0\0\0\2\xff\xff" + versions)
    assert client.begun == [0]
    assert client.is_closed()
    client.connection.connection_lost(None)
    assert client.memory.held == 0


async def test_an_answer_that_arrives_while_the_next_request_begins(
    client: ScriptedClient,
) -> None:
    """The mesh may fail or answer earlier ops within the call that sends the next one."""
    client.answers_earlier = True
    client.hold(0, 1, 2)
    client.request(_PRODUCE, _PRODUCE, _PRODUCE)
    assert client.begun == [0, 1, 2]
    assert client.transport.answered() == [0, 1]
    client.held[2].set_result(None)
    assert client.transport.answered() == [0, 1, 2]
    assert client.memory.held == 0


async def test_a_long_poll_that_is_answered_at_once(client: ScriptedClient) -> None:
    client.request(_FETCH, _FETCH, _VERSIONS)
    assert client.begun == [0, 1, 2]
    assert client.transport.answered() == [0, 1, 2]


async def test_a_request_that_is_dropped_is_cancelled_in_a_later_turn(
    client: ScriptedClient,
) -> None:
    client.hold(0)
    client.request(_FETCH)
    client.connection.connection_lost(None)
    assert client.held[0].cancelled()
    await client.connection.wait_ended()
    assert client.transport.answered() == []
    assert client.memory.held == 0


@pytest.mark.parametrize("direct", [True, False])
async def test_a_client_that_goes_in_the_turn_of_the_answer(
    client: ScriptedClient, direct: bool
) -> None:
    client.held[0] = DirectFuture() if direct else asyncio.get_running_loop().create_future()
    client.request(_FETCH)
    client.held[0].set_result(None)
    client.connection.connection_lost(None)
    await client.connection.wait_ended()
    assert client.transport.answered() == ([0] if direct else [])
    assert client.memory.held == 0


async def test_a_wait_that_someone_else_cancels_closes_the_connection(
    client: ScriptedClient,
) -> None:
    client.hold(0)
    client.request(_PRODUCE, _LIST_OFFSETS)
    client.held[0].cancel()
    await settle()
    assert client.is_closed()
    assert client.begun == [0]
    client.connection.connection_lost(None)
    assert client.memory.held == 0


async def test_a_defect_closes_the_connection_and_does_not_reach_the_caller(
    client: ScriptedClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    client.hold(0)
    client.request(_PRODUCE)
    monkeypatch.setattr(client.transport, "write", fail)
    client.held[0].set_result(None)
    assert client.is_closed()
    assert "a defect" in caplog.text
