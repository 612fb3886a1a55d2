"""Repairs damage: rewrites a damaged segment, with empty batches for lost records.

Consumers continue after an empty batch, and no offset changes. The log must not be open. After a
crash at any moment, either the old segment or the new one is in place: the next start rebuilds an
index that does not belong to its log, and the new salt invalidates the checkpoint's state of the
old segment. A readable record is never replaced by an empty batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from pyroaring import BitMap64

from quafka_broker.partitions.partition import Partition
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import TEMPORARY, Disk, File
from quafka_broker.wal.quarantine import Lost, SegmentDamage
from quafka_broker.wal.scan import scan
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    REWRITTEN,
    FileHeader,
    IndexRow,
    encode_copied_header,
    encode_file_header,
    encode_row,
)
from quafka_proto.records import empty_batch

_CHUNK = 4 << 20


def repair(disk: Disk, contents: Contents) -> list[int]:
    """Rewrite every damaged segment; returns their numbers. Blocks.

    `contents` comes from recovery, with all damage known and settled. It does not describe the log
    afterwards.

    Raises:
        OSError: the repair is incomplete; the finished segments are intact.
    """
    by_segment: dict[int, list[SegmentDamage]] = {}
    for damage in contents.quarantine.damages:
        by_segment.setdefault(damage.segment, []).append(damage)
    segments = {segment.number: segment for segment in contents.segments}
    for number, damages in by_segment.items():
        _Repair(disk, contents, number, damages).run(segments.get(number))
    return sorted(by_segment)


def _fillers(partition: Partition, lost: Lost, present: BitMap64) -> Iterator[IndexRow]:
    """Rows of empty batches, one for each run of absent ids."""
    start = lost.first
    while start < lost.end:
        first_id = partition.global_id_at(start)
        count = 1
        if first_id in present:
            start += 1
            continue
        while start + count < lost.end and _goes_on(partition, start, first_id, count, present):
            count += 1
        id_ = partition.id
        yield IndexRow(
            first_id, start, 0, id_.topic_hash, -1, -1, -1, id_.org_id, id_.partition,
            id_.generation, count, len(empty_batch(start, count)), -1,
        )  # fmt: skip
        start += count


def _goes_on(
    partition: Partition, start: int, first_id: int, count: int, present: BitMap64
) -> bool:
    next_id = first_id + count
    return partition.global_id_at(start + count) == next_id and next_id not in present


class _Repair:
    """The repair of one segment."""

    def __init__(
        self, disk: Disk, contents: Contents, number: int, damages: Sequence[SegmentDamage]
    ) -> None:
        self._disk = disk
        self._contents = contents
        self._number = number
        self._damages = damages
        self._names = index_name(number), log_name(number)

    def run(self, segment: Segment | None) -> None:
        """Rewrite the segment. Raises OSError."""
        left = set(self._disk.names())
        for name in self._names:
            if name + TEMPORARY in left:
                self._disk.remove(name + TEMPORARY)
        index, log = self._names
        header = FileHeader(int.from_bytes(os.urandom(4), "big"), REWRITTEN)
        copy = _Copy(self._number, header, self._disk.create(log + TEMPORARY))
        present = BitMap64()
        for row, batch in self._good_entries(segment) if segment is not None else ():
            copy.add(row, batch)
            present.add_range(row.global_id, row.global_id + row.record_count)
        for lost in [part for damage in self._damages for part in damage.lost]:
            for row in _fillers(self._contents.partitions[lost.partition], lost, present):
                epoch = self._contents.epochs.epoch_of(row.global_id)
                batch = empty_batch(row.base_offset, row.record_count, epoch)
                copy.add(row._replace(leader_epoch=epoch), batch)
                present.add_range(row.global_id, row.global_id + row.record_count)
        copy.finish()
        file = self._disk.create(index + TEMPORARY)
        head = encode_file_header(INDEX_MAGIC, self._number, *header)
        file.append([head, *map(encode_row, sorted(copy.rows))])
        file.sync()
        file.close()
        for name in self._names:
            self._disk.rename(name + TEMPORARY, name)
        self._disk.sync_names()

    def _good_entries(self, old: Segment) -> Iterator[tuple[IndexRow, bytes]]:
        """All complete, verified entries. In a damaged piece, only entries that the contents
        expect: the piece may also have a block of the file's past."""
        for row in scan(old.log, old.salt, FILE_HEADER_SIZE, old.log.size(), None):
            if not isinstance(row, IndexRow):
                continue
            damaged = any(d.start <= row.position < d.end for d in self._damages)
            if not damaged or self._contents.expects(row):
                yield row, old.log.read(row.position + ENTRY_HEADER_SIZE, row.length)


class _Copy:
    """A new log file, and the rows of its index."""

    def __init__(self, number: int, header: FileHeader, file: File) -> None:
        self._header = header
        self._file = file
        self.rows: list[IndexRow] = []
        self._pending = [encode_file_header(LOG_MAGIC, number, *header)]
        self._pending_size = 0
        self._position = FILE_HEADER_SIZE

    def add(self, row: IndexRow, batch: bytes) -> None:
        """Append one entry."""
        self._pending += (encode_copied_header(row, batch, self._header.salt), batch)
        self._pending_size += len(batch)
        self.rows.append(row._replace(position=self._position))
        self._position = self.rows[-1].end
        if self._pending_size >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        self._file.append(self._pending)
        self._pending, self._pending_size = [], 0

    def finish(self) -> None:
        """Make the file durable, and close it."""
        self._flush()
        self._file.sync()
        self._file.close()
