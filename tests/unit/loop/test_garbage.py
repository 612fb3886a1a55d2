"""Searches for garbage: when they happen, and which of them are complete."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncGenerator, Iterator

import pytest

from quafka_loop.garbage import Garbage, search, search_survivors


class _Object:
    pass


MANY = 100_000
"""Objects that are more than go without a search of their survivors."""


@pytest.fixture(autouse=True)
def _nothing_stays_aside() -> Iterator[None]:
    gc.collect()  # garbage of earlier tests would make the next search complete
    yield
    gc.unfreeze()


@contextlib.asynccontextmanager
async def searching() -> AsyncGenerator[None]:
    task = asyncio.create_task(search_survivors())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_python_decides_again_afterwards() -> None:
    before = gc.get_threshold(), len(gc.callbacks)
    async with searching():
        newest, between, all_objects = gc.get_threshold()
        assert newest * (between + 1) == 12_000
        assert all_objects > 1_000_000
    assert (gc.get_threshold(), len(gc.callbacks)) == before


async def test_survivors_are_searched_once_there_are_many_and_set_aside() -> None:
    async with searching():
        aside = gc.get_freeze_count()
        few = [_Object() for _ in range(MANY // 10)]
        await asyncio.sleep(1)
        assert gc.get_freeze_count() == aside
        many = [_Object() for _ in range(MANY)]
        await asyncio.sleep(1)
        assert gc.get_freeze_count() > aside + MANY // 2
        del few, many


async def test_objects_that_are_freed_at_once_lead_to_no_search() -> None:
    async with searching():
        aside = gc.get_freeze_count()
        for _ in range(MANY):
            _Object()
        await asyncio.sleep(1)
        assert gc.get_freeze_count() == aside


def test_what_was_set_aside_is_searched_after_an_hour() -> None:
    garbage = Garbage(1_000_000, 100.0)
    assert not garbage.is_complete_due(3_699.0)
    assert garbage.is_complete_due(3_700.0)
    garbage.searched(1_000_000, 0, 3_700.0, complete=True)
    assert not garbage.is_complete_due(3_700.0)


@pytest.mark.parametrize(("blocks", "much"), [(50_000, 10_000), (1_000_000, 100_000)])
def test_what_was_set_aside_is_searched_earlier_where_there_is_garbage(
    blocks: int, much: int
) -> None:
    garbage = Garbage(blocks, 0.0)
    garbage.searched(blocks, much - 1, 0.0, complete=False)
    assert not garbage.is_complete_due(0.0)
    garbage.searched(blocks, 1, 0.0, complete=False)
    assert garbage.is_complete_due(0.0)


def _seconds_until_complete(garbage: Garbage, now: float) -> int:
    return next(each for each in range(100_000) if garbage.is_complete_due(now + each))


def test_complete_searches_that_find_little_become_rare() -> None:
    garbage = Garbage(1_000_000, 0.0)
    now = 0.0
    waited: list[int] = []
    for _ in range(10):
        waited.append(_seconds_until_complete(garbage, now))
        now += waited[-1]
        garbage.searched(1_000_000, 100, now, complete=True)
    assert waited[:4] == [3_600, 7_200, 14_400, 28_800]
    assert waited[-1] == 86_400
    garbage.searched(1_000_000, 10_000, now, complete=True)
    assert _seconds_until_complete(garbage, now) == 3_600


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


async def test_a_complete_search_finds_what_was_set_aside() -> None:
    garbage = Garbage(10_000_000, asyncio.get_running_loop().time())
    kept = _Cycle()
    alive = weakref.ref(kept)
    search(garbage)
    del kept
    search(garbage)
    assert alive() is not None
    await asyncio.sleep(3_600)
    search(garbage)
    assert alive() is None
