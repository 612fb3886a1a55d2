"""Parties that all have more to do than there is time share the turns of the loop."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from quafka_loop import clock, sockets
from quafka_loop.fair_turns import QUANTUM_SECONDS, FairTurns


def shared() -> FairTurns:
    turns = FairTurns()
    turns.shared = True
    return turns


async def test_a_party_with_little_to_do_waits_for_one_quantum() -> None:
    turns, done = shared(), [0, 0]

    def flood() -> None:
        done[0] += 1
        clock.sleep(QUANTUM_SECONDS / 4)

    def modest() -> None:
        done[1] += 1

    for _ in range(400):
        turns.run("flood", flood)
    assert done[0] < 20
    before = done[0]
    assert turns.run("modest", modest)
    await asyncio.sleep(0)
    assert turns.run("modest", modest)
    assert done[1] == 2
    assert done[0] - before <= 5
    async with asyncio.timeout(10):
        while done[0] < 400:
            await asyncio.sleep(0)
    assert turns.deferred >= 380


async def test_work_of_a_party_keeps_its_order() -> None:
    turns, done = shared(), list[int]()

    def work(number: int) -> None:
        done.append(number)
        clock.sleep(QUANTUM_SECONDS / 2)
        if number == 3:
            turns.defer("a", lambda: done.append(99))

    for number in range(10):
        turns.run("a", lambda number=number: work(number))  # type: ignore[misc]
    async with asyncio.timeout(10):
        while len(done) < 11:
            await asyncio.sleep(0)
    assert done == [*range(10), 99]


async def test_all_who_wait_have_the_same_time() -> None:
    turns = shared()
    used = dict.fromkeys("abc", 0)
    stop = False

    def again(party: str) -> None:
        clock.sleep(QUANTUM_SECONDS / 10)
        used[party] += 1
        if not stop:
            turns.defer(party, lambda: again(party))

    for party in used:
        turns.defer(party, lambda party=party: again(party))  # type: ignore[misc]
    until = clock.monotonic() + 0.3
    while clock.monotonic() < until:
        await asyncio.sleep(0)
    stop = True
    while turns._waiting:
        await asyncio.sleep(0)
    assert max(used.values()) < 3 * min(used.values())


async def test_a_part_of_what_runs_need_not_wait() -> None:
    turns, done = shared(), list[str]()

    def outer() -> None:
        assert turns.run("a", lambda: done.append("inner"))
        done.append("outer")

    turns.defer("a", outer)
    turns.defer("a", lambda: done.append("next"))
    while len(done) < 3:
        await asyncio.sleep(0)
    assert done == ["inner", "outer", "next"]


async def test_a_party_alone_is_not_held_back() -> None:
    turns, done = FairTurns(), list[int]()

    def work(number: int) -> None:
        clock.sleep(QUANTUM_SECONDS / 2)
        done.append(number)

    for number in range(10):
        assert turns.run("a", partial(work, number))
    assert done == [*range(10)]
    assert turns.deferred == 0


async def test_what_arrives_while_a_party_has_its_quantum_is_read_before_the_next() -> None:
    turns, seen = shared(), list[str]()
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()

    def read() -> None:
        seen.append(receiver.recv(10).decode())
        arrived.set()

    def work() -> None:
        if not arrived.is_set():
            seen.append("work")
            if len(seen) == 2:
                sender.send(b"x")
            clock.sleep(QUANTUM_SECONDS)
            turns.defer("a", work)

    receiver, sender = (sockets.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with receiver, sender:
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        loop.add_reader(receiver, read)
        turns.defer("a", work)
        async with asyncio.timeout(10):
            await arrived.wait()
        loop.remove_reader(receiver)
    assert seen == ["work", "work", "x"]
