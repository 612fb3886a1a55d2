"""When all objects are searched for garbage."""

from __future__ import annotations

import asyncio
import contextlib
import gc

from quafka_telemetry.garbage import Garbage, collect_when_idle


def test_it_waits_for_the_end_of_work_that_makes_many_objects() -> None:
    garbage = Garbage()
    garbage.searched(1_000_000)
    assert not garbage.is_due(1_000_000, 9)  # hardly anything has happened
    assert not garbage.is_due(2_000_000, 50)
    assert garbage.is_due(1_010_000, 50)


def test_it_does_not_wait_for_ever() -> None:
    garbage = Garbage()
    garbage.searched(1_000_000)
    due = [garbage.is_due(9_000_000, 50) for _ in range(30)]
    assert due == [False] * 29 + [True]
    garbage.searched(9_000_000)
    assert garbage.is_due(9_000_000, 10)


async def test_python_decides_again_afterwards() -> None:
    before = gc.get_threshold()
    task = asyncio.create_task(collect_when_idle())
    await asyncio.sleep(0)
    assert gc.get_threshold()[:2] == before[:2]
    assert gc.get_threshold()[2] > 1_000_000
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert gc.get_threshold() == before
