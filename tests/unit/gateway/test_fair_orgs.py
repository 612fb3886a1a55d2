"""One org at full speed on a gateway's loop: how many of its requests another org waits for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import Services
from quafka_gateway.edge.connection import KafkaConnection
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.security.directory import Directory
from quafka_gateway.tenants import Tenants
from quafka_proto.headers import encode_request
from quafka_proto.schema.api_versions import ApiVersionsRequest
from quafka_telemetry.tracing import Tracer
from tests.support.memory_transport import MemoryTransport
from tests.support.tenants import LISTENER, tenant_over

CONNECTIONS, DEPTH = 64, 50
FLOOD = CONNECTIONS * DEPTH


class _Counting(MemoryTransport):
    """Counts the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.answers += 1


def gateway(*orgs: int) -> Services:
    memory = ResponseMemory(1 << 20)
    link = cast(BrokerLink, cast(Any, object()))
    tenants = {org: tenant_over(link, memory, org) for org in orgs}
    known = Tenants(lambda org: tenants[org], 1, Directory(), most=10)
    return Services(
        APIS,
        known,
        (LISTENER,),
        Tracer(),
        1 << 20,
        RequestMemory(1 << 30),
        memory,
        EdgeSettings(),
    )


class _Clients:
    """Connections of one org."""

    def __init__(self, services: Services, org: int, count: int) -> None:
        self.transports = [_Counting() for _ in range(count)]
        self.connections: list[KafkaConnection] = []
        listener = replace(LISTENER, org=str(org))
        for serial, transport in enumerate(self.transports):
            connection = KafkaConnection(services, APIS, listener, serial, lambda _: None)
            connection.connection_made(transport)
            self.connections.append(connection)

    @property
    def answers(self) -> int:
        return sum(transport.answers for transport in self.transports)

    def send(self, requests: int) -> None:
        frame = b"".join(encode_request(1, "test", ApiVersionsRequest(), 0))
        for connection in self.connections:
            connection.data_received(frame * requests)


@pytest.mark.parametrize("rounds", [1, 3])
async def test_an_org_waits_for_few_requests_of_another_one(rounds: int) -> None:
    services = gateway(1, 2)
    flooding, other = _Clients(services, 1, CONNECTIONS), _Clients(services, 2, 1)
    flooding.send(DEPTH)
    for _ in range(rounds):
        before = flooding.answers
        other.send(1)
        for _ in range(50):
            if other.answers:
                break
            await asyncio.sleep(0)
        assert other.answers == 1
        other.transports[0].answers = 0
        assert flooding.answers - before < FLOOD / 8
    paused = sum(transport.paused for transport in flooding.transports)
    assert paused > CONNECTIONS / 2  # clients that wait for their org's turn are not read
    async with asyncio.timeout(20):
        while flooding.answers < FLOOD:
            await asyncio.sleep(0)
    assert not any(transport.paused for transport in flooding.transports)


async def test_an_org_alone_is_not_held_back() -> None:
    services = gateway(1)
    clients = _Clients(services, 1, CONNECTIONS)
    clients.send(1)
    assert clients.answers == CONNECTIONS
    assert services.turns.deferred == 0
