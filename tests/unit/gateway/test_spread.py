"""Ops that concern several brokers: split by broker, and the answers in the order of the op."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.cluster.spread import grouped, joined, spread
from quafka_loop.eager_task import DirectFuture, EagerTask


def test_places_are_grouped_by_broker() -> None:
    assert grouped([1, 0, 1, -1]) == {1: [0, 2], 0: [1], -1: [3]}
    assert grouped([]) == {}


def test_answers_are_joined_in_the_order_of_the_places() -> None:
    assert joined({1: [0, 2], 0: [1]}, {0: ["b"], 1: ["a", "c"]}) == ["a", "b", "c"]
    assert joined({}, {}) == []


def test_a_broker_must_answer_for_each_of_its_places() -> None:
    with pytest.raises(ValueError, match="shorter"):
        joined({0: [0, 1]}, {0: ["a"]})


async def test_brokers_are_called_at_the_same_time() -> None:
    both = asyncio.Barrier(2)

    async def call(broker: int, places: list[int]) -> list[str]:
        async with asyncio.timeout(5):
            await both.wait()
        return [f"{broker}:{place}" for place in places]

    assert await spread({1: [0, 2], 0: [1]}, call) == ["1:0", "0:1", "1:2"]


async def test_a_single_broker_is_called_after_the_brokers_of_earlier_calls() -> None:
    called: list[str] = []

    async def two(broker: int, places: list[int]) -> list[None]:
        called.append(f"two {broker}")
        return [None for _ in places]

    async def one(broker: int, places: list[int]) -> list[None]:
        called.append("one")
        return [None for _ in places]

    first = EagerTask(spread({0: [0], 1: [1]}, two))
    second = EagerTask(spread({0: [0]}, one))
    assert called == ["two 0", "two 1", "one"]
    assert second.done()
    assert await first == [None, None]


async def test_a_cancelled_call_cancels_its_brokers() -> None:
    held: list[DirectFuture[list[int]]] = []

    async def call(_broker: int, _places: list[int]) -> list[int]:
        held.append(DirectFuture())
        return await held[-1]

    task = EagerTask(spread({0: [0], 1: [1]}, call))
    assert len(held) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(each.cancelled() for each in held)


async def test_the_error_of_one_broker_is_raised() -> None:
    async def call(broker: int, places: list[int]) -> list[int]:
        if broker:
            raise RuntimeError("broken")
        return places

    with pytest.raises(RuntimeError, match="broken"):
        await spread({0: [0], 1: [1]}, call)
