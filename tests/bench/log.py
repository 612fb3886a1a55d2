"""Figures of the log itself, without network: `python -m tests.bench log`.

Appends with `wal.fsync=commit` stand beside fio's rate of appending and syncing on the same disk;
recovery, restart and memory beside the bytes and partitions that they are for. Each step that
begins with a start runs in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from quafka_broker.partitions.partition import Partition, PartitionId, topic_hash
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BatchHeader, split_batches
from tests.unit.broker.tools import open_log

_NEVER = FsyncPolicy(0.0)
_SEGMENT = 256 << 20

Batch = list[tuple[BatchHeader, memoryview]]
Figures = dict[str, float]


def batch_of(size: int) -> Batch:
    """One record of so many bytes, checked."""
    return split_batches(build_batch([Record(0, 1_000, None, os.urandom(size), [])]))


def topic_id(number: int) -> PartitionId:
    return PartitionId(1, topic_hash(1, f"topic-{number // 100}"), number % 100, 0)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_child(job: Callable[[], Awaitable[Figures]]) -> Figures:
    """Run it in a fork that then dies on the spot: a log that is open is left as by kill -9."""
    read_fd, write_fd = os.pipe()
    if not (pid := os.fork()):
        try:
            asyncio.run(_send(job, write_fd))
        finally:
            os._exit(1)
    os.close(write_fd)
    with os.fdopen(read_fd) as result:
        line = result.readline()
    os.waitpid(pid, 0)
    found: Figures = json.loads(line)
    return found


async def _send(job: Callable[[], Awaitable[Figures]], write_fd: int) -> None:
    os.write(write_fd, json.dumps(await job()).encode() + b"\n")


async def append_for(folder: Path, producers: int, size: int, seconds: float) -> Figures:
    """Producers that each wait for an answer before they send again."""
    batch = batch_of(size)
    took: list[float] = []
    groups: Counter[int] = Counter()
    partitions: list[Partition] = []
    seen = 0

    def committed(_topics: object) -> None:
        nonlocal seen
        now = sum(partition.high_watermark for partition in partitions)
        groups[now - seen] += 1
        seen = now

    async with open_log(RealDisk(folder), FsyncPolicy(), _SEGMENT, on_commit=committed) as log:
        until = time.perf_counter() + seconds
        partitions += [log.partitions.get(topic_id(number)) for number in range(producers)]

        async def one(number: int) -> None:
            while (begun := time.perf_counter()) < until:
                await log.queue.append(partitions[number], batch)
                took.append(time.perf_counter() - begun)

        await asyncio.gather(*[one(number) for number in range(producers)])
    took.sort()
    sizes = sorted(groups.elements())
    return {
        "appends": len(took) / seconds,
        "megabytes": len(took) * len(batch[0][1]) / seconds / 1e6,
        "p50": took[len(took) // 2] * 1e3,
        "p99": took[len(took) * 99 // 100] * 1e3,
        "group_p10": sizes[len(sizes) // 10],
        "group_p50": sizes[len(sizes) // 2],
        "group_max": sizes[-1],
        "syncs": len(sizes) / seconds,
    }


def fio_syncs(folder: Path, size: int, seconds: float) -> float | None:
    """Appends, each with a fdatasync, per second; None where there is no fio."""
    if shutil.which("fio") is None:
        return None
    done = subprocess.run(
        [
            "fio", "--name=sync", f"--directory={folder}", "--rw=write", f"--bs={size}",
            "--size=2g", "--fallocate=none", "--ioengine=sync", "--fdatasync=1",
            "--time_based", f"--runtime={seconds}", "--output-format=json", "--unlink=1",
        ],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["jobs"][0]["write"]["iops"])


async def fill(log: Log, partitions: int, size: int, total: int) -> None:
    """Batches in turn to each partition, as a busy broker's log has them."""
    batch = batch_of(size)
    topics = [log.partitions.get(topic_id(number)) for number in range(partitions)]
    for start in range(0, total // size, 500):
        await log.queue.wait_for_room()
        await asyncio.gather(
            *[log.queue.append(topics[n % partitions], batch) for n in range(start, start + 500)]
        )


async def fill_and_die(folder: Path, partitions: int, size: int, total: int) -> Figures:
    log_of = open_log(RealDisk(folder), _NEVER, _SEGMENT)
    await fill(await log_of.__aenter__(), partitions, size, total)
    return {}


async def restart(folder: Path, partitions: int) -> Figures:
    """Start on what is there, then stop cleanly."""
    batch_of(1)  # what is imported and built once is not counted
    before, begun = resident_bytes(), time.perf_counter()
    async with open_log(RealDisk(folder), _NEVER, _SEGMENT) as log:
        took = time.perf_counter() - begun
        memory = (resident_bytes() - before) / partitions
        records = sum(log.partitions.get(topic_id(n)).high_watermark for n in range(partitions))
    return {"seconds": took, "bytes_per_partition": memory, "records": records}


async def catch_up(folder: Path, partitions: int, some: int, cold: bool) -> Figures:
    """Read some partitions from their beginnings to their ends, 1 MiB at a time."""
    rates: list[float] = []
    async with open_log(RealDisk(folder), _NEVER, _SEGMENT) as log:
        for number in range(0, partitions, partitions // some):
            if cold:
                forget_pages(folder)
            partition = log.partitions.get(topic_id(number))
            begun, size, offset = time.perf_counter(), 0, partition.log_start
            while offset < partition.high_watermark:
                batches = await log.reader.read(partition, offset, 1 << 20, at_least_one=True)
                offset += len(batches)  # each has one record
                size += sum(map(len, batches))
            rates.append(size / (time.perf_counter() - begun) / 1e6)
    return {"megabytes": statistics.median(rates)}


def forget_pages(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def print_appends(scratch: Path, seconds: float) -> None:
    for size in (1_000, 16_000):
        syncs = fio_syncs(scratch, size, seconds)
        fio = "fio is not installed" if syncs is None else f"{syncs:,.0f}/s by fio"
        print(f"appends of {size / 1e3:2.0f} kB, one sync each: {fio}")
        for producers in (1, 16):
            folder = scratch / f"appends-{size}-{producers}"
            folder.mkdir()
            found = asyncio.run(append_for(folder, producers, size, seconds))
            shutil.rmtree(folder)
            print(
                f"  {producers:2} producers {found['appends']:8,.0f}/s {found['megabytes']:6.1f} "
                f"MB/s   p50 {found['p50']:5.2f} ms p99 {found['p99']:5.2f} ms   "
                f"{found['syncs']:6,.0f} syncs/s of p10 {found['group_p10']:.0f}, "
                f"p50 {found['group_p50']:.0f}, max {found['group_max']:.0f} appends"
            )


def print_restarts(scratch: Path, label: str, partitions: int, size: int, total: int) -> None:
    folder = scratch / "restart"
    folder.mkdir()
    in_child(partial(fill_and_die, folder, partitions, size, total))
    for how in ("after kill -9", "after a clean stop"):
        found = in_child(partial(restart, folder, partitions))
        print(
            f"{label:34} {how:18} {found['seconds']:7.2f} s   "
            f"{found['records']:9,.0f} batches, {found['bytes_per_partition']:8,.0f} B/partition"
        )
    shutil.rmtree(folder)


def print_catch_up(scratch: Path, partitions: int, size: int, total: int) -> None:
    folder = scratch / "catch-up"
    folder.mkdir()
    in_child(partial(fill_and_die, folder, partitions, size, total))
    for cold in (True, False):
        found = in_child(partial(catch_up, folder, partitions, 20, cold))
        print(
            f"catch-up of one of {partitions:,} partitions, {size / 1e3:.0f} kB batches, "
            f"{'cold' if cold else 'cached'}: {found['megabytes']:7.1f} MB/s"
        )
    shutil.rmtree(folder)


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench log", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each append run")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0], help="to recover")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: /tmp")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        scratch = Path(name)
        print_appends(scratch, options.seconds)
        for gigabytes in options.gigabytes:
            total = int(gigabytes * 1e9)
            print_restarts(scratch, f"start with {gigabytes:g} GB", 100, 16_000, total)
        many = options.partitions
        print_restarts(scratch, f"start with {many:,} partitions", many, 100, many * 2_000)
        print_catch_up(scratch, 1_000, 16_000, 512_000_000)
