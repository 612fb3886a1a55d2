"""The idempotent producer: the same numbers again, and a new epoch after a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quafka_proto.errors import ErrorCode as E
from quafka_proto.message import Request, Response
from quafka_proto.records import BatchHeader, read_header
from quafka_proto.schema.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quafka_proto.schema.producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.sim.clients.idempotent import IdempotentProducer
from tests.sim.clients.job import Job
from tests.unit.sim.scripted_gateway import TOPIC_ID, gateway, job_at

_Answer = Callable[[BatchHeader, int], int | None]
"""The error for a batch that is sent as the n-th one; None: no answer."""


async def _run(seconds: float, answer: _Answer) -> tuple[Job, list[BatchHeader]]:
    seen: list[BatchHeader] = []

    def script(request: Request) -> Response | None:
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=9, producer_epoch=0)
        assert isinstance(request, ProduceRequest)
        (part,) = request.topic_data[0].partition_data
        assert part.records is not None
        seen.append(read_header(part.records))
        code = answer(seen[-1], len(seen))
        if code is None:
            return None
        result = PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else 5)
        topic = TopicProduceResponse(
            name=request.topic_data[0].name, topic_id=TOPIC_ID, partition_responses=[result]
        )
        return ProduceResponse(responses=[topic])

    async with gateway(script) as found:
        job = job_at(found)
        task = asyncio.create_task(
            IdempotentProducer(job, list(job.plan.topics), most_in_flight=1).run()
        )
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return job, seen


def _outcomes(job: Job) -> list[str]:
    return [e["type"] for e in job.history.events if e["op"] == "produce" and "id" in e]


async def test_a_batch_without_an_answer_is_sent_again_with_its_number() -> None:
    job, seen = await _run(13.0, lambda _, n: None if n == 1 else 0)
    assert seen[0][:] == seen[1][:]
    sequences = [header.base_sequence for header in seen[1:]]
    assert sequences == sorted(set(sequences))
    assert set(_outcomes(job)) == {"ok"}


async def test_a_retriable_error_is_no_outcome() -> None:
    job, seen = await _run(2.0, lambda _, n: E.NOT_LEADER_OR_FOLLOWER if n < 4 else E.NONE)
    assert len({header.base_sequence for header in seen[:4]}) == 1
    assert set(_outcomes(job)) == {"ok"}


async def test_a_duplicate_was_written_at_an_offset_that_is_not_known() -> None:
    job, _ = await _run(1.0, lambda *_: E.DUPLICATE_SEQUENCE_NUMBER)
    ends = [e for e in job.history.events if e["op"] == "produce" and e["type"] == "ok"]
    assert ends
    assert all(end["offset"] is None for end in ends)


async def test_a_gap_begins_an_epoch_with_sequence_zero() -> None:
    job, seen = await _run(3.0, lambda _, n: E.OUT_OF_ORDER_SEQUENCE_NUMBER if n == 2 else E.NONE)
    assert [header.producer_epoch for header in seen[:3]] == [0, 0, 1]
    assert seen[2].base_sequence == 0
    assert _outcomes(job)[:2] == ["ok", "fail"]


async def test_what_may_have_been_written_is_unknown_when_it_is_given_up() -> None:
    answers = {2: E.REQUEST_TIMED_OUT, 3: E.OUT_OF_ORDER_SEQUENCE_NUMBER}
    job, _ = await _run(3.0, lambda _, n: answers.get(n, E.NONE))
    assert _outcomes(job)[:2] == ["ok", "unknown"]
