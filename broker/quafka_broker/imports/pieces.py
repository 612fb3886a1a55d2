"""Converts a partition of Kafka's folders to appends: the same offsets, without transactions.

A batch keeps its bytes, except for its place in the log. Offsets without a record become gaps:
empty batches, which consumers skip. Gaps stand for records that Kafka's compaction has removed, and
for those that the import omits: transaction markers, and batches of aborted transactions. The
batches of committed transactions lose their transactional flag, so consumers of either isolation
level read them.

A transaction that is still open in a stopped Kafka counts as aborted, unless its coordinator had
decided to commit it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.records import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    empty_batch,
    read_header,
    without_transaction,
)

Piece = tuple[BatchHeader, memoryview]
"""A batch to append; its `record_count` is the number of its offsets."""

_READ_BYTES = 4 << 20
_MOST_OFFSETS = (1 << 31) - 1  # of one batch


@dataclass(slots=True)
class PieceChunk:
    """Adjacent pieces.

    Attributes:
        records: the number of records in them.
        source_bytes: their bytes in Kafka's file.
        end: the offset after the last piece.
    """

    end: int
    pieces: list[Piece] = field(default_factory=list[Piece])
    records: int = 0
    source_bytes: int = 0

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Append a batch, after a gap up to its first offset."""
        self.fill(header.base_offset)
        offsets = header.last_offset_delta + 1
        self.pieces.append((header._replace(record_count=offsets), batch))
        self.records += header.record_count
        self.end = header.last_offset + 1

    def fill(self, end: int) -> None:
        """Append a gap up to an offset."""
        while self.end < end:
            offsets = min(end - self.end, _MOST_OFFSETS)
            batch = memoryview(empty_batch(0, offsets))
            self.pieces.append((read_header(batch)._replace(record_count=offsets), batch))
            self.end += offsets


def first_offset(log: PartitionLog) -> int:
    """The first offset of a copy: the log start, or the start of the batch that contains it."""
    batches = log.read(log.log_start, 0) if log.log_start < log.log_end else []
    return min(log.log_start, read_header(batches[0].data).base_offset if batches else 1 << 63)


def chunks(
    log: PartitionLog, start: int, end: int, committed: Collection[int] = ()
) -> Iterator[PieceChunk]:
    """Read the partition from `start` to `end`, some 4 MiB at a time. Blocks.

    `committed`: the producers whose open transaction counts as committed.

    Raises:
        ImportRefusedError: `start` is inside a batch.
        KafkaLogError: a batch is damaged.
    """
    at = done = start
    while at < end:
        # The first batch may begin before the log start.
        batches = log.read(max(at, log.log_start), _READ_BYTES, end)
        chunk = PieceChunk(done)
        first, at = at, batches[-1].next_offset if batches else end
        dropped = _dropped(log, first, at, committed)
        for batch in batches:
            header = read_header(batch.data)
            chunk.source_bytes += len(batch.data)
            if header.base_offset < chunk.end:
                raise ImportRefusedError(
                    f"{log.path}: offset {chunk.end} is inside a batch, which begins at "
                    f"{header.base_offset}: Kafka has rewritten what was imported before"
                )
            if not header.attributes & (TRANSACTIONAL | CONTROL):
                chunk.add(header, batch.data)
            elif not _is_dropped(header, dropped):
                chunk.add(*without_transaction(batch.data))
        if at >= end:
            chunk.fill(end)
        yield chunk
        done = chunk.end


def _dropped(
    log: PartitionLog, first: int, end: int, committed: Collection[int]
) -> dict[int, list[range]]:
    """The offsets of each producer's aborted transactions."""
    found: dict[int, list[range]] = {}
    for each in log.aborted(first, end):
        offsets = range(each.first_offset, each.last_offset + 1)
        found.setdefault(each.producer_id, []).append(offsets)
    for producer, opened in log.view.open_transactions.items():
        if producer not in committed:
            found.setdefault(producer, []).append(range(opened, log.log_end))
    return found


def _is_dropped(header: BatchHeader, dropped: dict[int, list[range]]) -> bool:
    if header.attributes & CONTROL:
        return True
    return any(header.base_offset in offsets for offsets in dropped.get(header.producer_id, ()))
