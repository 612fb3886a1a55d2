"""Deadlines share one timer, pass in order, and never early."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

from quafka_loop import clock
from quafka_loop.deadlines import Deadlines
from quafka_loop.garbage import ignore


async def test_they_pass_in_order_and_not_early() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    begun = loop.time()
    passed: list[tuple[float, float]] = []
    done = asyncio.Event()
    for delay in (0.3, 0.02, 0.11, 0.2):
        deadlines.add(begun + delay, lambda d=delay: passed.append((d, loop.time() - begun)))  # type: ignore[misc]
    deadlines.add(begun + 0.4, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert [delay for delay, _ in passed] == [0.02, 0.11, 0.2, 0.3]
    assert all(after >= delay for delay, after in passed)


class _ExactLoop:
    """A loop whose timers fire at their very time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self._timers.append((when, callback))
        return Mock(spec=asyncio.TimerHandle)

    def turn(self) -> None:
        self.now, callback = self._timers.pop(0)
        callback()


def test_one_whose_time_rounds_below_its_tick_passes_at_once() -> None:
    loop, passed = _ExactLoop(), list[str]()
    deadlines = Deadlines(cast("Any", loop), 0.05)
    assert int(43 * 0.05 / 0.05) == 42
    deadlines.add(42.5 * 0.05, lambda: passed.append("once"))
    loop.turn()
    assert passed == ["once"]


async def test_a_cancelled_deadline_does_not_pass() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    passed: list[str] = []
    done = asyncio.Event()
    first = deadlines.add(loop.time(), lambda: passed.append("first"))
    deadlines.add(loop.time() + 0.1, done.set)
    first.cancel()
    first.cancel()
    await asyncio.wait_for(done.wait(), 10)
    assert passed == []


async def test_a_callback_may_cancel_and_add_others() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    done = asyncio.Event()
    when = loop.time()
    passed: list[int] = []
    both = [deadlines.add(when, lambda n=n: stop(n)) for n in range(2)]  # type: ignore[misc]

    def stop(number: int) -> None:
        passed.append(number)
        both[1 - number].cancel()
        deadlines.add(loop.time(), done.set)

    await asyncio.wait_for(done.wait(), 10)
    assert len(passed) == 1


async def test_closing_cancels_all() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    passed: list[int] = []
    deadlines.add(loop.time(), lambda: passed.append(1))
    deadlines.close()
    await asyncio.sleep(0.15)
    assert passed == []


async def test_a_shorter_tick_is_less_late() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop, tick=0.001)
    done = asyncio.Event()
    due = loop.time() + 0.0305
    passed: list[float] = []
    deadlines.add(due, lambda: passed.append(loop.time()))
    deadlines.add(loop.time() + 0.1, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert passed[0] >= due


async def test_cancelled_deadlines_do_not_each_wake_the_loop() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop, tick=0.001)
    armed: list[float] = []
    call_at = loop.call_at

    def count(when: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        armed.append(when)
        return call_at(when, *args, **more)

    loop.call_at = count  # type: ignore[method-assign, assignment]
    begun = loop.time()
    for number in range(1_000):
        deadlines.add(begun + 0.02 + number / 1_000, asyncio.Event().set).cancel()
    done = asyncio.Event()
    deadlines.add(begun + 0.05, done.set)
    await done.wait()
    assert len(armed) < 20, "the first bucket, the first one that is not empty, ends of slices"


async def test_many_that_pass_together_take_several_turns() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    passed, turns = 0, 0
    when = loop.time()

    def slow() -> None:
        nonlocal passed
        passed += 1
        end = clock.perf_counter() + 0.0005
        while clock.perf_counter() < end:
            pass

    last = [deadlines.add(when, slow) for _ in range(40)]
    for each in last[30:]:
        each.cancel()
    while passed < 30:
        turns += passed > 0
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert passed == 30
    assert turns >= 5


async def test_one_that_fails_does_not_hold_up_the_others() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    done = asyncio.Event()

    def fail() -> None:
        raise ValueError

    deadlines.add(loop.time(), fail)
    deadlines.add(loop.time(), fail)
    deadlines.add(loop.time() + 0.1, done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert len(errors) == 2


async def test_buckets_of_operations_that_have_ended_are_not_kept() -> None:
    loop = asyncio.get_running_loop()
    deadlines, held = Deadlines(loop), list[dict[Any, None]]()
    begun = loop.time()
    passed: list[int] = []
    kept = deadlines.add(begun + 30, lambda: passed.append(1))
    for number in range(1_000):
        ended = deadlines.add(begun + 60 + number, ignore)
        ended.cancel()
        held.append(ended.bucket)
    referred = sum(sys.getrefcount(each) > 3 for each in held)  # the list, the loop, the call
    assert referred <= 100
    assert kept.bucket
    await asyncio.sleep(31)
    assert passed == [1]
    again = deadlines.add(begun + 60.0, lambda: passed.append(2))  # in a bucket that was dropped
    await asyncio.sleep(30)
    assert passed == [1, 2]
    assert not again.bucket
