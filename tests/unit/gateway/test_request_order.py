"""Every pair of APIs on one connection, against Kafka's order: one request after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.handlers.order import Order, SeenState
from quafka_proto.message import Message
from tests.unit.gateway.test_connection import Client, settle

_PRODUCE, _FETCH, _LIST_OFFSETS, _COMMIT = 0, 1, 2, 8
_VERSIONS, _CREATE_TOPICS, _DELETE_GROUPS = 18, 19, 42


class Handlers:
    """The table of APIs with handlers that record their beginning; the test ends them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ends: dict[int, asyncio.Future[None]] = {}

    def table(self) -> Mapping[int, AnyApi]:
        return {key: replace(api, handle=self._handle) for key, api in APIS.items()}

    async def _handle(self, _request: Message, context: RequestContext) -> None:
        number = context.correlation_id
        self.begun.append(number)
        self.ends[number] = asyncio.get_running_loop().create_future()
        await self.ends[number]

    async def end(self, number: int) -> None:
        self.ends[number].set_result(None)
        await settle()


class Line(Client):
    """A connection whose requests are named by API key and end when the test ends them."""

    def __init__(self) -> None:
        self.handlers = Handlers()
        super().__init__(apis=self.handlers.table())

    async def request(self, *keys: int) -> None:
        """Send one request of each key at once, numbered from 0 on."""
        for number, key in enumerate(keys):
            api = APIS[key]
            self.send(number, api.request(), api.versions.high)
        await settle()

    @property
    def begun(self) -> list[int]:
        return self.handlers.begun

    def is_closed(self) -> bool:
        return self.transport.gone


def _may_run_beside(first: AnyApi, second: AnyApi) -> bool:
    """Whether no client can notice that the second began before the first was finished, and
    memory allows it."""
    if first.may_be_long(first.request()) and second.may_be_long(second.request()):
        return False
    if first.order.long_poll or second.order.long_poll:
        return False
    if first.name == second.name == "Produce":
        return True  # their lane keeps their order (tests/integration/test_request_order.py)
    changed = first.order.writes & (second.order.reads | second.order.writes)
    return not changed and not first.order.reads & second.order.writes


@pytest.mark.parametrize("first", APIS, ids=lambda key: APIS[key].name)
async def test_of_every_pair_the_second_begins_when_kafka_order_allows_it(first: int) -> None:
    for second in APIS:
        line = Line()
        await line.request(first, second)
        beside = _may_run_beside(APIS[first], APIS[second])
        assert line.begun == ([0, 1] if beside else [0]), APIS[second].name
        await line.handlers.end(0)
        assert line.begun == [0, 1], APIS[second].name
        await line.handlers.end(1)
        await line.connection.wait_ended()


def test_waiting_is_mutual_but_for_long_polls() -> None:
    for one, other in product(APIS.values(), repeat=2):
        if not one.long_poll and not other.long_poll:
            assert one.order.waits_for(other.order) == other.order.waits_for(one.order)


async def test_a_request_overtakes_only_what_it_does_not_touch() -> None:
    line = Line()
    await line.request(_PRODUCE, _LIST_OFFSETS, _COMMIT, _PRODUCE, _VERSIONS, _CREATE_TOPICS)
    # The second produce waits: the ListOffsets before it must not see its records.
    assert line.begun == [0, 2, 4]
    await line.handlers.end(0)
    assert line.begun == [0, 2, 4, 1]
    await line.handlers.end(1)
    assert line.begun == [0, 2, 4, 1, 3]
    await line.handlers.end(2)
    assert line.begun == [0, 2, 4, 1, 3]
    await line.handlers.end(3)
    assert line.begun == [0, 2, 4, 1, 3, 5]


async def test_all_later_requests_wait_for_a_long_poll() -> None:
    line = Line()
    await line.request(_VERSIONS, _FETCH, _VERSIONS, _PRODUCE, _PRODUCE, _FETCH)
    assert line.begun == [0]
    await line.handlers.end(0)
    assert line.begun == [0, 1]
    await line.handlers.end(1)
    assert line.begun == [0, 1, 2, 3, 4]
    for number in (2, 4, 3):
        assert 5 not in line.begun
        await line.handlers.end(number)
    assert line.begun[-1] == 5


async def test_writes_of_a_client_that_left_go_on_in_their_order() -> None:
    line = Line()
    await line.request(_PRODUCE, _LIST_OFFSETS, _CREATE_TOPICS, _FETCH, _PRODUCE)
    line.connection.connection_lost(None)
    await settle()
    assert line.begun == [0]
    await line.handlers.end(0)
    assert line.begun == [0, 2]  # the reads are dropped with their client
    await line.handlers.end(2)
    assert line.begun == [0, 2, 4]
    await line.handlers.end(4)
    await line.connection.wait_ended()
    assert line.memory.held == 0


async def test_what_waits_for_a_request_that_fails_does_not_run() -> None:
    line = Line()
    await line.request(_PRODUCE, _LIST_OFFSETS, _DELETE_GROUPS, _CREATE_TOPICS)
    assert line.begun == [0, 2]
    line.handlers.ends[0].set_exception(BrokerUnavailableError("it left"))
    await settle()
    assert line.is_closed()
    line.connection.connection_lost(None)
    await line.handlers.end(2)
    await line.connection.wait_ended()
    assert line.begun == [0, 2]
    assert line.memory.held == 0


async def test_a_connection_that_drains_runs_what_waits_for_its_turn() -> None:
    line = Line()
    await line.request(_PRODUCE, _LIST_OFFSETS, _FETCH, _PRODUCE)
    line.connection.drain()
    await line.handlers.end(0)
    assert line.begun == [0, 1]
    assert not line.is_closed()
    await line.handlers.end(1)
    assert line.is_closed()  # the fetch and the request after it never began
    await line.connection.wait_ended()
    line.connection.connection_lost(None)
    assert line.begun == [0, 1]
    assert line.memory.held == 0


def test_state_all_is_all() -> None:
    every = SeenState.NONE
    for each in SeenState:
        every |= each
    assert every == SeenState.ALL
    assert Order(writes=SeenState.ALL).waits_for(Order(reads=SeenState.USERS))
