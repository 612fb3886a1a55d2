"""A log in an object store with latency: its start, and reads of what is not local.

    python -m tests.bench object_folder [--median MS] [--start GB:PARTITIONS ...] [--only start]

The start: logs of several sizes, in segments of 256 MB, which exist in the checkpoint and the list
of files only, so that a read of any would fail; behind them a tail of the chain. Reads: partitions
are read in fetches of 1 MB, first from the store, then from the cache, by one reader and by eight
at once; batches of 1 MB of eight partitions are in turn in one segment. The store is in memory;
every call takes a lognormal time, and each answer flows at 100 MB/s.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from quafka_broker.chain.materialise import materialise
from quafka_broker.chain.prefetch import PrefetchedStore
from quafka_broker.chain.store_disk import StoreDisk
from quafka_broker.chain.takeover import look, take_over
from quafka_broker.chain.uploads import Uploads
from quafka_broker.partitions.partition import Partition, PartitionId, topic_hash
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.chain_durability import ChainLink, ChainPolicy
from quafka_broker.wal.checkpoint_file import CheckpointWriter, SavedPartition, pack_partitions
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import ROWS_PER_SAMPLE, SegmentState, index_name, log_name
from quafka_loop.garbage import without_gc
from quafka_objects.asynchronous import AsyncObjectStore
from quafka_proto.chain_format import (
    Owner,
    StoredFile,
    directory_path,
    encode_directory,
    file_path,
    segment_nonce,
)
from quafka_proto.log_format import (
    APPENDED,
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    FileHeader,
    IndexRow,
)
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BatchHeader, read_header, split_batches
from tests.bench.recovery import resident
from tests.support.injected_store import InjectedStore, Latency
from tests.support.store_folder import RecordedStore

_SEGMENT = 256 << 20
_BATCH = 1 << 20
_RECORDS = 1_000
_LOGS = ("1:1000", "10:1000", "100:1000", "1000:1000", "100:10000", "100:100000")
_CACHE = 1 << 30
_TAIL = 200
_COLD_MB = 192
_COLD_PARTITIONS = 8
_FETCH = 1 << 20


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_folder")
    parser.add_argument("--median", type=float, default=35.0, help="ms of a call")
    parser.add_argument("--start", nargs="*", default=_LOGS, help="gigabytes:partitions")
    parser.add_argument("--only", choices=("start", "reads"))
    options = parser.parse_args(arguments)
    latency = Latency(options.median / 1_000)
    logging.disable(logging.CRITICAL)  # the logs lack files, and brokers are killed
    if options.only != "reads":
        print(f"takeovers; {_TAIL} objects of the chain are in no file; calls of median", end=" ")
        print(f"{options.median:g} ms")
        print("      GB partitions checkpoint | takeover  folder recovery     all | calls  memory")
        for log in options.start:
            with tempfile.TemporaryDirectory() as scratch:
                gigabytes, partitions = map(int, log.split(":"))
                asyncio.run(_start(Path(scratch), gigabytes, partitions, latency))
    if options.only == "start":
        return
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(_cold_reads(Path(scratch), latency))


def _id(partition: int) -> PartitionId:
    return PartitionId(1, topic_hash(1, "bench"), partition, 0)


class Broker:
    """A log that was taken over, and the seconds of each step."""

    def __init__(self, store: InjectedStore, scratch: Path) -> None:
        self._store = store
        self._scratch = scratch
        self._calls = AsyncObjectStore(store)

    async def open(self) -> None:
        """Take over and open."""
        begun = time.perf_counter()
        store = PrefetchedStore(self._store)
        seen = await look(self._calls, 0)
        if seen.manifest is not None and seen.manifest.manifest.directory:
            store.fetch_files(seen.manifest.manifest.directory)
        found = await take_over(
            self._calls, 0, Owner("a", "a:1"), time.time,
            seen=seen, read=partial(store.headers, self._calls, 0),
        )  # fmt: skip
        self.chain = found.chain
        headers = [header for _, header in found.objects]
        taken = time.perf_counter()
        self.disk: StoreDisk = await asyncio.to_thread(
            materialise, store, self.chain, self.chain.manifest, headers, self._scratch, _CACHE,
        )  # fmt: skip
        made = time.perf_counter()
        self.log = Log(
            self.disk, FsyncPolicy(), _SEGMENT, 1 << 40,
            chain=ChainLink(self.chain, ChainPolicy(0.0, 8 << 20, 60.0)),
        )  # fmt: skip
        with without_gc():  # as a shard is opened
            await asyncio.to_thread(self.log.open, Producers())
        self.log.settle(dict.fromkeys(self.log.partitions.ids(), 0))
        store.forget()
        ended = time.perf_counter()
        self.seconds = taken - begun, made - taken, ended - made

    async def kill(self) -> None:
        """Stop without writing anything."""
        self.disk.patience.end_within(0.0)
        await self.chain.close()
        self._store.down = True
        await self.log.close()
        await asyncio.to_thread(self.disk.close)
        await self._calls.close()
        self._store.down = False


# --- the start --------------------------------------------------------------------------------


async def _start(scratch: Path, gigabytes: int, partitions: int, latency: Latency) -> None:
    store = InjectedStore(RecordedStore())
    segments = gigabytes * 10**9 // _SEGMENT
    checkpoint = await _make_large_log(store, scratch / "made", segments, partitions)
    gc.collect()
    before = resident()
    store.latency = latency
    broker = Broker(store, scratch / "opened")
    store.calls.clear()
    await broker.open()
    took, made, opened = broker.seconds
    print(
        f"{gigabytes:8,} {partitions:10,} {checkpoint / 1e6:7.1f} MB | {took:6.2f} s {made:5.2f} s"
        f"   {opened:4.2f} s {took + made + opened:5.2f} s | {len(store.calls):5}"
        f" {resident() - before:4.0f} MB", flush=True,
    )  # fmt: skip
    await broker.kill()


async def _make_large_log(
    store: InjectedStore, scratch: Path, segments: int, partition_count: int
) -> int:
    """Name files that do not exist, and a checkpoint that knows them; then append to the chain.

    Returns the bytes of the checkpoint.
    """
    scratch.mkdir()
    partitions = [Partition(_id(number)) for number in range(partition_count)]
    states: list[SegmentState] = []
    files: list[StoredFile] = []
    for number in range(segments):
        rows = list(_rows(number, partition_count))
        for row in rows:
            partitions[row.partition].add(row)
        sample = [row.global_id for row in rows[::ROWS_PER_SAMPLE]]
        end, next_id = rows[-1].end, rows[-1].global_id + _RECORDS
        packed = struct.pack(f">{len(sample)}Q", *sample)
        states.append(SegmentState(number, number, APPENDED, end, len(rows), next_id, packed))
        nonce = segment_nonce(0, FileHeader(number, APPENDED))
        index_end = FILE_HEADER_SIZE + INDEX_ROW_SIZE * len(rows)
        for name, size in ((log_name(number), end), (index_name(number), index_end)):
            files.append(StoredFile(name, file_path(0, name, 1, nonce), size))
    checkpoint = _checkpoint(RealDisk(scratch), states, partitions)
    files.append(StoredFile("checkpoint-1", file_path(0, "checkpoint-1", 1, 0), len(checkpoint)))
    store.put(files[-1].path, checkpoint)
    store.put(directory_path(0, 1, 0), encode_directory(files))
    calls = AsyncObjectStore(store)
    chain = (await take_over(calls, 0, Owner("a", "a:1"), time.time)).chain
    await chain.update(lambda manifest: replace(manifest, directory=directory_path(0, 1, 0)))
    await chain.close()
    await calls.close()
    await _append_tail(store, scratch / "tail")
    return len(checkpoint)


def _rows(number: int, partitions: int) -> Iterator[IndexRow]:
    """The rows of a segment of batches of 1 MB, in turn for each partition."""
    each = _SEGMENT // _BATCH
    for batch in range(each):
        turn = number * each + batch
        yield IndexRow(
            turn * _RECORDS, turn // partitions * _RECORDS,
            FILE_HEADER_SIZE + batch * (_BATCH + ENTRY_HEADER_SIZE), topic_hash(1, "bench"),
            1_000 + turn, -1, -1, 1, turn % partitions, 0, _RECORDS, _BATCH, -1,
        )  # fmt: skip


def _checkpoint(
    disk: RealDisk, states: Sequence[SegmentState], partitions: Sequence[Partition]
) -> bytes:
    next_id = states[-1].next_id
    writer = CheckpointWriter(disk, 1)
    active = SegmentState(len(states), 0, APPENDED, FILE_HEADER_SIZE, 0, next_id, b"")
    writer.begin(next_id, [*states, active], [], [(0, 0)])
    for partition in partitions:
        saved = SavedPartition(partition.id, next_id, partition.dump(), [])
        writer.partitions(pack_partitions([saved]))
    writer.finish((active.number, active.end), next_id, [])
    file = disk.open("checkpoint-1")
    return file.read(0, file.size())


async def _append_tail(store: InjectedStore, scratch: Path) -> None:
    broker = Broker(store, scratch)
    await broker.open()
    broker.log.start()
    for number in range(_TAIL):
        await broker.log.queue.append(broker.log.partitions.get(_id(number)), _batch(20, 1_000))
    await broker.kill()


# --- reads ------------------------------------------------------------------------------------


async def _cold_reads(scratch: Path, latency: Latency) -> None:
    store = InjectedStore(RecordedStore())
    broker = Broker(store, scratch / "made")
    await broker.open()
    broker.log.start()
    for number in range(_COLD_MB):
        partition = _id(number % _COLD_PARTITIONS)
        await broker.log.queue.append(broker.log.partitions.get(partition), _batch(20, 50_000))
    await broker.log.seal()
    await asyncio.to_thread(Uploads(broker.disk).upload_sealed)
    await broker.log.checkpoint()
    await broker.kill()
    store.latency = latency
    for readers in (1, _COLD_PARTITIONS):
        broker = Broker(store, scratch / f"opened {readers}")
        await broker.open()
        for what in ("from the store", "from the cache on disk"):
            begun, used = time.perf_counter(), time.process_time()
            each = [_read_some(broker.log, n, readers) for n in range(readers)]
            size = sum(await asyncio.gather(*each))
            seconds, cpu = time.perf_counter() - begun, time.process_time() - used
            rates = f"{size / seconds / 1e6:5.0f} MB/s, {cpu / size * 1e9:4.2f} CPU s/GB"
            print(f"{readers} at once read {what}: {rates}")
        await broker.kill()


async def _read_some(log: Log, reader: int, readers: int) -> int:
    """Read every partition that is this reader's, one after the other."""
    size = 0
    for number in range(reader, _COLD_PARTITIONS, readers):
        partition, offset = log.partitions.get(_id(number)), 0
        while offset < partition.high_watermark:
            batches = await log.reader.read(partition, offset, _FETCH, at_least_one=True)
            size += sum(map(len, batches))
            offset += sum(read_header(batch).last_offset_delta + 1 for batch in batches)
    return size


def _batch(records: int, size: int) -> list[tuple[BatchHeader, memoryview]]:
    value = os.urandom(size)
    made = build_batch([Record(0, 1_000, None, value, []) for _ in range(records)])
    return split_batches(bytes(made))
