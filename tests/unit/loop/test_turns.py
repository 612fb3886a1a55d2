"""Turns of large answers: bounded, and no org waits for another's."""

from __future__ import annotations

import asyncio

from quafka_loop.turns import OpTurns


async def test_an_org_without_a_turn_waits_for_no_other() -> None:
    turns = OpTurns(2, lambda _org: False)
    hostile = [asyncio.ensure_future(turns.acquire(number, 1)) for number in range(5)]
    await asyncio.sleep(0)
    assert [each.done() for each in hostile] == [True, True, False, False, False]
    await turns.acquire(10, 2)
    await turns.acquire(11, 3)
    second = asyncio.ensure_future(turns.acquire(12, 2))
    await asyncio.sleep(0)
    assert not second.done(), "it has one"
    turns.release(10)
    await second
    for number in (0, 1, 11):
        turns.release(number)
    await asyncio.sleep(0)
    assert hostile[2].done()
    assert not hostile[3].done()
    assert len(turns) == 4


async def test_nobody_is_admitted_while_it_is_full() -> None:
    full = True
    turns = OpTurns(2, lambda _org: full)
    waiting = [asyncio.ensure_future(turns.acquire(number, number)) for number in range(4)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    full = False
    turns.admit()
    await asyncio.gather(*waiting)


async def test_an_org_that_is_full_keeps_no_other_waiting() -> None:
    full = {1}
    turns = OpTurns(2, lambda org: org in full)
    hostile = [asyncio.ensure_future(turns.acquire(number, 1)) for number in range(3)]
    await asyncio.sleep(0)
    await turns.acquire(10, 2)
    await turns.acquire(11, 2)
    assert not any(each.done() for each in hostile)
    full.clear()
    turns.admit()
    await hostile[0]
    await asyncio.sleep(0)
    assert not hostile[1].done(), "both turns are taken, and it has one"
    for number in (10, 11):
        turns.release(number)
    await hostile[1]
    turns.release(0)
    await hostile[2]


async def test_who_gives_up_waits_no_longer() -> None:
    turns = OpTurns(1, lambda _org: False)
    await turns.acquire(0, 1)
    waiting = [asyncio.ensure_future(turns.acquire(number, 1)) for number in (1, 2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    turns.release(1)
    turns.release(0)
    await waiting[1]
    turns.release(2)
    assert len(turns) == 0
