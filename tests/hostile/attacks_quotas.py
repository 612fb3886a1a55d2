"""Clients that want their quotas to cost the gateway, or their neighbours, more than themselves."""

from __future__ import annotations

import contextlib
import time

from quafka_proto.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quafka_proto.schema.produce import ProduceResponse
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.support.kafka_calls import VERSION, produce_request
from tests.support.quota_calls import alter, clear
from tests.support.raw_client import RawClient

_NAMES, _ENTITIES = 5_000, 200
_LEAVING = 200
_SWEEP_SECONDS = 12.0


@attack("clients take a new name with each request, are throttled for an hour, and leave",
        part_of_tests=True,
        gateway=("--quota-max-entities", str(_ENTITIES)))  # fmt: skip
def names_and_mutes(arena: Arena) -> None:
    topic = arena.topic()
    with arena.connect() as admin:
        assert alter(admin, {"client-id": None}, request_percentage=90.0) == (0, None)
        _take_names(arena)
        windows = arena.figures("gateway")["quafka_gateway_quota_windows"]
        assert 0 < windows <= _ENTITIES
        clear(admin)
        assert alter(admin, {"client-id": "slow"}, producer_byte_rate=1.0) == (0, None)
        before = arena.figures("gateway")["quafka_gateway_connections"]
        _leave_throttled(arena, topic)
        until = time.monotonic() + _SWEEP_SECONDS
        while arena.figures("gateway")["quafka_gateway_connections"] > before:
            assert time.monotonic() < until, "connections of clients that have gone are still open"
            time.sleep(0.2)
        clear(admin)


def _take_names(arena: Arena) -> None:
    with RawClient(arena.address, 60) as client:
        for number in range(_NAMES):
            client._client_id = f"name {number}"
            client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


def _leave_throttled(arena: Arena, topic: str) -> None:
    request = produce_request(topic, bytes(10_000))
    with contextlib.ExitStack() as opened:
        for _ in range(_LEAVING):
            client = opened.enter_context(RawClient(arena.address, 60, "slow"))
            answer = client.call(request, ProduceResponse, VERSION["produce"])
            assert answer.throttle_time_ms > 1_000_000
            client.send_together(*[(ApiVersionsRequest(), 0)] * 1_000)
