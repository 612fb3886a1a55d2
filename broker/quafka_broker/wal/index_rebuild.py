"""Rebuilds a segment's index from its log, while the log is in use, after a read found it bad."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from quafka_broker.wal.contents import Contents
from quafka_broker.wal.disk import TEMPORARY, Disk
from quafka_broker.wal.index_rows import good_rows
from quafka_broker.wal.scan import Bad, scan
from quafka_broker.wal.segment import Segment, index_name
from quafka_proto.errors import Malformed
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

RunExclusively = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Runs a blocking job while there are no appends."""


class IndexRebuilds:
    """Rebuilds each bad index once."""

    def __init__(self, disk: Disk, contents: Contents, run_exclusively: RunExclusively) -> None:
        self._disk = disk
        self._contents = contents
        self._run_exclusively = run_exclusively
        self._tasks: dict[tuple[int, int], asyncio.Task[bool]] = {}  # by number and salt

    async def close(self) -> None:
        """Wait for running rebuilds."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def rebuild(self, segment: Segment) -> bool:
        """Rebuild a segment's index; False if a retry of the read cannot succeed."""
        key = segment.number, segment.salt
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._rebuild(segment))
        elif task.done():
            return False
        return await asyncio.shield(task)

    async def _rebuild(self, segment: Segment) -> bool:
        job = partial(rebuild_index, self._disk, segment)
        async with self._contents.naming:
            try:
                if segment is self._contents.segments[-1]:
                    return await self._run_exclusively(job)
                if segment in self._contents.segments:
                    return await asyncio.to_thread(job)
            except (OSError, Malformed) as e:
                log.warning("%s cannot be rebuilt: %s", index_name(segment.number), e)
                return False
        return True  # the segment was rewritten or freed meanwhile


def rebuild_index(disk: Disk, segment: Segment) -> bool:
    """Replace a segment's index by one built from its log. Blocks.

    There must be no appends meanwhile, and no other file may get the index's name.

    Returns:
        False if the log has fewer entries than the index had: both are damaged, and the next
        start determines which records are lost.

    Raises:
        OSError: the old index is still in place.
    """
    name = index_name(segment.number)
    old = segment.index.read(FILE_HEADER_SIZE, segment.index.size())
    rows: list[IndexRow] = []
    for found in scan(segment.log, segment.salt, FILE_HEADER_SIZE, segment.log.size(), None):
        if isinstance(found, IndexRow):
            rows.append(found)
        elif isinstance(found, Bad):
            known = [found.row] if found.row is not None else good_rows(old, found)
            rows += [row._replace(flags=row.flags | ROW_DAMAGED) for row in known]
    if len(rows) < segment.entries:
        log.error("%s cannot be rebuilt while the broker runs", name)
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
    segment.index = index  # the old file is closed once its last reader releases it
    log.warning("%s was damaged and has been rebuilt", name)
    return True
