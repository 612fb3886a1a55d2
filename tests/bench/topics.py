"""Figures of what is done with topics inside a broker: `python -m tests.bench.topics`.

ListOffsets by time over a partition of many batches, and what a retention sweep costs with ten
thousand partitions.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import list_offsets
from quafka_broker.state import BrokerState
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.offsets import ListOffsetsOp, ListOffsetsOps
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches
from quafka_telemetry.tracing import Tracer

_ORG = 1
_NOW = 10_000_000
_CONTEXT = OpContext(_ORG, None, 0.0, "", Tracer())


async def _state(folder: Path) -> BrokerState:
    log = Log(RealDisk(folder), FsyncPolicy(0.0), 1 << 30)
    state = BrokerState(BrokerConfig(data=folder), log)
    log.open(state.producers)
    log.start()
    await state.replay_registry()
    return state


def _batch(timestamp: int, records: int) -> bytearray:
    return build_batch([Record(0, timestamp + n, None, b"x" * 100, []) for n in range(records)])


async def by_time(state: BrokerState, batches: int = 100_000, records: int = 100) -> list[float]:
    """Microseconds of each of 1,000 searches for a random time."""
    topic, _ = await state.topics.create(_ORG, "times", 1)
    partition = state.log.partitions.get(topic.partition_id(0))
    for start in range(0, batches, 1_000):
        some = range(start, min(batches, start + 1_000))
        await asyncio.gather(
            *[
                state.log.queue.append(partition, split_batches(_batch(n * records, records)))
                for n in some
            ]
        )
    took: list[float] = []
    for _ in range(1_000):
        timestamp = random.randrange(batches * records)
        begun = time.perf_counter()
        op = ListOffsetsOps([ListOffsetsOp("times", 0, timestamp)])
        (answer,) = (await list_offsets.handle(state, _CONTEXT, op)).partitions
        took.append((time.perf_counter() - begun) * 1e6)
        assert answer.offset == timestamp
    return took


async def sweeps(state: BrokerState, partitions: int = 10_000) -> dict[str, tuple[float, float]]:
    """Seconds of each kind of sweep, and the longest time the loop was away in it."""
    topic, _ = await state.topics.create(_ORG, "swept", partitions, {"retention.ms": "1000"})
    swept = [state.log.partitions.get(topic.partition_id(n)) for n in range(partitions)]
    for timestamp in (_NOW - 2_000, _NOW - 500):
        for start in range(0, partitions, 1_000):
            some = swept[start : start + 1_000]
            batch = split_batches(_batch(timestamp, 1))
            await asyncio.gather(*[state.log.queue.append(partition, batch) for partition in some])
    retention = state.retention(lambda: _NOW)
    found: dict[str, tuple[float, float]] = {}
    for kind, expected in (("deletes in all", partitions), ("has nothing to do", 0)):
        away = asyncio.create_task(_away())
        begun = time.perf_counter()
        assert await retention.sweep() == expected
        took = time.perf_counter() - begun
        away.cancel()
        found[kind] = took, max(_gaps, default=0.0)
        _gaps.clear()
    return found


_gaps: list[float] = []


async def _away() -> None:
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        _gaps.append(now - last)
        last = now


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        state = await _state(Path(folder))
        took = await by_time(state)
        p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
        print(f"ListOffsets by time, 100,000 batches of 100: p50 {p50:.0f} us, p99 {p99:.0f} us")
        for kind, (seconds, longest) in (await sweeps(state)).items():
            print(
                f"sweep of 10,000 partitions that {kind}: {seconds * 1e3:.0f} ms, "
                f"loop away at most {longest * 1e3:.1f} ms"
            )
        await state.log.close()


if __name__ == "__main__":
    asyncio.run(main())
