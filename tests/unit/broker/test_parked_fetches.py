"""Waits of parked fetches: what wakes them, and what remains of them."""

from __future__ import annotations

import asyncio
import sys

from quafka_broker.partitions.parked_fetches import ParkedFetches, WaitingFetch
from quafka_loop import clock
from quafka_loop.eager_task import EagerTask
from quafka_loop.slices import SLICE_SECONDS
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


async def test_a_timer_that_fires_before_the_deadline_ends_the_wait() -> None:
    """By a rounding error; here by more. No other timer would end the wait."""
    fetches = ParkedFetches()
    with fetches.park([A], soon(0.02)) as parked:
        parked.deadline += 1.0
        assert await parked.changed() == set()
        assert parked.over


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


async def test_a_change_continues_the_fetch_in_the_same_call() -> None:
    fetches = ParkedFetches()
    with fetches.park([A, B], soon()) as parked:
        waiting = EagerTask(parked.changed())
        assert not waiting.done()
        fetches.wake([A, B])
        assert waiting.result() == {A, B}, "one wake-up for both partitions"


async def test_a_woken_fetch_may_park_again_and_wake_others() -> None:
    fetches = ParkedFetches()
    order: list[str] = []

    async def first() -> None:
        with fetches.park([A], soon()) as parked:
            await parked.changed()
            fetches.wake([B])
            order.append("first")
            assert await parked.changed() == {A}
            order.append("first again")

    async def second() -> None:
        with fetches.park([B], soon()) as parked:
            await parked.changed()
            order.append("second")

    waiting = [EagerTask(first()), EagerTask(second())]
    fetches.wake([A])
    assert order == ["first", "second"]
    fetches.wake([A])
    assert order == ["first", "second", "first again"]
    assert all(task.done() for task in waiting)
    assert len(fetches) == 0


async def test_a_fetch_that_is_cancelled_while_it_is_woken_leaves_nothing() -> None:
    fetches = ParkedFetches()

    async def wait() -> None:
        with fetches.park([A], soon()) as parked:
            await parked.changed()

    async def cancel_the_other() -> None:
        with fetches.park([A], soon()) as parked:
            await parked.changed()
            for task in waiting:
                task.cancel()

    waiting = [EagerTask(wait()) for _ in range(2)]
    killer = EagerTask(cancel_the_other())
    fetches.wake([A])
    await asyncio.gather(killer, *waiting, return_exceptions=True)
    assert len(fetches) == fetches.partitions == 0


async def test_many_woken_fetches_do_not_hold_up_the_loop() -> None:
    fetches = ParkedFetches()
    turns: list[float] = []
    done = 0

    async def wait() -> None:
        nonlocal done
        with fetches.park([A], soon()) as parked:
            await parked.changed()
            clock.sleep(SLICE_SECONDS / 4)
            done += 1

    waiting = [EagerTask(wait()) for _ in range(40)]
    fetches.wake([A])
    assert 1 <= done <= 8, "a slice, not all of them"
    while done < len(waiting):
        turns.append(done)
        await asyncio.sleep(0)
    assert len(turns) >= 4
    assert all(task.done() for task in waiting)


async def test_waits_end_together_and_not_early() -> None:
    fetches = ParkedFetches()
    loop = asyncio.get_running_loop()

    async def wait(seconds: float) -> float:
        until = soon(seconds)
        with fetches.park([A], until) as parked:
            assert await parked.changed() == set()
        return loop.time() - until

    late = await asyncio.gather(*(EagerTask(wait(0.03 + n / 10_000)) for n in range(20)))
    assert min(late) >= 0.0
    assert len(fetches) == 0


async def test_the_cost_of_a_wake_up_does_not_depend_on_the_number_of_parked_fetches() -> None:
    fetches = ParkedFetches()
    looked = 0

    async def wait(number: int) -> None:
        nonlocal looked
        with fetches.park([topic_id(f"t{number}")], soon()) as parked:
            while not parked.over:
                await parked.changed()
                looked += 1

    waiting = [EagerTask(wait(number)) for number in range(1_000)]
    fetches.wake([topic_id("t7")])
    assert looked == 1
    fetches.drain()
    while not all(task.done() for task in waiting):
        await asyncio.sleep(0)


async def test_a_wait_that_is_over_refers_to_nothing_that_refers_to_it() -> None:
    fetches = ParkedFetches()
    parked = fetches.park([A], soon())
    alone = sys.getrefcount(parked)
    with parked:
        assert sys.getrefcount(parked) > alone
    assert sys.getrefcount(parked) == alone
