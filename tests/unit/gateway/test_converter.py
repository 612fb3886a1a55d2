"""The thread for message sets: orgs take turns, and one org's conversions keep their order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quafka_gateway.converter import Converter
from quafka_loop.log_context import CURRENT


@dataclass(frozen=True)
class _Request:
    party: int

    def log_fields(self) -> dict[str, str]:
        return {}


async def test_an_org_s_conversion_waits_for_one_of_another_org_at_most() -> None:
    converter, ran = Converter(), list[tuple[int, int]]()

    async def convert(org: int, number: int) -> None:
        CURRENT.set(_Request(org))
        await converter.run(lambda: ran.append((org, number)))

    attack = [asyncio.create_task(convert(1, number)) for number in range(20)]
    await asyncio.gather(*attack, asyncio.create_task(convert(2, 0)))
    assert ran.index((2, 0)) <= 1
    assert [number for org, number in ran if org == 1] == list(range(20))


async def test_a_conversion_that_fails_or_is_cancelled_ends_its_turn() -> None:
    converter = Converter()
    failing = asyncio.create_task(converter.run(lambda: 1 // 0))
    cancelled = asyncio.create_task(converter.run(lambda: 2))
    last = asyncio.create_task(converter.run(lambda: 3))
    await asyncio.sleep(0)
    cancelled.cancel()
    results = await asyncio.gather(failing, cancelled, last, return_exceptions=True)
    assert [type(each) for each in results] == [ZeroDivisionError, asyncio.CancelledError, int]
