"""Long work takes turns."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from quafka_loop import slices
from quafka_loop.log_context import CURRENT


async def test_one_slice_runs_in_each_turn_of_the_loop() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        pieces = slices.Slices(2)
        for _ in range(6):
            done.append(number)
            await pieces.done()

    tasks = [asyncio.create_task(work(number)) for number in range(10)]
    await asyncio.sleep(0)
    seen = len(done)
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        assert len(done) <= seen + 2
        seen = len(done)
    assert len(done) == 60


async def test_orgs_take_turns_however_much_long_work_each_has() -> None:
    done: list[int] = []

    class Request:
        def __init__(self, org: int) -> None:
            self.party = org

        def log_fields(self) -> dict[str, str]:
            raise AssertionError

    async def work(org: int) -> None:
        CURRENT.set(Request(org))
        for _ in range(5):
            await slices.turn()
            done.append(org)

    await asyncio.gather(*(work(org) for org in [1] * 20 + [2]))
    assert done[:10].count(2) == 5
    assert len(done) == 105


async def test_who_goes_away_holds_nobody_up() -> None:
    first, second = (asyncio.create_task(slices.turn()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await second


async def test_steps_give_their_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)

    def steps() -> Generator[None, None, str]:
        for _ in range(3):
            yield
        return "done"

    assert await slices.in_slices(steps()) == "done"
