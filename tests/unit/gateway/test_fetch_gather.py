"""One fetch over brokers that answer at once, late, by pieces, with an error, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from quafka_gateway.fetch import gather as fetch_gather
from quafka_gateway.fetch.gather import FetchGather
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps


@dataclass
class Broker:
    """Parks fetches as a real broker. `size`: the readable bytes."""

    size: int = 0
    error: int = 0
    unavailable: bool = False
    delay: float = 0.0
    asked: list[FetchOps] = field(default_factory=list)
    cancelled: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def grow(self, size: int) -> None:
        self.size += size
        self.grown.set()

    async def fetch(self, op: FetchOps) -> list[FetchOpResp] | None:
        self.asked.append(op)
        try:
            await asyncio.sleep(self.delay)
            await self._park(op)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.unavailable:
            return None
        return [FetchOpResp([bytes(min(self.size, op.max_bytes))], self.size, self.error)]

    async def _park(self, op: FetchOps) -> None:
        try:
            async with asyncio.timeout(op.max_wait_ms / 1000):
                while (
                    self.size < min(op.min_bytes, op.max_bytes)
                    and not self.error | self.unavailable
                ):
                    self.grown.clear()
                    await self.grown.wait()
        except TimeoutError:
            pass


@dataclass
class Result:
    seconds: float
    sizes: dict[int, int]
    answers: dict[int, list[FetchOpResp]]


async def fetch(
    brokers: list[Broker],
    *,
    wait: float = 5.0,
    min_bytes: int = 1,
    max_bytes: int = 1000,
    gather: FetchGather | None = None,
) -> Result:
    async def ask(broker: int, op: FetchOps) -> list[FetchOpResp] | None:
        return await brokers[broker].fetch(op)

    loop = asyncio.get_running_loop()
    began = loop.time()
    op = FetchOps([FetchOp("t", 0, 0, 1000)], round(wait * 1000), min_bytes, max_bytes)
    answers = await (gather or FetchGather()).fetch(ask, dict.fromkeys(range(len(brokers)), op))
    sizes = {b: sum(map(len, its[0].records)) for b, its in answers.items()}
    await asyncio.sleep(0)  # cancelled tasks run to their end
    return Result(loop.time() - began, sizes, answers)


def later(seconds: float, action: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, action)


async def test_readable_records_are_answered_at_once_and_nothing_is_parked() -> None:
    brokers = [Broker(10), Broker(20)]
    result = await fetch(brokers, min_bytes=30)
    assert result.sizes == {0: 10, 1: 20}
    assert [len(b.asked) for b in brokers] == [1, 1]
    assert result.seconds < 4


async def test_the_first_broker_with_records_ends_the_wait_of_all() -> None:
    brokers = [Broker(), Broker(), Broker()]
    later(0.1, lambda: brokers[1].grow(5))
    result = await fetch(brokers)
    assert result.sizes == {0: 0, 1: 5, 2: 0}
    assert result.answers[0][0].high_watermark == 0
    assert 0.05 <= result.seconds < 4
    assert [b.cancelled for b in brokers] == [1, 0, 1]


async def test_nothing_is_answered_after_max_wait() -> None:
    brokers = [Broker(), Broker()]
    result = await fetch(brokers, wait=0.2)
    assert result.sizes == {0: 0, 1: 0}
    assert 0.1 <= result.seconds < 4
    assert [len(b.asked) for b in brokers] == [2, 2]


async def test_min_bytes_is_over_all() -> None:
    """Neither has enough alone, nor does either's growth make it enough."""
    brokers = [Broker(40), Broker(0)]
    later(0.05, lambda: brokers[0].grow(30))
    later(0.1, lambda: brokers[1].grow(20))
    later(0.15, lambda: brokers[1].grow(10))
    result = await fetch(brokers, min_bytes=100)
    assert result.sizes == {0: 70, 1: 30}
    assert result.seconds < 4


async def test_small_growth_is_not_asked_for_again_and_again() -> None:
    brokers = [Broker(), Broker()]
    for n in range(100):
        later(0.004 * n, lambda b=brokers[n % 2]: b.grow(5))  # type: ignore[misc]
    result = await fetch(brokers, min_bytes=500)
    assert sum(result.sizes.values()) >= 490
    assert sum(len(b.asked) for b in brokers) <= 4 * 10  # halved each time: 500 is 9 halvings


async def test_a_broker_that_counts_more_than_it_returns_does_not_make_it_spin() -> None:
    """Whole batches may be less than the bytes that could be read."""

    class Counts(Broker):
        async def _park(self, op: FetchOps) -> None:
            pass

    brokers = [Counts(10), Broker()]
    result = await fetch(brokers, min_bytes=900)
    assert result.seconds < 4
    assert len(brokers[0].asked) <= 2 * 12


async def test_an_error_is_answered_at_once() -> None:
    brokers = [Broker(), Broker(error=1), Broker()]
    result = await fetch(brokers)
    assert result.answers[1][0].error_code == 1
    assert result.seconds < 4
    parked = [Broker(), Broker()]

    def fail() -> None:
        parked[0].error = 3
        parked[0].grown.set()

    later(0.1, fail)
    result = await fetch(parked)
    assert result.answers[0][0].error_code == 3
    assert result.seconds < 4


async def test_an_unavailable_broker_delays_no_other() -> None:
    brokers = [Broker(unavailable=True), Broker(5)]
    result = await fetch(brokers)
    assert result.sizes == {1: 5}
    assert result.seconds < 4
    brokers = [Broker(unavailable=True), Broker()]
    later(0.1, lambda: brokers[1].grow(5))
    result = await fetch(brokers)
    assert result.sizes == {1: 5}
    assert 0.05 <= result.seconds < 4


async def test_a_broker_that_is_lost_while_it_parks_delays_no_other() -> None:
    brokers = [Broker(), Broker()]

    def leave() -> None:
        brokers[0].unavailable = True
        brokers[0].grown.set()

    later(0.05, leave)
    later(0.15, lambda: brokers[1].grow(5))
    result = await fetch(brokers)
    assert result.sizes == {1: 5}
    assert 0.1 <= result.seconds < 4


async def test_without_any_broker_consumers_do_not_spin() -> None:
    result = await fetch([Broker(unavailable=True), Broker(unavailable=True)], wait=0.2)
    assert result.sizes == {}
    assert result.seconds >= 0.19


async def test_one_response_holds_max_bytes() -> None:
    result = await fetch([Broker(5000), Broker(5000)], max_bytes=1000)
    assert sum(result.sizes.values()) == 1000


async def test_a_slow_one_is_not_waited_for_but_comes_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_gather, "_FIRST_PATIENCE", 0.02)
    brokers, gather = [Broker(5), Broker(7, delay=0.1)], FetchGather()
    results = [await fetch(brokers, gather=gather) for _ in range(4)]
    assert results[0].sizes == {0: 5, 1: 0}
    assert results[0].answers[1] == [FetchOpResp([], high_watermark=-1)]
    assert any(result.sizes == {0: 5, 1: 7} for result in results)


async def test_a_slow_broker_is_waited_for_if_the_others_have_too_little() -> None:
    result = await fetch([Broker(), Broker(7, delay=0.5)], wait=2.0)
    assert result.sizes == {0: 0, 1: 7}


async def test_a_cancelled_fetch_leaves_nothing_parked() -> None:
    brokers = [Broker(), Broker()]
    task = asyncio.create_task(fetch(brokers))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert [b.cancelled for b in brokers] == [1, 1]
