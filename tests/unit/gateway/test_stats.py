"""Request counters: errors, and time without waits."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.cluster.parked_time import ParkedTime, add_parked, begin_request
from quafka_gateway.stats import GatewayStats


def test_a_request_is_counted_with_its_errors_and_without_its_wait() -> None:
    stats = GatewayStats(slow_seconds=0.5)
    assert not stats.count_request("Fetch", (), 0.003, 30.0)
    assert stats.count_request("Fetch", (1, 3), 0.5, 0.0)
    counted = stats.apis["Fetch"]
    assert (counted.requests, counted.errors, counted.parked) == (2, {1: 1, 3: 1}, 30.0)
    assert counted.seconds.count == 2
    assert counted.seconds.sum == pytest.approx(0.503)


def test_waits_at_several_brokers_at_a_time_count_once() -> None:
    waited = ParkedTime()
    waited.add(1.0, now=10.0)  # from 9 on
    waited.add(1.5, now=10.5)  # also from 9 on
    waited.add(0.0, now=11.0)
    waited.add(2.0, now=20.0)
    assert waited.seconds == pytest.approx(3.5)


async def test_a_wait_is_the_requests_in_whose_task_it_is_noticed() -> None:
    async def request(seconds: float) -> float:
        mine = begin_request()

        async def at_a_broker() -> None:
            add_parked(seconds)

        await asyncio.create_task(at_a_broker())
        return mine.seconds

    waits = await asyncio.gather(request(1.0), request(2.0), request(0.0))
    assert waits == pytest.approx([1.0, 2.0, 0.0])
    add_parked(1.0)  # outside a request: ignored


def test_names_of_apis_are_labels() -> None:
    assert len({api.name for api in APIS.values()}) == len(APIS)
