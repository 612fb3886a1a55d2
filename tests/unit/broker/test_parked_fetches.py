"""Waits of parked fetches: what wakes them, and what remains of them."""

from __future__ import annotations

import asyncio

from quafka_broker.partitions.parked_fetches import ParkedFetches, WaitingFetch
from tests.unit.broker.tools import topic_id

A, B, C = topic_id("a"), topic_id("b"), topic_id("c")


def soon(seconds: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_a_change_wakes_the_fetches_of_its_partition() -> None:
    fetches = ParkedFetches()
    with fetches.park([A, B], soon()) as first, fetches.park([B, C], soon()) as second:
        waiting = [asyncio.create_task(parked.changed()) for parked in (first, second)]
        await asyncio.sleep(0)
        fetches.wake([A])
        assert await waiting[0] == {A}
        assert not waiting[1].done()
        fetches.wake([B, A])
        assert await waiting[1] == {B}
        assert await first.changed() == {A, B}
        assert not first.over
    assert fetches.partitions == 0


async def test_no_change_is_missed_between_two_waits() -> None:
    fetches = ParkedFetches()
    with fetches.park([A], soon()) as parked:
        for _ in range(3):
            fetches.wake([A])
        assert await parked.changed() == {A}
        waiting = asyncio.create_task(parked.changed())
        await asyncio.sleep(0)
        assert not waiting.done()
        fetches.wake([A])
        assert await waiting == {A}


async def test_the_deadline_ends_a_wait_and_keeps_what_changed() -> None:
    fetches = ParkedFetches()
    with fetches.park([A], soon(0.02)) as parked:
        assert await parked.changed() == set()
        assert parked.over
        fetches.wake([A])
        assert await parked.changed() == {A}
        assert await parked.changed() == set()
    with fetches.park([A], soon(-1)) as late:
        assert await late.changed() == set()


async def test_draining_ends_all_waits_and_those_to_come() -> None:
    fetches = ParkedFetches()

    async def wait(parked: WaitingFetch) -> bool:
        with parked:
            await parked.changed()
        return parked.over

    waiting = [asyncio.create_task(wait(fetches.park([A, B], soon()))) for _ in range(3)]
    await asyncio.sleep(0)
    fetches.drain()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await wait(fetches.park([C], soon()))
    assert fetches.partitions == 0


async def test_a_cancelled_fetch_is_removed() -> None:
    fetches = ParkedFetches()

    async def wait() -> None:
        with fetches.park([A, B], soon()) as parked:
            await parked.changed()

    gone, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert fetches.partitions == 2
    fetches.wake([A])
    await stays
    assert fetches.partitions == 0
