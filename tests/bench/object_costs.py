"""Appends to a log in an object store with latency: how long they take, and what they cost.

    python -m tests.bench object_costs [--seconds N] [--rate N]

Open loop: records of 1 KB at a steady rate, each in an append of its own, whatever the log does.
For each median latency of a call (lognormal) and each wal.object.linger.ms: the time of an append,
the objects a second, and the price of them by the prices of S3 Standard. Then appends of 1 MB, of
sixteen producers that each wait for the answer, and the CPU that they take. The store is in memory,
in the same process; the mesh and Kafka's protocol are not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from quafka_broker.chain.takeover import Seen
from quafka_broker.config.settings import BrokerConfig
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producers import Producers
from quafka_broker.shard.stored_log import LogStore, StoredLog
from quafka_broker.wal.log import Log
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_objects.costs import Prices, estimate
from quafka_objects.meter import MeteredStore, RequestFigures, StoreMeter
from quafka_proto.chain_format import Owner
from tests.bench.log import Batch, batch_of, topic_id
from tests.support.injected_store import InjectedStore, Latency
from tests.support.store_folder import RecordedStore

_LINGERS = (10, 50, 100, 250)
_MEDIANS = (35.0, 6.0)
_RECORD, _LARGE = 1_000, 1_000_000
_PRODUCERS = 16


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_costs")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=int, default=500)
    options = parser.parse_args(arguments)
    print(f"{options.rate} appends/s of {_RECORD} bytes")
    print("  median   linger |     p50     p99 | objects/s   $/month")
    for median in _MEDIANS:
        for linger in _LINGERS:
            asyncio.run(_steady(median, linger, options.rate, options.seconds))
    print(f"{_PRODUCERS} producers, appends of {_LARGE} bytes, linger 50 ms")
    for median in _MEDIANS:
        asyncio.run(_large(median, options.seconds))


@asynccontextmanager
async def _log(median_ms: float, linger_ms: int) -> AsyncIterator[tuple[Log, StoreMeter]]:
    """A log in a store whose calls take a lognormal time; what it asks for is counted."""
    meter = StoreMeter()
    injected = InjectedStore(RecordedStore(), latency=Latency(median_ms / 1_000))
    metered = MeteredStore(injected, meter)
    store = LogStore(metered, AsyncObjectStore(metered))
    config = BrokerConfig(wal_object_linger_ms=linger_ms)
    with tempfile.TemporaryDirectory() as scratch:
        stored = await StoredLog.take(store, 0, Owner("a", "a:1"), Seen(), config, Path(scratch))
        await asyncio.to_thread(stored.log.open, Producers())
        stored.log.settle({})
        stored.log.start()
        for kind in meter.kinds:  # the takeover's requests are no part of the figures
            meter.kinds[kind] = RequestFigures(buckets=[0])
        try:
            yield stored.log, meter
        finally:
            stored.prepare_to_close()
            await stored.log.close()
            await stored.release()
            await stored.close()
            await store.close()


async def _steady(median_ms: float, linger_ms: int, rate: int, seconds: float) -> None:
    batch = batch_of(_RECORD)
    took: list[float] = []
    async with _log(median_ms, linger_ms) as (log, meter):
        partition = log.partitions.get(topic_id(0))
        appends: set[asyncio.Task[None]] = set()
        begun = time.perf_counter()
        for number in range(int(rate * seconds)):
            due = begun + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            append = asyncio.create_task(_append(log, partition, batch, due, took))
            appends.add(append)
            append.add_done_callback(appends.discard)
        await asyncio.gather(*appends)
        lasted = time.perf_counter() - begun
        objects = meter.kinds["create"].requests / lasted
        month = estimate(Prices(), meter.kinds, lasted, 0).requests_month
    p50, p99 = _quantiles(took)
    print(
        f"  {median_ms:4.0f} ms {linger_ms:5} ms | {p50:4.0f} ms {p99:4.0f} ms | "
        f"{objects:9.1f} {month:9.2f}"
    )


async def _append(
    log: Log, partition: Partition, batch: Batch, due: float, took: list[float]
) -> None:
    await log.queue.append(partition, batch)
    took.append(time.perf_counter() - due)


async def _large(median_ms: float, seconds: float) -> None:
    batch = batch_of(_LARGE)
    took: list[float] = []
    async with _log(median_ms, 50) as (log, meter):
        begun, cpu = time.perf_counter(), time.process_time()

        async def produce(number: int) -> None:
            partition = log.partitions.get(topic_id(number))
            while (at := time.perf_counter()) < begun + seconds:
                await _append(log, partition, batch, at, took)

        await asyncio.gather(*map(produce, range(_PRODUCERS)))
        lasted, cpu = time.perf_counter() - begun, time.process_time() - cpu
        objects, size = meter.kinds["create"].requests, meter.kinds["create"].bytes
    p50, p99 = _quantiles(took)
    print(
        f"  {median_ms:4.0f} ms | {len(took) * _LARGE / lasted / 1e6:6.1f} MB/s, p50 {p50:.0f} ms, "
        f"p99 {p99:.0f} ms, {cpu / lasted:.2f} cores, {objects * 1e9 / size:.0f} objects for a GB"
    )


def _quantiles(took: list[float]) -> tuple[float, float]:
    """Median and 99th percentile, in ms."""
    cuts = statistics.quantiles(took, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3
