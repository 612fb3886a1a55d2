"""The schedule of searches for garbage."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

from quafka_loop.garbage import Garbage, _search, collect_when_idle


def test_it_waits_for_the_end_of_work_that_makes_many_objects() -> None:
    garbage = Garbage()
    garbage.searched(1_000_000)
    assert not garbage.is_due(1_000_000, 9)  # little work was done
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
    newest, between, all_objects = gc.get_threshold()
    assert newest * (between + 1) == 12_000
    assert all_objects > 1_000_000
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert gc.get_threshold() == before


def test_where_survivors_are_set_aside_it_does_not_wait() -> None:
    garbage = Garbage(sets_aside=True)
    garbage.searched(1_000_000)
    assert garbage.is_due(9_000_000, 50)


def test_what_was_set_aside_is_searched_after_an_hour() -> None:
    garbage = Garbage(sets_aside=True)
    for _ in range(3_599):
        garbage.is_due(1_000_000, 0)
    assert not garbage.is_complete_due()
    garbage.is_due(1_000_000, 0)
    assert garbage.is_complete_due()
    garbage.searched(1_000_000, complete=True)
    assert not garbage.is_complete_due()


def test_what_was_set_aside_is_searched_earlier_where_there_is_garbage() -> None:
    for blocks, much in ((50_000, 10_000), (1_000_000, 100_000)):
        garbage = Garbage(sets_aside=True)
        garbage.searched(blocks, much - 1)
        assert not garbage.is_complete_due()
        garbage.searched(blocks, 1)
        assert garbage.is_complete_due()


def _seconds_until_complete(garbage: Garbage) -> int:
    for second in range(100_000):
        if garbage.is_complete_due():
            return second
        garbage.is_due(1_000_000, 0)
    raise AssertionError("never")


def test_complete_searches_that_find_little_become_rare() -> None:
    garbage = Garbage(sets_aside=True)
    waited: list[int] = []
    for _ in range(10):
        waited.append(_seconds_until_complete(garbage))
        garbage.searched(1_000_000, 100, complete=True)
    assert waited[:4] == [3_600, 7_200, 14_400, 28_800]
    assert waited[-1] == 86_400
    garbage.searched(1_000_000, 10_000, complete=True)
    assert _seconds_until_complete(garbage) == 3_600


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_a_complete_search_finds_what_was_set_aside() -> None:
    garbage = Garbage(sets_aside=True)
    kept = _Cycle()
    alive = weakref.ref(kept)
    gc.collect()  # garbage of earlier tests would make the second search complete
    try:
        _search(garbage, sets_aside=True)
        del kept
        _search(garbage, sets_aside=True)
        assert alive() is not None
        for _ in range(3_600):
            garbage.is_due(1_000_000, 0)
        _search(garbage, sets_aside=True)
        assert alive() is None
    finally:
        gc.unfreeze()
