"""A connection that is over leaves nothing to the search for garbage."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

import pytest

from tests.support.garbage import searched
from tests.unit.gateway.sasl.test_authentication import ALICE, Gateway
from tests.unit.gateway.sasl.test_authentication import Client as SaslClient
from tests.unit.gateway.sasl.users import plain
from tests.unit.gateway.test_connection import Client


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def answered(client: Client) -> None:
    client.produce(1)
    client.versions(2)
    client.broker.produced.pop().set_result(None)
    assert client.transport.answered() == [1, 2]


def silent(client: Client) -> None:
    pass


def in_flight(client: Client) -> None:
    client.produce(1)
    client.produce(2)


def long_poll(client: Client) -> None:
    client.fetch(1)
    assert client.broker.fetched


def malformed(client: Client) -> None:
    client.connection.data_received(b"\0\0\0\2??")
    assert client.transport.gone


def throttled(client: Client) -> None:
    client.connection._throttle(10)


@pytest.mark.parametrize("use", [silent, answered, in_flight, long_poll, malformed, throttled])
async def test_a_lost_connection_is_freed_at_once(use: Callable[[Client], None]) -> None:
    client = Client()
    with searched() as found:
        use(client)
        await turns()
        connection = client.connection
        connection.connection_lost(None)
        client.closed.clear()
        for each in client.broker.produced:
            each.set_result(None)
        client.broker.produced.clear()
        client.broker.fetched.clear()
        await turns()
        left = weakref.ref(connection)
        del connection, client.connection
        assert left() is None
    assert found == []


@pytest.mark.parametrize("password", ["secret", "wrong"])
async def test_so_is_one_that_has_authenticated(password: str) -> None:
    gateway = Gateway(ALICE)
    with searched() as found:
        client = SaslClient(gateway)
        await client.shake("PLAIN")
        answer = await client.token(plain("alice", password))
        assert bool(answer.error_code) == (password == "wrong")
        await turns()
        client.connection.connection_lost(None)
        left = weakref.ref(client.connection)
        del client, answer
        await turns()
        assert left() is None
    assert found == []
