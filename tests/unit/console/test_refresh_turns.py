"""Open pages are refreshed in turns, which take a share of the time."""

from __future__ import annotations

import asyncio

import pytest

from quafka_console.data.refresh_turns import RefreshTurns
from quafka_loop import clock


async def test_many_pages_together_take_a_share_of_the_time() -> None:
    turns = RefreshTurns(share=0.1)
    began, refreshed = clock.monotonic(), [0] * 20

    async def page(number: int) -> None:
        while clock.monotonic() - began < 1_000:
            async with turns.turn():
                await asyncio.sleep(0.5)
            refreshed[number] += 1
            await asyncio.sleep(5)

    await asyncio.gather(*(page(number) for number in range(20)))
    assert max(refreshed) - min(refreshed) <= 1, "each has its turn"
    assert 195 <= sum(refreshed) <= 225, "half a second each, a tenth of 1,000 s"


async def test_one_page_does_not_wait() -> None:
    turns = RefreshTurns(share=0.1)
    for _ in range(3):
        await asyncio.sleep(5)
        began = clock.monotonic()
        async with turns.turn():
            await asyncio.sleep(0.1)
        assert clock.monotonic() - began == pytest.approx(0.1)


async def test_a_page_that_is_closed_or_fails_gives_its_turn_back() -> None:
    turns = RefreshTurns()
    with pytest.raises(ValueError, match="broken"):
        async with turns.turn():
            raise ValueError("broken")
    held = asyncio.Event()

    async def close_while_reading() -> None:
        async with turns.turn():
            held.set()
            await asyncio.sleep(60)

    closing = asyncio.create_task(close_while_reading())
    await held.wait()
    closing.cancel()
    async with turns.turn():
        pass
