"""The gateway's read lease: while it is valid, what invalidates the cache, and when it is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.fetch import lease as lease_module
from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_gateway.fetch.lease import ReadLease
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp, LeaseChange
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp

RUN = b"r" * 16
"""The broker's incarnation."""
IDS = {"a": b"a" * 16, "b": b"b" * 16}


class Broker:
    """Answers when the test does; `asked` has every op."""

    def __init__(self) -> None:
        self.asked: list[HoldLease] = []
        self.answers: asyncio.Queue[HoldLeaseResp | Exception] = asyncio.Queue()
        self._came = asyncio.Event()

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        self.asked.append(op)
        self._came.set()
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def answer(self, answer: HoldLeaseResp | Exception) -> HoldLease:
        """Answer the op in flight; returns the next one."""
        self._came.clear()
        self.answers.put_nowait(answer)
        await asyncio.wait_for(self._came.wait(), 30)
        return self.asked[-1]


class Gateway:
    """A lease whose clock the test moves, and a cache that knows two topics."""

    def __init__(self) -> None:
        self.now = 100.0
        self.broker = Broker()
        self.cache = FetchCache(1 << 20)
        self.lease = ReadLease(self.broker, self.cache, lambda: self.now)

    def learn(self) -> None:
        """Read both topics."""
        for topic, topic_id in IDS.items():
            self.cache.store(FetchOp(topic, 0, 0, 0, topic_id), FetchOpResp([], 5, 0, 0, 5), 0.0)

    def valid(self) -> bool:
        return self.lease.valid

    def found(self, topic: str) -> CachedPartition | None:
        return self.cache.find(FetchOp(topic, 0, 0, 0))


def held(
    valid_ms: int = 2_000,
    *,
    serial: int = 0,
    changes: list[LeaseChange] | None = None,
    forget: bool = False,
    incarnation: bytes = RUN,
) -> HoldLeaseResp:
    return HoldLeaseResp(
        valid_ms=valid_ms, incarnation=incarnation, serial=serial, changes=changes or [],
        forget=forget,
    )  # fmt: skip


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(lease_module, "_PACE_SECONDS", 0.0)
    monkeypatch.setattr(lease_module, "_RETRY_SECONDS", 0.0)
    made = Gateway()
    yield made
    await made.lease.close()


async def start(gateway: Gateway) -> None:
    """Use the lease, and wait for the first op."""
    gateway.lease.use()
    while not gateway.broker.asked:
        await asyncio.sleep(0)


async def test_it_is_valid_from_the_answer_until_it_has_run_out_since_the_op(
    gateway: Gateway,
) -> None:
    assert not gateway.valid()
    await start(gateway)
    gateway.now += 0.5  # while the op is in flight: the broker's clock began later
    assert not gateway.valid()
    await gateway.broker.answer(held(2_000))
    assert gateway.valid()
    gateway.now = 101.999
    assert gateway.valid()
    gateway.now = 102.0
    assert not gateway.valid()


async def test_each_op_confirms_the_answer_before(gateway: Gateway) -> None:
    await start(gateway)
    first = gateway.broker.asked[0]
    assert (first.incarnation, first.heard) == (b"", -1)
    second = await gateway.broker.answer(held(serial=7))
    assert (second.holder, second.incarnation, second.heard) == (first.holder, RUN, 7)


async def test_a_change_drops_its_partition_only_and_begins_a_generation(gateway: Gateway) -> None:
    await start(gateway)
    await gateway.broker.answer(held())
    gateway.learn()
    generation = gateway.lease.generation
    await gateway.broker.answer(held(serial=1))
    assert gateway.lease.generation == generation
    change = LeaseChange("a", IDS["a"], 0)
    await gateway.broker.answer(held(serial=2, changes=[change]))
    assert gateway.lease.generation == generation + 1
    assert gateway.found("a") is None
    assert gateway.found("b") is not None


@pytest.mark.parametrize("answer", [held(forget=True), held(incarnation=b"s" * 16)])
async def test_forget_and_another_incarnation_clear_the_cache(
    gateway: Gateway, answer: HoldLeaseResp
) -> None:
    await start(gateway)
    await gateway.broker.answer(held())
    gateway.learn()
    generation = gateway.lease.generation
    await gateway.broker.answer(answer)
    assert gateway.lease.generation == generation + 1
    assert gateway.found("a") is gateway.found("b") is None


async def test_an_unavailable_broker_is_asked_again_and_the_lease_runs_out(
    gateway: Gateway,
) -> None:
    await start(gateway)
    await gateway.broker.answer(held(2_000))
    generation = gateway.lease.generation
    await gateway.broker.answer(BrokerUnavailableError("gone"))
    assert gateway.valid()
    assert gateway.lease.generation == generation
    gateway.now += 2.0
    assert not gateway.valid()


async def test_it_is_held_only_while_it_is_used(gateway: Gateway) -> None:
    await start(gateway)
    await gateway.broker.answer(held())
    gateway.now += 5.0
    gateway.broker.answers.put_nowait(held())
    count = len(gateway.broker.asked)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(gateway.broker.asked) == count
    gateway.lease.use()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(gateway.broker.asked) == count + 1


async def test_a_closed_lease_is_invalid(gateway: Gateway) -> None:
    await start(gateway)
    await gateway.broker.answer(held())
    await gateway.lease.close()
    assert not gateway.valid()
