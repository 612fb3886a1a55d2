"""Making the index of a segment again while the log is in use, when a read finds it damaged."""

from __future__ import annotations

import logging

from quafka_broker.wal.disk import TEMPORARY, Disk
from quafka_broker.wal.recovery import rows_within
from quafka_broker.wal.scan import Bad, scan
from quafka_broker.wal.segment import Segment, index_name
from quafka_proto.log_format import (
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    ROW_DAMAGED,
    FileHeader,
    IndexRow,
    encode_file_header,
    encode_row,
)

log = logging.getLogger("quafka.broker.wal")


def rebuild_index(disk: Disk, segment: Segment) -> bool:
    """Replace a segment's index by one that is made from its log. Blocks; nothing is appended
    meanwhile, and no other file gets its name.

    False where the log has fewer entries than the index had: both are damaged, and the next start
    finds out what is lost.

    Raises:
        OSError: the old index is still there.
    """
    name = index_name(segment.number)
    old = segment.index.read(FILE_HEADER_SIZE, segment.index.size())
    rows: list[IndexRow] = []
    for found in scan(segment.log, segment.salt, FILE_HEADER_SIZE, segment.log.size(), None):
        if isinstance(found, IndexRow):
            rows.append(found)
        elif isinstance(found, Bad):
            known = [found.row] if found.row is not None else rows_within(old, found)
            rows += [row._replace(flags=row.flags | ROW_DAMAGED) for row in known]
    if len(rows) < segment.entries:
        log.error("%s cannot be made again while the broker runs", name)
        return False
    rows.sort(key=lambda row: row.global_id)
    if disk.exists(name + TEMPORARY):
        disk.remove(name + TEMPORARY)
    index = disk.create(name + TEMPORARY)
    header = FileHeader(segment.salt, segment.kind)
    index.append([encode_file_header(INDEX_MAGIC, segment.number, *header)])
    index.append([encode_row(row) for row in rows])
    index.sync()
    disk.rename(name + TEMPORARY, name)
    disk.sync_names()
    segment.index = index  # the old file is closed when its last reader has let it go
    log.warning("%s was damaged and has been made again", name)
    return True
