"""Copies records that another system stores to files of a pin, next to those of the log.

The bounds of the partitions are those at the cut, so they include the offsets that groups had
committed by then. The records are copied after the cut: records trimmed meanwhile are below the log
start of the copy. Each server's records become one file, in the format of a rewritten segment, with
a number that no segment has. Servers are read in parallel, each batch by batch; memory is bounded
by one read of each.

Records that cannot be copied are in the manifest's `lost`: a failing server costs the snapshot only
its own records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.snapshots.cut import PIN, WHOLE_LOG, Cut, decode_cut, encode_cut
from quafka_broker.sources.source import PartitionSource, Reading, ask_all
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import REDIS, Topic
from quafka_broker.wal.cut import SegmentCut
from quafka_broker.wal.runs import Room
from quafka_broker.wal.segment import index_name, log_name
from quafka_loop import file_modes
from quafka_loop.slices import listed
from quafka_mesh_ops.ops.base import Buffer
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    REWRITTEN,
    EntryHeader,
    encode_copied_header,
    encode_file_header,
    encode_row,
    row_of,
)
from quafka_proto.record_codec import iter_records
from quafka_proto.records import PATCHED_SIZE, end_offset, read_header
from quafka_proto.snapshot_format import FIRST_COPY, SnapshotPartition

log = logging.getLogger("quafka.broker.snapshots")

_ROOM = Room(1 << 20, 16)
_SECONDS = 1_800.0
"""The longest duration of copying."""
_TRIES, _PAUSE_SECONDS = 3, 1.0
_LEAST_FREE = 256 << 20
"""Bytes of free disk space below which copying stops."""


class _Wanted(NamedTuple):
    """A partition to copy."""

    topic: Topic
    number: int
    source: PartitionSource


class _StoppedError(Exception):
    """Copying of a partition stops; the message gives the reason."""


class Copies:
    """The copies for one cut. `needed`: whether there is anything to copy."""

    def __init__(self, state: BrokerState, topics: Iterable[Topic]) -> None:
        self._wanted: dict[object, list[_Wanted]] = {}
        for topic in topics:
            some = self._wanted.setdefault(state.redis.server_of(topic), [])
            for number in range(topic.partitions):
                some.append(_Wanted(topic, number, state.sources.partition(topic, number)))
        self.needed = bool(self._wanted)
        self._most = state.configs.broker.sources_redis_snapshot_bytes
        self._copied: dict[int, int] = {}
        self._until = 0.0

    @classmethod
    async def of(cls, state: BrokerState, org: int) -> Copies:
        """The copies that a cut needs, for one org or for all."""
        topics = await listed(t for t in state.registry.every_topic() if t.source == REDIS)
        return cls(state, (topic for topic in topics if org in (WHOLE_LOG, topic.org)))

    async def ask(self) -> None:
        """Get the bounds for the cut, as far as servers answer in time."""
        await ask_all(each.source for some in self._wanted.values() for each in some)

    async def add(self, folder: Path) -> None:
        """Copy to a pin's folder, and put the copies into the pin's cut. Raises OSError."""
        cut = decode_cut(await asyncio.to_thread((folder / PIN).read_bytes))
        at_cut = {
            (topic.org, topic.name): {p.partition: p for p in topic.partitions}
            for topic in cut.manifest.topics
        }
        self._until = asyncio.get_running_loop().time() + _SECONDS
        files = [_CopyFile(folder, FIRST_COPY + n) for n in range(len(self._wanted))]
        await asyncio.gather(
            *(
                self._copy_server(file, some, at_cut)
                for file, some in zip(files, self._wanted.values(), strict=True)
            )
        )
        topics = [
            replace(topic, partitions=list(at_cut[topic.org, topic.name].values()))
            for topic in cut.manifest.topics
        ]
        segments = [file.cut for file in files if file.rows]
        whole = Cut(replace(cut.manifest, topics=topics), [*cut.segments, *segments])
        await asyncio.to_thread(_replace, folder / PIN, encode_cut(whole))

    async def _copy_server(
        self,
        file: _CopyFile,
        wanted: Sequence[_Wanted],
        at_cut: dict[tuple[int, str], dict[int, SnapshotPartition]],
    ) -> None:
        """Copy the partitions of one server; `at_cut` gets the results."""
        try:
            for each in wanted:
                partitions = at_cut.get((each.topic.org, each.topic.name), {})
                if each.number in partitions:
                    partitions[each.number] = await self._copy(file, each, partitions[each.number])
        finally:
            await asyncio.to_thread(file.close)

    async def _copy(
        self, file: _CopyFile, each: _Wanted, at_cut: SnapshotPartition
    ) -> SnapshotPartition:
        """Copy one partition, as far as possible."""
        if at_cut.high_watermark <= 1:  # empty, or its bounds are unknown
            return at_cut
        end, before = at_cut.high_watermark, file.records
        start = offset = at_cut.log_start
        lost: list[list[int]] = []
        try:
            while offset < end:
                try:
                    batches = await self._read(each, offset)
                except OffsetGoneError:  # trimmed since the cut
                    start = offset = min(end, max(offset + 1, each.source.log_start))
                    before = file.records
                    continue
                if not batches:
                    break
                self._count(each.topic.org, sum(map(len, batches)))
                await asyncio.to_thread(file.add, each, batches, end)
                offset = end_offset(batches[-1])
        except _StoppedError as e:
            log.warning(
                "snapshot: %s-%d is copied up to offset %d of %d: %s", each.topic.name,
                each.number, offset, end, e,
            )  # fmt: skip
            lost = [[offset, end]]
        return replace(at_cut, log_start=start, lost=lost, copied=file.records - before)

    async def _read(self, each: _Wanted, offset: int) -> list[Buffer]:
        """Read the batches with records from an offset on; none if the partition has no more.

        Raises:
            OffsetGoneError: the offset was trimmed.
            _StoppedError: the partition cannot be read.
        """
        for tries_left in reversed(range(_TRIES)):
            if asyncio.get_running_loop().time() > self._until:
                raise _StoppedError(f"copying has taken {_SECONDS:.0f} s")
            try:
                found = await each.source.read(offset, _ROOM, Reading())
                return [batch for batch in found.records if read_header(batch).record_count]
            except CorruptError as e:
                raise _StoppedError(str(e)) from e
            except StorageError as e:
                if not tries_left:
                    raise _StoppedError(str(e)) from e
            await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError

    def _count(self, org: int, size: int) -> None:
        """Count bytes of an org. Raises _StoppedError if there is no room for them."""
        if self._copied.get(org, 0) + size > self._most:
            raise _StoppedError(f"the org has sources.redis.snapshot.bytes={self._most}")
        self._copied[org] = self._copied.get(org, 0) + size


class _CopyFile:
    """The log and index file of one server's copies. Its methods block.

    Its rows have the global id 0, because it has no records of the log. `rows` and `records` count
    its batches and records within the cut.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._salt = int.from_bytes(os.urandom(4), "big")
        self._files: list[BinaryIO] = []
        self._end = FILE_HEADER_SIZE
        self._failed = ""
        self.rows = self.records = 0

    @property
    def cut(self) -> SegmentCut:
        """The files as a segment."""
        return SegmentCut(self._number, self._salt, REWRITTEN, self._end, self.rows, True)

    def _open(self) -> None:
        for name, magic in (
            (log_name(self._number), LOG_MAGIC), (index_name(self._number), INDEX_MAGIC),
        ):  # fmt: skip
            file = file_modes.create_file(self._folder / name)
            self._files.append(file)
            file.write(encode_file_header(magic, self._number, self._salt, REWRITTEN))

    def add(self, of: _Wanted, batches: Sequence[Buffer], end: int) -> None:
        """Append batches of a partition, and mark the pin as in use.

        Records from `end` on, from after the cut, are not counted.

        Raises:
            _StoppedError: the disk is full, or nearly so.
        """
        if self._failed:
            raise _StoppedError(self._failed)
        try:
            if shutil.disk_usage(self._folder).free < _LEAST_FREE:
                raise _StoppedError(f"less than {_LEAST_FREE >> 20} MiB of the disk are free")
            if not self._files:
                self._open()
            for batch in batches:
                self._add(of, batch)
            if end_offset(batches[-1]) > end:
                later = (record.offset >= end for record in iter_records(batches[-1]))
                self.records -= sum(later)
            os.utime(self._folder / PIN)
        except OSError as e:  # bytes after `_end` may be a part of an entry
            self._failed = e.strerror or str(e)
            raise _StoppedError(self._failed) from e

    def _add(self, of: _Wanted, batch: Buffer) -> None:
        id_ = of.topic.partition_id(of.number)
        header = read_header(batch)
        entry = EntryHeader(
            len(batch), 0, header.base_offset, 0, id_.topic_hash, id_.org_id,
            id_.partition, id_.generation, header.last_offset_delta + 1,
        )  # fmt: skip
        row = row_of(entry, self._end, batch)
        log_file, index_file = self._files
        log_file.write(encode_copied_header(row, memoryview(batch)[:PATCHED_SIZE], self._salt))
        log_file.write(batch)
        index_file.write(encode_row(row))
        self._end = row.end
        self.rows += 1
        self.records += header.record_count

    def close(self) -> None:
        """Make the files durable: a snapshot links to them. Raises OSError."""
        for file in self._files:
            with file:
                file.flush()
                os.fsync(file.fileno())


def _replace(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    with file_modes.rewrite_text(part) as file:
        file.write(text)
    part.replace(path)
