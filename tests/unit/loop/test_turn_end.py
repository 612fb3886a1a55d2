"""Calls at the end of a turn of the loop: before it polls, and without a delay after them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from quafka_loop.turn_end import TurnEnd, turn_end


async def test_it_is_called_after_the_callbacks_of_the_turn_and_before_those_of_the_next() -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    over = asyncio.Event()

    def first() -> None:
        turn_end(loop).call(lambda: seen.append("end"))
        loop.call_soon(seen.append, "next turn")
        loop.call_soon(over.set)
        seen.append("first")

    loop.call_soon(first)
    loop.call_soon(lambda: seen.append("second"))
    await over.wait()
    assert seen == ["first", "second", "end", "next turn"]


async def test_a_call_from_such_a_call_is_made_in_the_next_turn() -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    over = asyncio.Event()

    def once() -> None:
        seen.append("once")
        loop.call_soon(lambda: seen.append("turn"))
        turn_end(loop).call(again)

    def again() -> None:
        seen.append("again")
        over.set()

    turn_end(loop).call(once)
    async with asyncio.timeout(20):
        await over.wait()
    assert seen == ["once", "turn", "again"]


async def test_first_calls_come_before_the_others_and_before_what_they_add_to_them() -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    over = asyncio.Event()

    def first() -> None:
        seen.append("first")
        turn_end(loop).call(lambda: seen.append("added"))
        turn_end(loop).call_first(over.set)

    loop.call_soon(turn_end(loop).call, lambda: seen.append("other"))
    loop.call_soon(turn_end(loop).call_first, first)
    loop.call_soon(loop.call_soon, lambda: seen.append("turn"))
    async with asyncio.timeout(20):
        await over.wait()
    assert seen == ["first", "other", "added", "turn"]


async def test_the_loop_does_not_sleep_over_what_the_calls_left_to_do() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    soon, later = asyncio.Event(), asyncio.Event()
    turn_end(loop).call(lambda: loop.call_soon(soon.set))
    await soon.wait()
    turn_end(loop).call(lambda: loop.call_later(0.01, later.set))
    await later.wait()
    assert loop.time() - began < 5.0


async def test_an_error_is_reported_and_costs_the_others_nothing() -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    over = asyncio.Event()

    def fail() -> None:
        raise ValueError("injected")

    turn_end(loop).call(fail)
    turn_end(loop).call(over.set)
    await over.wait()
    assert str(errors[0]["exception"]) == "injected"


async def test_each_loop_has_one() -> None:
    loop = asyncio.get_running_loop()
    assert turn_end(loop) is turn_end(loop)
    other = asyncio.new_event_loop()
    assert turn_end(other) is not turn_end(loop)
    other.close()


@pytest.mark.parametrize("attributes", [(), ("_selector",)])
def test_with_another_kind_of_loop_it_is_called_in_the_next_turn(attributes: Any) -> None:
    class OtherLoop:
        def __init__(self) -> None:
            self.soon: list[object] = []

        def call_soon(self, callback: object) -> None:
            self.soon.append(callback)

    loop = OtherLoop()
    for name in attributes:
        setattr(loop, name, object())
    TurnEnd(cast(Any, loop)).call(print)
    assert loop.soon == [print]
