"""What concerns several brokers, asked of each of them at a time.

Places are those of the things in the question: partitions, topics. The answers are in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

R = TypeVar("R")


def grouped(brokers: Iterable[int]) -> dict[int, list[int]]:
    """The places by broker, from the broker of each place."""
    places: dict[int, list[int]] = {}
    for place, broker in enumerate(brokers):
        places.setdefault(broker, []).append(place)
    return places


async def spread(
    places: Mapping[int, list[int]], ask: Callable[[int, list[int]], Awaitable[list[R]]]
) -> list[R]:
    """Ask each broker about its places, all at once. A task each, also where it is only one."""
    answers = await asyncio.gather(*(ask(broker, its) for broker, its in places.items()))
    return joined(places, dict(zip(places, answers, strict=True)))


def joined(places: Mapping[int, list[int]], answers: Mapping[int, list[R]]) -> list[R]:
    """The brokers' answers in the order of the places."""
    by_place = {
        place: answer
        for broker, its in places.items()
        for place, answer in zip(its, answers[broker], strict=True)
    }
    return [by_place[place] for place in range(len(by_place))]
