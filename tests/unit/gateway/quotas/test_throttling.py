"""A connection over its quota: what its responses state, and when it is read from again."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from quafka_gateway.context import Services
from quafka_gateway.quotas.kinds import CLIENT_ID, USER
from quafka_mesh_ops.ops.security import (
    OrgRecord,
    QuotaRecord,
    SecurityChange,
    WatchSecurityResp,
)
from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header
from quafka_proto.message import Message
from quafka_proto.schema.api_versions import ApiVersionsResponse
from quafka_proto.schema.produce import ProduceResponse
from quafka_proto.schema.quafka import OrgLimit
from quafka_proto.schema.quotas import EntityData, ValueData
from tests.unit.gateway.quotas.test_precedence import LEVELS
from tests.unit.gateway.test_connection import Client, settle


def set_quotas(services: Services, *limits: OrgLimit, **values: float) -> None:
    """Make these the quotas of the default user and the limits of the org."""
    quotas = [ValueData(name, value) for name, value in values.items()]
    entity = [EntityData("user", None)]
    changes = [
        SecurityChange(False, quota=QuotaRecord(1, entity, quotas)),
        SecurityChange(False, org=OrgRecord(1, "one", "active", list(limits))),
    ]
    services.directory.learn(WatchSecurityResp(b"i", 1, True, False, changes))


def answer(client: Client, kind: type[Message], version: int) -> Message:
    """The last response written."""
    frames, at = client.transport.written, 0
    while True:
        size = int.from_bytes(frames[at : at + 4], "big")
        if at + 4 + size == len(frames):
            break
        at += 4 + size
    frame = frames[at + 4 :]
    _, body = decode_response_header(kind, version, frame)
    return decode(kind, version, frame, body)


async def test_a_producer_over_its_quota_is_muted_and_goes_on_later() -> None:
    client = Client()
    set_quotas(client.services, producer_byte_rate=10.0)
    client.produce(1)
    client.broker.produced[-1].set_result(None)
    await settle()
    throttled = answer(client, ProduceResponse, 9)
    assert throttled.throttle_time_ms == 0  # type: ignore[attr-defined]
    set_quotas(client.services, producer_byte_rate=9.0)
    client.produce(2, records=bytes(40))
    client.broker.produced[-1].set_result(None)
    await settle()
    assert answer(client, ProduceResponse, 9).throttle_time_ms > 0  # type: ignore[attr-defined]
    assert client.transport.paused == 1
    client.versions(3)
    await settle()
    assert client.transport.answered() == [1, 2]
    assert client.connection.idle_since(asyncio.get_running_loop().time() + 1e6) == 0
    assert not client.connection.stalled(1e9)


async def test_muted_for_a_moment() -> None:
    client = Client()
    set_quotas(client.services, request_percentage=1e-6)
    client.versions(1)
    client.versions(2)
    await settle()
    assert client.transport.answered() == [1]
    assert client.transport.paused == 1
    set_quotas(client.services)
    async with asyncio.timeout(5):
        while client.transport.answered() != [1, 2]:
            await asyncio.sleep(0.01)
    assert client.transport.paused == 0
    assert answer(client, ApiVersionsResponse, 0)


@pytest.mark.parametrize("level", LEVELS)
async def test_a_removed_quota_ends_at_once(level: tuple[str | None, str | None]) -> None:
    names = {"alice": "ANONYMOUS", "app": "test", "": None}
    parts = zip((USER, CLIENT_ID), level, strict=True)
    entity = [EntityData(kind, names[name]) for kind, name in parts if name is not None]
    client = Client()
    steps = [{"producer_byte_rate": 10.0}, {"request_percentage": 1e6}, {}]
    for number, values in enumerate(steps):
        quota = QuotaRecord(1, entity, [ValueData(*each) for each in values.items()])
        change = SecurityChange(not values, quota=quota)
        page = WatchSecurityResp(b"i", number + 1, number == 0, False, [change])
        client.services.directory.learn(page)
        client.produce(number, acks=(-1, 1)[number % 2], records=bytes(1_000))
        client.broker.produced[-1].set_result(None)
        await asyncio.sleep(3_600)
        shown = cast(ProduceResponse, answer(client, ProduceResponse, 9)).throttle_time_ms
        assert (shown > 0) == (number == 0)


async def test_an_org_s_limit_holds_its_clients_together() -> None:
    client = Client()
    set_quotas(client.services, OrgLimit("producer.byte.rate", 1.0))
    client.produce(1, records=bytes(100))
    client.broker.produced[-1].set_result(None)
    await settle()
    assert answer(client, ProduceResponse, 9).throttle_time_ms > 1_000  # type: ignore[attr-defined]
    (counted,) = client.services.quotas.throttled()
    assert (counted.user, counted.kind.value) == ("ANONYMOUS", "producer_byte_rate")


async def test_a_muted_connection_that_is_lost_or_drained_leaves_nothing() -> None:
    for end in ("lost", "drain"):
        client = Client()
        set_quotas(client.services, producer_byte_rate=1.0)
        client.produce(1, acks=0, records=bytes(100))
        client.broker.produced[-1].set_result(None)
        await settle()
        assert client.transport.paused == 1
        if end == "lost":
            client.connection.connection_lost(None)
            assert client.closed == [client.connection]
        else:
            client.connection.drain()
            assert client.transport.gone
        await client.connection.wait_ended()
