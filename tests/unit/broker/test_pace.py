"""A few callers continue in each turn of the event loop."""

from __future__ import annotations

import asyncio

from quafka_broker.groups.pace import Pace


async def test_callers_continue_in_their_order_a_few_in_each_turn() -> None:
    pace = Pace(3)
    turns: list[list[int]] = [[]]

    async def caller(number: int) -> None:
        await pace.turn()
        turns[-1].append(number)

    callers = [asyncio.create_task(caller(number)) for number in range(11)]
    callers[4].cancel()
    while not all(each.done() for each in callers):
        await asyncio.sleep(0)
        turns.append([])
    assert [number for turn in turns for number in turn] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert max(map(len, turns)) == 3


async def test_a_caller_by_itself_does_not_wait() -> None:
    pace = Pace(1)
    for _ in range(3):
        asked = pace.turn()
        try:
            asked.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waits")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
