"""The virtual clock and its fibers: what runs when, and what an end leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest
from greenlet import GreenletExit

from quafka_loop import clock, threads
from tests.support.virtual.hub import BEGIN, EPOCH, Hub, Node, NothingLeftError
from tests.support.virtual.installed import installed
from tests.support.virtual.loop import RealResourceError, VirtualLoop
from tests.support.virtual.network import Network


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    with installed(made, Network(made)):
        yield made
        made.end()


def test_the_clock_jumps_to_the_next_timer_and_only_then(hub: Hub) -> None:
    assert (hub.monotonic(), hub.time()) == (BEGIN, EPOCH)
    clock.sleep(3600.0)
    assert (hub.monotonic(), hub.time()) == (BEGIN + 3600, EPOCH + 3600)
    clock.sleep(0.0)
    clock.sleep(-1.0)
    assert hub.monotonic() == BEGIN + 3600


def test_readings_of_the_fine_clock_take_time(hub: Hub) -> None:
    first, second = clock.perf_counter(), clock.perf_counter()
    assert second - first == pytest.approx(1e-6)
    assert hub.monotonic() == BEGIN


def test_timers_of_one_moment_are_called_in_order(hub: Hub) -> None:
    called: list[str] = []
    hub.call_at(BEGIN + 2, called.append, "late")
    hub.call_at(BEGIN + 1, called.append, "first")
    hub.call_at(BEGIN + 1, called.append, "second")
    hub.call_at(BEGIN + 1, called.append, "cancelled").cancel()
    clock.sleep(1.5)
    assert called == ["first", "second"]
    clock.sleep(1.0)
    assert called == ["first", "second", "late"]


def test_fibers_run_one_at_a_time_until_they_block(hub: Hub) -> None:
    seen: list[str] = []

    def work(name: str, seconds: float) -> None:
        seen.append(f"{name} begins")
        clock.sleep(seconds)
        seen.append(f"{name} ends")

    hub.spawn(lambda: work("a", 2.0), "a")
    hub.spawn(lambda: work("b", 1.0), "b")
    assert seen == []
    clock.sleep(3.0)
    assert seen == ["a begins", "b begins", "b ends", "a ends"]


def test_an_early_wake_voids_the_timer(hub: Hub) -> None:
    fiber = hub.current
    hub.call_later(1.0, hub.wake, fiber)
    assert hub.block(BEGIN + 5)
    assert hub.monotonic() == BEGIN + 1
    assert not hub.block(BEGIN + 10)
    assert hub.monotonic() == BEGIN + 10


def test_a_wait_that_nothing_can_end_is_an_error(hub: Hub) -> None:
    with pytest.raises(NothingLeftError):
        hub.block()
    clock.sleep(1.0)
    assert hub.monotonic() == BEGIN + 1


def test_the_end_lets_fibers_clean_up_and_block_no_more(hub: Hub) -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            clock.sleep(10.0)
        finally:
            seen.append("cleans up")
            clock.sleep(1.0)
            seen.append("blocks")

    hub.spawn(work, "work")
    clock.sleep(1.0)
    hub.end()
    assert seen == ["cleans up"]
    with pytest.raises(GreenletExit):
        clock.sleep(1.0)


@pytest.mark.parametrize("dies", [True, False])
def test_nodes_that_are_killed_or_paused_run_nothing(hub: Hub, dies: bool) -> None:
    node, seen = Node("n"), list[float]()

    def work() -> None:
        try:
            for _ in range(3):
                clock.sleep(1.0)
                seen.append(hub.monotonic() - BEGIN)
        finally:
            seen.append(-1.0)

    hub.spawn(work, "work", node)
    clock.sleep(1.5)
    assert seen == [1.0]
    if dies:
        hub.kill(node)
    else:
        hub.pause(node)
    clock.sleep(8.5)
    assert seen == [1.0]
    hub.resume(node)
    clock.sleep(5.0)
    assert seen == ([1.0] if dies else [1.0, 10.0, 11.0, -1.0])


def test_a_node_has_a_wall_clock_of_its_own(hub: Hub) -> None:
    node, seen = Node("n"), list[float]()
    node.skew = 60.0
    hub.spawn(lambda: seen.extend((clock.time(), clock.monotonic())), "work", node)
    clock.sleep(1.0)
    assert seen == [EPOCH + 60, BEGIN]
    assert clock.time() == EPOCH + 1


def _order(seed: int) -> list[int]:
    """In which order ten fibers and ten timers of one moment run."""
    hub, seen = Hub(Random(seed)), list[int]()
    with installed(hub, Network(hub)):
        for number in range(10):
            hub.spawn(lambda number=number: seen.append(number), "work")  # type: ignore[misc]
            hub.call_later(1.0, seen.append, 10 + number)
        clock.sleep(2.0)
        hub.end()
    return seen


def test_a_seed_decides_the_order() -> None:
    assert _order(1) == _order(1)
    assert _order(1) != _order(2)
    assert sorted(_order(1)) == [*range(20)]
    assert _order(1)[:10] != [*range(10)], "it is shuffled"


# --- loops ------------------------------------------------------------------------------------


async def test_a_test_is_on_a_virtual_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    began = loop.time()
    await asyncio.sleep(86_400)
    assert loop.time() - began == pytest.approx(86_400)


async def test_a_loop_that_spins_lets_time_pass() -> None:
    loop = asyncio.get_running_loop()
    over = loop.time() + 0.01
    while loop.time() < over:
        await asyncio.sleep(0)


async def test_what_arrives_does_not_wake_a_callback_that_blocks() -> None:
    loop, arrived = asyncio.get_running_loop(), list[float]()

    def arrive() -> None:
        clock.sleep(1.0)
        loop.call_soon_threadsafe(lambda: arrived.append(loop.time() - BEGIN))

    threads.Thread(target=arrive).start()
    clock.sleep(5.0)
    await asyncio.sleep(0)
    assert arrived == [5.0]


async def test_nothing_of_the_system_can_be_waited_for() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(RealResourceError):
        loop.add_reader(0, print)
    with pytest.raises(RealResourceError):
        loop.add_signal_handler(15, print)
