"""Answers to many parked members at once: in order, and a few in each turn of the loop."""

from __future__ import annotations

import asyncio

from quafka_broker.groups import answer_queue


async def test_many_answers_are_spread_over_turns_in_their_order() -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(100)]
    answers[50].cancel()
    queue = answer_queue.AnswerQueue()
    for number, answer in enumerate(answers):
        queue.resolve(answer, number)
    before = 0
    while not all(answer.done() for answer in answers):
        given = sum(answer.done() and not answer.cancelled() for answer in answers)
        assert given - before <= answer_queue._PER_TURN
        assert all(answer.done() for answer in answers[:given])
        before = given
        await asyncio.sleep(0)
    assert [a.result() for a in answers if not a.cancelled()] == [*range(50), *range(51, 100)]
    last = asyncio.get_running_loop().create_future()
    queue.resolve(last, "at once")
    assert last.done()
