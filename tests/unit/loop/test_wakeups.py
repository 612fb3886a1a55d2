"""Many waiters that are woken at once: their order, their slices, and errors."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from quafka_loop import clock
from quafka_loop.slices import SLICE_SECONDS
from quafka_loop.wakeups import Wakeups


async def test_few_waiters_run_within_the_call_and_in_order() -> None:
    called: list[int] = []
    Wakeups().wake(partial(called.append, number) for number in range(5))
    assert called == [0, 1, 2, 3, 4]


async def test_a_waiter_that_wakes_others_is_not_entered_again() -> None:
    wakeups = Wakeups()
    called: list[str] = []

    def outer() -> None:
        wakeups.wake([partial(called.append, "inner")])
        called.append("outer")

    wakeups.wake([outer, partial(called.append, "next")])
    assert called == ["outer", "next", "inner"]


async def test_a_chain_of_wake_ups_is_no_recursion() -> None:
    wakeups = Wakeups()
    left = 20_000

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            wakeups.wake([again])

    wakeups.wake([again])
    while left:
        await asyncio.sleep(0)


async def test_the_rest_runs_in_later_turns_before_waiters_that_are_woken_later() -> None:
    wakeups = Wakeups()
    called: list[int] = []

    def slow(number: int) -> None:
        clock.sleep(SLICE_SECONDS)
        called.append(number)

    wakeups.wake(partial(slow, number) for number in range(3))
    assert called == [0]
    wakeups.wake([partial(called.append, 3)])
    assert called == [0]
    for _ in range(4):
        await asyncio.sleep(0)
    assert called == [0, 1, 2, 3]


async def test_an_error_of_one_waiter_leaves_the_others() -> None:
    wakeups = Wakeups()
    called: list[int] = []

    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wakeups.wake([fail, partial(called.append, 1)])
    await asyncio.sleep(0)
    assert called == [1]
    wakeups.wake([partial(called.append, 2)])
    assert called == [1, 2]
