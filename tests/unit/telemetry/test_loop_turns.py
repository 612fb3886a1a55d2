"""The lengths of the event loop's turns."""

from __future__ import annotations

import asyncio

from quafka_loop import clock
from quafka_telemetry.loop_turns import LoopTurns


def run(turns: LoopTurns, *blocking: float) -> None:
    """Run a loop whose turns block for the given seconds."""

    async def block() -> None:
        for seconds in blocking:
            clock.sleep(seconds)
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=turns.new_loop) as runner:
        turns.take_longest()
        runner.run(block())


def test_the_longest_turn_is_known_until_it_is_read() -> None:
    turns = LoopTurns()
    run(turns, 0.01, 0.06, 0.01)
    assert 0.06 <= turns.take_longest() < 5
    assert turns.take_longest() == 0


def test_waiting_is_no_turn() -> None:
    turns = LoopTurns()
    with asyncio.Runner(loop_factory=turns.new_loop) as runner:
        runner.run(asyncio.sleep(0.3))
        waited = turns.histogram.sum
    assert waited < 0.3


def test_turns_are_counted_by_length() -> None:
    turns = LoopTurns()
    for seconds in (0.003, 0.004, 0.03, 20):
        turns.ended(seconds)
    counts = dict(zip((*turns.histogram.bounds, None), turns.histogram.counts, strict=True))
    assert (counts[0.005], counts[0.05], counts[None]) == (2, 1, 1)
    assert turns.histogram.sum == 20.037
    longest = {family.name: family for family in turns.collect()}
    assert [*longest["quafka_loop_longest_turn_seconds"].samples] == [((), 20)]
    assert turns.take_longest() == 0
