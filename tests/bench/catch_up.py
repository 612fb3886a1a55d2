"""A catch-up read of one partition among a thousand, before and after its segments are rewritten.

`python -m tests.bench.catch_up [MiB of log] [bytes of a batch] [partitions]`: the batches of all
partitions take turns, then one partition is read from its start in fetches of 1 MiB, with what the
operating system had cached dropped before.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from quafka_broker.partitions.partition import Partition, PartitionId, topic_hash
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches

_FETCH = 1 << 20
_SEGMENT = 1 << 30


def _drop_cache(folder: Path) -> None:
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


async def _fill(log: Log, partitions: list[Partition], batches: int, size: int) -> None:
    batch = split_batches(build_batch([Record(0, 0, None, os.urandom(size), [])]))
    for start in range(0, batches, len(partitions)):
        await asyncio.gather(
            *[
                log.queue.append(partition, batch)
                for partition in partitions[: min(len(partitions), batches - start)]
            ]
        )


async def _read(log: Log, partition: Partition) -> float:
    """MB/s of reading all of one partition."""
    begun = time.perf_counter()
    offset = total = 0
    while offset < partition.high_watermark:
        batches = await log.reader.read(partition, offset, _FETCH, at_least_one=True)
        total += sum(map(len, batches))
        offset += len(batches)
    return total / (time.perf_counter() - begun) / 1e6


async def _several(log: Log, folder: Path, partitions: list[Partition]) -> str:
    """The mean over some partitions, each read with a cold cache."""
    found: list[float] = []
    calls = total = 0
    for partition in partitions[:: max(1, len(partitions) // 10)]:
        _drop_cache(folder)
        before = _read_calls()
        found.append(await _read(log, partition))
        calls += _read_calls() - before
        total += partition.batches.size
    rate = sum(found) / len(found)
    return f"{rate:.0f} MB/s, {calls / (total / 1e6):.0f} reads a MB"


def _read_calls() -> int:
    """System calls of this process that read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("syscr"))


async def main(mebibytes: int, size: int, partitions: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = Log(RealDisk(folder), FsyncPolicy(0.0), _SEGMENT)
        log.open(Producers())
        log.start()
        ids = [PartitionId(1, topic_hash(1, f"t{n}"), 0, 0) for n in range(partitions)]
        topics = [log.partitions.get(id_) for id_ in ids]
        await _fill(log, topics, (mebibytes << 20) // size, size)
        before = await _several(log, folder, topics)
        policy = RewritePolicy(bytes_per_second=1 << 30)
        rewriting = log.rewrite_task(policy, lambda: 0)
        begun = time.perf_counter()
        await rewriting.run_once()
        took = time.perf_counter() - begun
        await rewriting.close()
        after = await _several(log, folder, topics)
        print(f"{mebibytes} MiB, batches of {size} bytes, {partitions} partitions, cold cache:")
        print(f"as appended: {before}; rewritten: {after}; rewriting took {took:.0f} s")
        await log.close()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    defaults = [1040, 10_000, 1_000]
    asyncio.run(main(*arguments, *defaults[len(arguments) :]))
