"""Settling damage: a damaged segment is written anew, with empty batches for what is lost.

Consumers go on behind an empty batch, and every offset stays what it was. Only for a log that
nobody has open. Whatever moment a crash comes at, the old segment or the new one is there: the
checkpoints, which know the old one, go first, and an index that is not of its log is made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from quafka_broker.virtual_topics import VirtualTopic
from quafka_broker.wal.checkpoint import remove_all
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import Disk, File
from quafka_broker.wal.quarantine import Damage, Lost
from quafka_broker.wal.recovery import TEMPORARY
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
    """Write every damaged segment anew; returns their numbers. Blocks.

    `contents` is what recovery made of the log, with all damage known and settled; it does not
    describe the log afterwards.

    Raises:
        OSError: not all of it was done; what was is whole.
    """
    by_segment: dict[int, list[Damage]] = {}
    for damage in contents.quarantine.damages:
        by_segment.setdefault(damage.segment, []).append(damage)
    segments = {segment.number: segment for segment in contents.segments}
    for number, damages in by_segment.items():
        lost = [part for damage in damages for part in damage.lost]
        fillers = [
            row._replace(leader_epoch=contents.epochs.of(row.global_id))
            for part in lost
            for row in _fillers(contents.topics[part.topic], part)
        ]
        _rewrite(disk, number, segments.get(number), damages, fillers)
    return sorted(by_segment)


def _fillers(topic: VirtualTopic, lost: Lost) -> Iterator[IndexRow]:
    """Rows of empty batches, one for each run of ids."""
    start = lost.first
    while start < lost.end:
        first_id = topic.global_id_at(start)
        count = 1
        while start + count < lost.end and topic.global_id_at(start + count) == first_id + count:
            count += 1
        id_ = topic.id
        yield IndexRow(
            first_id, start, 0, id_.topic_hash, -1, -1, -1, id_.org_id, id_.partition,
            id_.generation, count, len(empty_batch(start, count)), -1,
        )  # fmt: skip
        start += count


def _rewrite(
    disk: Disk,
    number: int,
    segment: Segment | None,
    damages: Sequence[Damage],
    fillers: Sequence[IndexRow],
) -> None:
    names = index_name(number), log_name(number)
    for name in {name + TEMPORARY for name in names} & set(disk.names()):
        disk.remove(name)
    header = FileHeader(int.from_bytes(os.urandom(4), "big"), REWRITTEN)
    copy = _Copy(number, header, disk.create(log_name(number) + TEMPORARY))
    if segment is not None:
        copy.good_entries(segment, damages)
    for row in fillers:
        copy.add(row, empty_batch(row.base_offset, row.record_count, row.leader_epoch))
    copy.finish()
    index = disk.create(index_name(number) + TEMPORARY)
    rows = sorted(copy.rows)
    index.append([encode_file_header(INDEX_MAGIC, number, *header), *map(encode_row, rows)])
    index.sync()
    index.close()
    remove_all(disk)
    for name in names:
        disk.rename(name + TEMPORARY, name)
    disk.sync_names()


class _Copy:
    """A new log file, and the rows for its index."""

    def __init__(self, number: int, header: FileHeader, file: File) -> None:
        self._header = header
        self._file = file
        self.rows: list[IndexRow] = []
        self._pending = [encode_file_header(LOG_MAGIC, number, *header)]
        self._pending_size = 0
        self._position = FILE_HEADER_SIZE

    def good_entries(self, old: Segment, damages: Sequence[Damage]) -> None:
        """Copy what is whole; each entry is verified first."""
        for row in scan(old.log, old.salt, FILE_HEADER_SIZE, old.log.size(), None):
            if not isinstance(row, IndexRow):
                continue
            if not any(damage.start <= row.position < damage.end for damage in damages):
                self.add(row, old.log.read(row.position + ENTRY_HEADER_SIZE, row.length))

    def add(self, row: IndexRow, batch: bytes) -> None:
        """Append one entry."""
        self._pending += (encode_copied_header(row, batch, self._header.salt), batch)
        self._pending_size += len(batch)
        self.rows.append(row._replace(position=self._position, flags=0))
        self._position = self.rows[-1].end
        if self._pending_size >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        self._file.append(self._pending)
        self._pending, self._pending_size = [], 0

    def finish(self) -> None:
        """Make it durable."""
        self._flush()
        self._file.sync()
        self._file.close()
