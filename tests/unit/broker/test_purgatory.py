"""Who is woken, by what, and what is left behind."""

from __future__ import annotations

import asyncio

from quafka_broker.partitions.purgatory import Parked, Purgatory
from tests.unit.broker.tools import topic_id

A, B, C = topic_id("a"), topic_id("b"), topic_id("c")


def soon(seconds: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_a_change_is_told_to_those_who_wait_for_it() -> None:
    purgatory = Purgatory()
    with purgatory.park([A, B], soon()) as first, purgatory.park([B, C], soon()) as second:
        waiting = [asyncio.create_task(parked.changed()) for parked in (first, second)]
        await asyncio.sleep(0)
        purgatory.wake([A])
        assert await waiting[0] == {A}
        assert not waiting[1].done()
        purgatory.wake([B, A])
        assert await waiting[1] == {B}
        assert await first.changed() == {A, B}
        assert not first.over
    assert len(purgatory) == 0


async def test_no_change_is_missed_between_two_waits() -> None:
    purgatory = Purgatory()
    with purgatory.park([A], soon()) as parked:
        for _ in range(3):
            purgatory.wake([A])
        assert await parked.changed() == {A}
        waiting = asyncio.create_task(parked.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        purgatory.wake([A])
        assert await waiting == {A}


async def test_time_ends_a_wait_and_what_changed_is_still_told() -> None:
    purgatory = Purgatory()
    with purgatory.park([A], soon(0.02)) as parked:
        assert await parked.changed() == set()
        assert parked.over
        purgatory.wake([A])
        assert await parked.changed() == {A}
        assert await parked.changed() == set()
    with purgatory.park([A], soon(-1)) as late:
        assert await late.changed() == set()


async def test_draining_ends_all_waits_those_to_come_too() -> None:
    purgatory = Purgatory()

    async def wait(parked: Parked) -> bool:
        with parked:
            await parked.changed()
        return parked.over

    waiting = [asyncio.create_task(wait(purgatory.park([A, B], soon()))) for _ in range(3)]
    await asyncio.sleep(0)
    purgatory.drain()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await wait(purgatory.park([C], soon()))
    assert len(purgatory) == 0


async def test_one_who_leaves_is_forgotten() -> None:
    purgatory = Purgatory()

    async def wait() -> None:
        with purgatory.park([A, B], soon()) as parked:
            await parked.changed()

    gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert len(purgatory) == 2
    purgatory.wake([A])
    await stays
    assert len(purgatory) == 0
