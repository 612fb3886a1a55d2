"""The backfill lane beside live traffic: it rests as long as it works, and takes small bites."""

from __future__ import annotations

import asyncio

import pytest

from quafka_gateway.fetch import backfill as fetch_fills
from quafka_gateway.fetch.backfill import CHUNK, LARGEST_WINDOW, Fills
from quafka_gateway.fetch.cache import CachedPartition, FetchCache
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_telemetry.tracing import TraceContext, Tracer

READ_SECONDS = 0.02


class Slow:
    """A broker whose reads take a while; `asked` has their sizes and when they began and ended."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float, float]] = []
        self.fills = Fills(self.ask, 64 << 20, Tracer())
        cache = FetchCache(1 << 20)
        op = FetchOp("t", 0, 0, 0, b"i" * 16)
        cache.learn(op, FetchOpResp([], 1_000_000, 0, 0, 1_000_000), 0.0)
        found = cache.find(op)
        assert found is not None
        self.partition: CachedPartition = found

    async def ask(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
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
        await slow.fills.fill(slow.partition, offset, None)
    assert slow.fills._rest_until == 0


async def test_beside_live_traffic_it_rests_as_long_as_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_fills, "_LIVE_SECONDS", 60.0)
    slow = Slow()
    for offset in range(4):
        slow.fills.tail_moved()
        await slow.fills.fill(slow.partition, offset, None)
    assert min(slow.rests) >= READ_SECONDS * 0.9


async def test_it_goes_on_as_before_when_the_tail_is_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_fills, "_LIVE_SECONDS", 0.0)
    slow = Slow()
    for offset in range(4):
        slow.fills.tail_moved()
        await slow.fills.fill(slow.partition, offset, None)
    assert slow.fills._rest_until == 0


@pytest.mark.parametrize(("live", "size"), [(False, LARGEST_WINDOW // 2), (True, CHUNK)])
async def test_reads_are_small_beside_live_traffic(live: bool, size: int) -> None:
    slow = Slow()
    if live:
        slow.fills.tail_moved()
    slow.partition.expect(5, LARGEST_WINDOW)
    slow.fills.advance(slow.partition, 5, 6)
    async with asyncio.timeout(5):
        while not slow.asked:
            await asyncio.sleep(READ_SECONDS / 4)
    assert [asked for asked, _, _ in slow.asked] == [size]
    await slow.fills.close()
