"""The files of a segment while a log is opened or verified: headers, indexes, leftovers."""

from __future__ import annotations

import logging

from quafka_broker.wal.disk import TEMPORARY, Disk, File
from quafka_broker.wal.errors import DamagedLogError
from quafka_broker.wal.index_rows import good_rows
from quafka_broker.wal.segment import Segment, index_name, log_name
from quafka_proto.errors import LaterVersion, Malformed
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    LOG_MAGIC,
    FileHeader,
    IndexRow,
    check_file_header,
    encode_file_header,
)

log = logging.getLogger("quafka.broker.recovery")


def numbered(names: list[str], suffix: str) -> set[int]:
    """The segment numbers of the files with a suffix."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return {int(stem) for stem in stems if stem.isdecimal()}


def is_unborn(file: File) -> bool:
    """Whether a log file is too short for an entry."""
    return file.size() <= FILE_HEADER_SIZE


def segment_header(disk: Disk, number: int, file: File) -> tuple[FileHeader, str | None]:
    """A segment's header and the fault of the log file's header, which the index's then replaces.

    Raises:
        DamagedLogError: a later version of Quafka wrote the log file.
        Malformed: neither file has a good header.
        OSError: a file cannot be read.
    """
    try:
        return check_file_header(file.read(0, FILE_HEADER_SIZE), LOG_MAGIC, number), None
    except LaterVersion as e:  # to recover it as damaged would remove its records
        raise DamagedLogError(
            f"{log_name(number)}: {e}; a later version of Quafka wrote it. Run that version, or "
            "restore the snapshot that was made before the upgrade"
        ) from e
    except Malformed as e:
        if not disk.exists(index_name(number)):
            raise
        index = disk.open(index_name(number))
        try:
            return check_file_header(index.read(0, FILE_HEADER_SIZE), INDEX_MAGIC, number), str(e)
        finally:
            index.close()


def new_index(disk: Disk, number: int, header: FileHeader) -> File:
    """Create an index file without rows. It gets its name once it is complete and durable.

    A start compares an index with the checkpoint by size only, so a crash must never leave a
    partial index under the name.
    """
    index = disk.create(index_name(number) + TEMPORARY)
    index.append([encode_file_header(INDEX_MAGIC, number, *header)])
    return index


def name_index(disk: Disk, segment: Segment) -> None:
    """Make a rebuilt index durable, and give it its name."""
    segment.index.sync()
    name = index_name(segment.number)
    disk.rename(name + TEMPORARY, name)
    disk.sync_names()


def orphan_rows(disk: Disk, number: int) -> list[IndexRow]:
    """The good rows in the index of a segment whose log file is missing or unreadable."""
    if not disk.exists(index_name(number)):
        return []
    index = disk.open(index_name(number))
    try:
        return good_rows(index.read(FILE_HEADER_SIZE, index.size()))
    finally:
        index.close()


def remove_leftovers(disk: Disk) -> None:
    """Remove unfinished files."""
    for name in disk.names():
        if name.endswith(TEMPORARY):
            disk.remove(name)


def remove_unborn(disk: Disk, number: int) -> None:
    """Remove a segment that a crash left without a header."""
    log.warning("removing %s: a crash left it without a header", log_name(number))
    present = set(disk.names())
    for name in (log_name(number), index_name(number)):
        if name in present:
            disk.remove(name)
    disk.sync_names()
