"""An op that concerns several brokers, split by broker, and the answers joined again.

A *place* is the position of an item, such as a partition or a topic, in the op. The answers are in
the order of the places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from quafka_loop.eager_task import EagerTask

T = TypeVar("T")


def grouped(brokers: Iterable[int]) -> dict[int, list[int]]:
    """The places of each broker, from the broker of each place."""
    places: dict[int, list[int]] = {}
    for place, broker in enumerate(brokers):
        places.setdefault(broker, []).append(place)
    return places


async def spread(
    places: Mapping[int, list[int]], call: Callable[[int, list[int]], Awaitable[list[T]]]
) -> list[T]:
    """Call each broker with its places, all at once: within the call, so that the ops of several
    calls leave in the order of the calls."""
    if len(places) == 1:
        ((broker, its),) = places.items()
        return joined(places, {broker: await call(broker, its)})
    tasks = [EagerTask(_called(call, broker, its)) for broker, its in places.items()]
    return joined(places, dict(zip(places, await asyncio.gather(*tasks), strict=True)))


async def _called(
    call: Callable[[int, list[int]], Awaitable[list[T]]], broker: int, its: list[int]
) -> list[T]:
    return await call(broker, its)


def joined(places: Mapping[int, list[int]], answers: Mapping[int, list[T]]) -> list[T]:
    """The brokers' answers in the order of the places."""
    by_place = {
        place: answer
        for broker, its in places.items()
        for place, answer in zip(its, answers[broker], strict=True)
    }
    return [by_place[place] for place in range(len(by_place))]
