"""One segment: a log file and the index file beside it.

The index is redundant: every row can be made again from the log (`recovery`). It is not synced
with each commit, only when the segment is sealed.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from quafka_broker.wal.disk import Buffer, Disk, File
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    IndexRow,
    decode_row,
    encode_file_header,
    encode_row,
)


def log_name(number: int) -> str:
    """The log file's name."""
    return f"{number:012d}.log"


def index_name(number: int) -> str:
    """The index file's name."""
    return f"{number:012d}.oidx"


class Segment:
    """Entries in append order. `end` is the position behind the last one that is indexed."""

    def __init__(self, number: int, salt: int, log: File, index: File) -> None:
        self.number = number
        self.salt = salt
        self.log = log
        self.index = index
        self.end = FILE_HEADER_SIZE
        self._first_ids = array("Q")  # of each entry: finds a record's row without the index file

    @classmethod
    def create(cls, disk: Disk, number: int) -> Segment:
        """A new segment whose existence and headers are durable.

        Raises:
            OSError: nothing of it is left behind.
        """
        salt = int.from_bytes(os.urandom(4), "big")
        log = index = None
        try:
            log = disk.create(log_name(number))
            index = disk.create(index_name(number))
            log.append([encode_file_header(LOG_MAGIC, number, salt)])
            index.append([encode_file_header(INDEX_MAGIC, number, salt)])
            log.sync()
            index.sync()
            disk.sync_names()
        except OSError:
            for file, name in ((log, log_name(number)), (index, index_name(number))):
                if file is not None:
                    file.close()
                    disk.remove(name)
            raise
        return cls(number, salt, log, index)

    @property
    def first_id(self) -> int | None:
        """The first record's global id; None while the segment is empty."""
        return self._first_ids[0] if self._first_ids else None

    @property
    def entries(self) -> int:
        """How many entries are indexed."""
        return len(self._first_ids)

    def write(self, buffers: Sequence[Buffer], rows: Sequence[IndexRow]) -> None:
        """Append entries and their rows; `note` makes them findable. Blocks.

        Raises:
            OSError: the files may hold part of it: `cut` puts them back.
        """
        self.log.append(buffers)
        self.index.append([encode_row(row) for row in rows])

    def note(self, rows: Sequence[IndexRow]) -> None:
        """Entries have been written: find them from now on."""
        self._first_ids.extend(row.global_id for row in rows)
        if rows:
            self.end = rows[-1].end

    def cut(self) -> None:
        """Cut both files to what is indexed. Blocks."""
        self.log.truncate(self.end)
        self.index.truncate(FILE_HEADER_SIZE + INDEX_ROW_SIZE * len(self._first_ids))

    def row_number(self, global_id: int) -> int:
        """The row of the entry that holds a record."""
        return bisect_right(self._first_ids, global_id) - 1

    def rows(self, start: int, count: int) -> Rows:
        """Rows from `start` on, at most `count`.

        Raises:
            Malformed: the index file is cut short.
            OSError: it cannot be read.
        """
        count = min(count, len(self._first_ids) - start)
        data = self.index.read(FILE_HEADER_SIZE + INDEX_ROW_SIZE * start, INDEX_ROW_SIZE * count)
        if len(data) < INDEX_ROW_SIZE * count:
            raise Malformed(f"{index_name(self.number)} is cut short")
        return Rows(self, start, data)

    def sync(self) -> None:
        """Make log and index durable. Blocks."""
        self.log.sync()
        self.index.sync()

    def close(self) -> None:
        """Release the files."""
        self.log.close()
        self.index.close()


@dataclass(frozen=True, slots=True)
class Rows:
    """A piece of a segment's index, decoded row by row as they are asked for."""

    segment: Segment
    start: int
    data: bytes

    def __contains__(self, number: int) -> bool:
        return 0 <= number - self.start < len(self.data) // INDEX_ROW_SIZE

    def row(self, number: int) -> IndexRow:
        """The row of that number in the segment.

        Raises:
            Malformed: it is damaged.
        """
        return decode_row(self.data, INDEX_ROW_SIZE * (number - self.start))
