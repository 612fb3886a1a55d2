"""No change outruns a lease: who may serve from memory has heard of it before it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from quafka_broker import leases
from quafka_broker.leases import Leases
from quafka_broker.ops import fetch
from quafka_loop import clock
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp, LeaseChange
from quafka_mesh_ops.ops.records import FetchOp, FetchOps
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import context, running_state

GONE = LeaseChange("t", b"i" * 16)
SECONDS = 0.4
LONG = 400.0
"""Of a lease that no test sees the end of."""


class Gateway:
    """A holder that asks when the test says so."""

    def __init__(self, leases: Leases, name: bytes = b"a") -> None:
        self.leases = leases
        self.name = name
        self.incarnation = b""
        self.heard = -1

    async def ask(self) -> HoldLeaseResp:
        answer = await self.leases.hold(
            1, "peer", HoldLease(self.name, self.incarnation, self.heard)
        )
        self.incarnation, self.heard = answer.incarnation, answer.serial
        return answer


async def change(leases: Leases, done: list[str], what: LeaseChange = GONE) -> None:
    async with leases.changing({1: [what]}):
        done.append("changed")


async def happens_at_once(changing: Coroutine[Any, Any, None]) -> None:
    """Within one turn of the loop."""
    task = asyncio.create_task(changing)
    await asyncio.sleep(0)
    assert task.done()
    await task


async def test_without_holders_a_change_happens_at_once() -> None:
    done: list[str] = []
    await happens_at_once(change(Leases(LONG), done))
    assert done


async def test_a_change_waits_until_the_holder_has_heard_of_it() -> None:
    all_leases, done = Leases(LONG), list[str]()
    gateway = Gateway(all_leases)
    first = await gateway.ask()
    assert first.forget
    assert first.valid_ms == 400_000
    parked = asyncio.create_task(gateway.ask())
    await asyncio.sleep(0)
    changing = asyncio.create_task(change(all_leases, done))
    news = await parked
    assert news.changes == [GONE]
    await asyncio.sleep(0.05)
    assert not done  # told, but it may not have been read yet
    parked = asyncio.create_task(gateway.ask())
    await asyncio.wait_for(changing, 20)
    parked.cancel()


async def test_a_silent_holder_is_waited_for_no_longer_than_its_lease() -> None:
    all_leases, done = Leases(SECONDS), list[str]()
    await Gateway(all_leases).ask()
    began = asyncio.get_running_loop().time()
    await change(all_leases, done)
    assert 0.35 < asyncio.get_running_loop().time() - began < 20


async def test_a_holder_that_never_listens_is_not_given_more_time() -> None:
    all_leases, done = Leases(SECONDS), list[str]()
    gateway = Gateway(all_leases)
    begun = clock.monotonic()
    await gateway.ask()
    changing = asyncio.create_task(change(all_leases, done))
    await asyncio.sleep(0)
    while not changing.done():
        deaf = HoldLease(gateway.name, gateway.incarnation, 0)
        valid_ms = (await all_leases.hold(1, "peer", deaf)).valid_ms
        # Once the lease is over, a turn of the loop may pass before the change is made.
        assert valid_ms == 0 or clock.monotonic() - begun >= SECONDS
        await asyncio.sleep(0.02)
    assert done


async def test_one_whose_lease_ran_out_hears_what_it_missed() -> None:
    all_leases, done = Leases(SECONDS), list[str]()
    gateway = Gateway(all_leases)
    await gateway.ask()
    await change(all_leases, done)  # waits for the end of the lease
    other = LeaseChange("u", b"u" * 16, 3)
    await change(all_leases, done, other)
    answer = await gateway.ask()
    assert (answer.forget, answer.changes, answer.valid_ms) == (False, [GONE, other], 400)


async def test_one_who_missed_too_much_is_told_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_REMEMBERED", 2)
    all_leases, done = Leases(SECONDS), list[str]()
    gateway = Gateway(all_leases)
    await gateway.ask()
    for _ in range(3):
        await change(all_leases, done)
    answer = await gateway.ask()
    assert (answer.forget, answer.changes) == (True, [])


async def test_another_run_of_the_broker_makes_everything_forgotten() -> None:
    gateway = Gateway(Leases(SECONDS))
    await gateway.ask()
    gateway.leases = Leases(SECONDS)
    assert (await gateway.ask()).forget


async def test_leases_of_the_run_before_are_waited_for() -> None:
    all_leases, done = Leases(SECONDS), list[str]()
    all_leases.wait_for_predecessor()
    began = asyncio.get_running_loop().time()
    await change(all_leases, done)
    assert asyncio.get_running_loop().time() - began > 0.35


async def test_a_change_in_another_org_is_neither_told_nor_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_leases, done = Leases(LONG), list[str]()
    gateway = Gateway(all_leases)
    await gateway.ask()

    async def change_another_org() -> None:
        async with all_leases.changing({2: [GONE]}):
            done.append("changed")

    await happens_at_once(change_another_org())
    assert done
    answer = await gateway.ask()
    assert (answer.forget, answer.changes) == (False, [])
    monkeypatch.setattr(leases, "_PARKED_PART", 4_000)
    assert (await gateway.ask()).valid_ms == 400_000


async def test_a_cancelled_change_leaves_nobody_waiting() -> None:
    all_leases, done = Leases(SECONDS), list[str]()
    gateway = Gateway(all_leases)
    await gateway.ask()
    changing = asyncio.create_task(change(all_leases, done))
    await asyncio.sleep(0)
    changing.cancel()
    await asyncio.wait({changing})
    await gateway.ask()
    assert not done
    assert all_leases.stamp() is not None


async def test_what_is_read_while_something_changes_may_not_be_kept() -> None:
    async with running_state(MemoryDisk()) as state:
        await state.topics.create(1, "t", 1)
        op = FetchOps([FetchOp("t", 0, 0, 100)])
        assert (await fetch.handle(state, context(), op)).leased
        async with state.leases.changing({1: [LeaseChange("another", b"")]}):
            assert not (await fetch.handle(state, context(), op)).leased
        stamp = state.leases.stamp()
        async with state.leases.changing({1: [LeaseChange("another", b"")]}):
            pass
        assert not state.leases.unchanged_since(stamp)


async def test_an_answer_tells_the_id_of_a_topic_that_was_named() -> None:
    async with running_state(MemoryDisk()) as state:
        topic, _ = await state.topics.create(1, "t", 1)
        named = await fetch.handle(state, context(), FetchOps([FetchOp("t", 0, 0, 100)]))
        assert named.partitions[0].topic_id == topic.uuid
        by_id = FetchOps([FetchOp("", 0, 0, 100, topic.uuid)])
        assert (await fetch.handle(state, context(), by_id)).partitions[0].topic_id == b""
