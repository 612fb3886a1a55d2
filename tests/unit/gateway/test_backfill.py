"""The backfill lane beside live traffic: it rests as long as it works, and takes small bites."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.fetch import backfill
from quafka_gateway.fetch.backfill import CHUNK, LARGEST_WINDOW, Backfill
from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_gateway.fetch.lease import ReadLease
from quafka_gateway.fetch.produce_acks import ProduceAcks
from quafka_gateway.memory import ResponseMemory
from quafka_mesh_ops.ops.leases import HoldLease, HoldLeaseResp
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
)
from quafka_telemetry.tracing import TraceContext, Tracer

READ_SECONDS = 0.02


class Slow:
    """A broker with slow reads; `asked` has their sizes and when each began and ended."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float, float]] = []
        cache = FetchCache(1 << 20)
        lease, memory = ReadLease(self, cache), ResponseMemory(256 << 20).of(1)
        reads = BrokerFetch(self, memory, cache, lease, ProduceAcks())
        self.backfill = Backfill(reads, 64 << 20, Tracer())
        op = FetchOp("t", 0, 0, 0, b"i" * 16)
        cache.store(op, FetchOpResp([], 1_000_000, 0, 0, 1_000_000), 0.0)
        found = cache.find(op)
        assert found is not None
        self.partition: CachedPartition = found

    async def hold_lease(self, op: HoldLease) -> HoldLeaseResp:
        raise AssertionError("no fetch uses the lease")

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(READ_SECONDS)
        self.asked.append((op.max_bytes, began, loop.time()))
        return FetchOpsResp([FetchOpResp([], high_watermark=1_000_000)])

    @property
    def rests(self) -> list[float]:
        return [
            after[1] - before[2] for before, after in zip(self.asked, self.asked[1:], strict=False)
        ]


async def test_without_live_traffic_it_never_rests() -> None:
    slow = Slow()
    for offset in range(4):
        await slow.backfill.fill(slow.partition, offset, None)
    assert slow.backfill._rest_until == 0


async def test_beside_live_traffic_it_rests_as_long_as_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backfill, "_LIVE_SECONDS", 60.0)
    slow = Slow()
    for offset in range(4):
        slow.backfill.tail_moved()
        await slow.backfill.fill(slow.partition, offset, None)
    assert min(slow.rests) >= READ_SECONDS * 0.9


async def test_it_goes_on_as_before_when_the_tail_is_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backfill, "_LIVE_SECONDS", 0.0)
    slow = Slow()
    for offset in range(4):
        slow.backfill.tail_moved()
        await slow.backfill.fill(slow.partition, offset, None)
    assert slow.backfill._rest_until == 0


@pytest.mark.parametrize(("live", "size"), [(False, LARGEST_WINDOW // 2), (True, CHUNK)])
async def test_reads_are_small_beside_live_traffic(live: bool, size: int) -> None:
    slow = Slow()
    if live:
        slow.backfill.tail_moved()
    slow.partition.expect_reader(5, LARGEST_WINDOW)
    slow.backfill.read_ahead(slow.partition, 5, 6)
    async with asyncio.timeout(5):
        while not slow.asked:
            await asyncio.sleep(READ_SECONDS / 4)
    assert [asked for asked, _, _ in slow.asked] == [size]
    await slow.backfill.close()
