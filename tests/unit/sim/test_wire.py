"""Connections of simulated clients: answers in order, time limits, another gateway."""

from __future__ import annotations

import asyncio

import pytest

from quafka_proto.message import Request, Response
from quafka_proto.schema.groups import HeartbeatRequest, HeartbeatResponse
from tests.sim.clients.job import Gateway
from tests.sim.clients.wire import REQUEST_S, Link, LostError
from tests.unit.sim.scripted_gateway import gateway, job_at


def _echo(request: Request) -> Response:
    assert isinstance(request, HeartbeatRequest)
    return HeartbeatResponse(error_code=request.generation_id)


def _silence(_: Request) -> None:
    return None


async def test_requests_in_flight_get_their_own_answers() -> None:
    async with gateway(_echo) as found:
        wire = await Link(job_at(found)).ready()
        sent = [wire.send(HeartbeatRequest(generation_id=n), HeartbeatResponse) for n in range(5)]
        answers = await asyncio.gather(*sent)
    assert [answer.error_code for answer in answers] == [0, 1, 2, 3, 4]


async def test_no_answer_in_time_ends_the_connection_and_all_that_is_in_flight() -> None:
    loop = asyncio.get_running_loop()
    async with gateway(_silence) as found:
        wire = await Link(job_at(found)).ready()
        begun = loop.time()
        first = wire.send(HeartbeatRequest(), HeartbeatResponse)
        await asyncio.sleep(REQUEST_S / 2)
        second = wire.send(HeartbeatRequest(), HeartbeatResponse)
        for future in (first, second):
            with pytest.raises(LostError):
                await future
        assert loop.time() - begun == pytest.approx(REQUEST_S, abs=0.01)
        assert not wire.is_open


async def test_a_link_goes_to_the_next_gateway_that_works() -> None:
    async with gateway(_echo, "good") as good:
        dead = Gateway("dead", "127.0.0.1", good.port + 1)
        job = job_at(dead, good)
        link = Link(job)
        for _ in range(3):
            assert (await link.ready()).gateway == "good"
            link.leave()
