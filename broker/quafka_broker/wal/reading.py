"""From a virtual offset to the bytes on disk: which entries to read, neighbours in one run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quafka_broker.virtual_topics import VirtualTopic, VirtualTopicId
from quafka_broker.wal.segment import Rows, Segment
from quafka_proto.log_format import ENTRY_HEADER_SIZE, IndexRow

_ROWS_AHEAD = 64


class Run(NamedTuple):
    """Entries that lie side by side in one segment and are read at once."""

    segment: Segment
    rows: list[IndexRow]

    @property
    def position(self) -> int:
        """Where the first entry begins."""
        return self.rows[0].position

    @property
    def size(self) -> int:
        """Bytes from there to the end of the last entry."""
        return self.rows[-1].end - self.position

    def batches(self, data: bytes | bytearray) -> list[memoryview]:
        """Cut what was read into record batches, without copying."""
        view = memoryview(data)
        starts = [row.position - self.position + ENTRY_HEADER_SIZE for row in self.rows]
        return [
            view[start : start + row.length] for start, row in zip(starts, self.rows, strict=True)
        ]


def plan(
    segments: Sequence[Segment],
    topic: VirtualTopic,
    offset: int,
    max_bytes: int,
    *,
    at_least_one: bool,
) -> list[Run]:
    """What to read for whole batches from `offset` on, together at most `max_bytes`.

    Raises:
        OSError, Malformed: the index cannot be read.
    """
    runs: list[Run] = []
    taken = 0
    for segment, row in entries_from(segments, topic, offset):
        if taken + row.length > max_bytes and (taken or not at_least_one):
            break
        taken += row.length
        last = runs[-1] if runs else None
        if last is not None and last.segment is segment and last.rows[-1].end == row.position:
            last.rows.append(row)
        else:
            runs.append(Run(segment, [row]))
    return runs


def entries_from(
    segments: Sequence[Segment], topic: VirtualTopic, offset: int
) -> Iterator[tuple[Segment, IndexRow]]:
    """The entry that holds a readable offset, and all of the virtual topic behind it.

    Raises:
        OSError, Malformed: the index cannot be read.
    """
    segment: Segment | None = None
    block: Rows | None = None
    number = 0
    while offset < topic.high_watermark:
        number += 1
        row = _if_next(block, number, topic.id, offset)
        if row is None or segment is None:
            global_id = topic.global_id_at(offset)
            segment = segments[bisect_right(segments, global_id, key=_first_id) - 1]
            number = segment.row_number(global_id)
            if block is None or block.segment is not segment or number not in block:
                block = segment.rows(number, _ROWS_AHEAD)
            row = block.row(number)
        yield segment, row
        offset = row.base_offset + row.record_count


def _if_next(
    block: Rows | None, number: int, topic: VirtualTopicId, offset: int
) -> IndexRow | None:
    """The row behind the last one, where it happens to be the one: no search is needed."""
    if block is None or number not in block:
        return None
    row = block.row(number)
    same = (
        row.base_offset == offset
        and row.topic_hash == topic.topic_hash
        and row.partition == topic.partition
        and row.org_id == topic.org_id
        and row.generation == topic.generation
    )
    return row if same else None


def _first_id(segment: Segment) -> int:
    """An empty segment is the last: no id is in it."""
    first = segment.first_id
    return 1 << 64 if first is None else first
