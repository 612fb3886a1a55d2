"""How long a broker's log takes to open, and what it costs in memory.

    python -m tests.bench.recovery FOLDER [GiB ...]

Many partitions: 10,000 with a few batches each. Real logs: so many GiB of 64 KiB batches, opened
from a checkpoint, from the index, from the log alone. A simulated one: 100 GiB, the log files
sparse, the index rows as a generator makes them.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import index_name, log_name
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    IndexRow,
    encode_file_header,
    encode_row,
)
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import split_batches

_GIB = 1 << 30
_BATCH = 64 << 10
_RECORDS = 100
_PARTITIONS = 10_000
_IN_FLIGHT = 64


def _partition_id(partition: int) -> PartitionId:
    return PartitionId(1, topic_hash(1, "bench"), partition, 0)


def resident() -> float:
    """MiB of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def _open(folder: Path, partitions: int) -> tuple[Log, float]:
    log = Log(RealDisk(folder), FsyncPolicy(0.0), _GIB)
    begun = time.perf_counter()
    log.open(Producers())
    log.settle(dict.fromkeys(map(_partition_id, range(partitions)), 0))
    taken = time.perf_counter() - begun
    log.start()
    return log, taken


async def _reopen(folder: Path, partitions: int, what: str) -> None:
    gc.collect()
    before = resident()
    log, taken = await _open(folder, partitions)
    records = sum(log.partitions.get(_partition_id(p)).high_watermark for p in range(partitions))
    print(f"  {what:34} {taken:7.2f} s  {resident() - before:7.0f} MiB  {records:>11} records")
    begun = time.perf_counter()
    await log.close()
    print(f"    and a checkpoint                 {time.perf_counter() - begun:7.2f} s")


def _remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


async def write(folder: Path, size: int, partitions: int, batch: int) -> None:
    """A log of so many bytes, its batches in turn for each partition."""
    log, _ = await _open(folder, partitions)
    value = os.urandom(batch // _RECORDS)
    made = build_batch([Record(0, 1_000, None, value, []) for _ in range(_RECORDS)])
    checked = split_batches(bytes(made))
    written = 0
    number = 0
    while written < size:
        await asyncio.gather(
            *(
                log.queue.append(log.partitions.get(_partition_id(each % partitions)), checked)
                for each in range(number, number + _IN_FLIGHT)
            )
        )
        number += _IN_FLIGHT
        written += len(made) * _IN_FLIGHT
    await log.close()


async def many_partitions(folder: Path) -> None:
    """A broker with 10,000 partitions is started again."""
    print(f"{_PARTITIONS} partitions, 10 batches of 6 KiB each")
    await write(folder, _PARTITIONS * 10 * 6_000, _PARTITIONS, 6_000)
    await _reopen(folder, _PARTITIONS, "from the checkpoint")
    _remove(folder, "checkpoint-*")
    await _reopen(folder, _PARTITIONS, "from the index")


async def real(folder: Path, gib: int) -> None:
    """A real log."""
    print(f"{gib} GiB of 64 KiB batches, 100 partitions")
    await write(folder, gib * _GIB, 100, _BATCH)
    await _reopen(folder, 100, "from the checkpoint")
    _remove(folder, "checkpoint-*")
    await _reopen(folder, 100, "from the index")
    _remove(folder, "checkpoint-*")
    _remove(folder, "*.oidx")
    await _reopen(folder, 100, "from the log alone, all verified")


def simulated_rows(first_id: int, counts: list[int], turn: int) -> Iterator[IndexRow]:
    """One segment's worth of rows, in turn for each partition."""
    position = FILE_HEADER_SIZE
    while position < _GIB:
        partition = turn % _PARTITIONS
        row = IndexRow(
            first_id, counts[partition], position, topic_hash(1, "bench"), 1_000 + turn, -1, -1,
            1, partition, 0, _RECORDS, _BATCH, -1,
        )  # fmt: skip
        yield row
        counts[partition] += _RECORDS
        first_id += _RECORDS
        position = row.end
        turn += 1


def simulate(folder: Path, segments: int) -> None:
    """Index files as a log of so many GiB would have them, beside sparse log files."""
    counts = [0] * _PARTITIONS
    batches = 0
    for number in range(segments):
        rows = list(simulated_rows(batches * _RECORDS, counts, batches))
        batches += len(rows)
        header = encode_file_header(INDEX_MAGIC, number, number)
        body = b"".join(map(encode_row, rows))
        (folder / index_name(number)).write_bytes(header + body)
        with (folder / log_name(number)).open("wb") as file:
            file.write(encode_file_header(LOG_MAGIC, number, number))
            file.truncate(rows[-1].end)
    for magic, name in ((LOG_MAGIC, log_name(segments)), (INDEX_MAGIC, index_name(segments))):
        (folder / name).write_bytes(encode_file_header(magic, segments, segments))


async def simulated(folder: Path, gib: int) -> None:
    """A large log is opened; only its index is real."""
    print(f"{gib} GiB simulated: 64 KiB batches, {_PARTITIONS} partitions")
    simulate(folder, gib)
    await _reopen(folder, _PARTITIONS, "from the index")
    await _reopen(folder, _PARTITIONS, "from the checkpoint")


async def main() -> None:
    """Print the figures."""
    folder = Path(sys.argv[1])
    sizes = [int(size) for size in sys.argv[2:]]
    jobs = [many_partitions(folder), *(real(folder, size) for size in sizes)]
    for job in (*jobs, simulated(folder, 100)):
        folder.mkdir(parents=True)
        try:
            await job
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(main())
