"""The open and aborted transactions of a partition.

Kafka writes a `.snapshot` of the producers when it begins a segment and when it stops, and a
`.txnindex` with each segment. After the last snapshot, the batches are scanned.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from quafka_broker.kafka_logs.batch_file import BatchFile, Placed
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import content_of, open_file
from quafka_proto.errors import Malformed
from quafka_proto.kafka_log_format import (
    ABORTED_ROW_SIZE,
    KafkaAbortedTransaction,
    ProducerEntry,
    aborted_transactions,
    producer_entries,
)
from quafka_proto.record_codec import MarkerType, TransactionMarker, iter_records, read_marker
from quafka_proto.records import CONTROL, TRANSACTIONAL

_MARKER_LIMIT = 64 << 10
_ROWS = 1 << 10
_END_OF_TIME = 1 << 63


class OpenTransactions:
    """The state of transactions after a prefix of the partition. For one thread at a time.

    Attributes:
        offset: the end of the prefix.
        first_offsets: the first offset of each producer's open transaction.
        aborted: the transactions aborted since `since`, by marker.
        since: the offset from which batches were scanned.
    """

    def __init__(self, offset: int, producers: Iterable[ProducerEntry] = ()) -> None:
        self.offset = self.since = offset
        self.first_offsets = {p.producer_id: p.open_from for p in producers if p.open_from >= 0}
        self.aborted: list[KafkaAbortedTransaction] = []

    def last_stable(self, end: int) -> int:
        """The last stable offset of a log that ends here."""
        return min(self.first_offsets.values(), default=end)

    def forget(self, end: int) -> None:
        """Leave the aborted transactions before an offset to their segments' indexes."""
        self.aborted = [each for each in self.aborted if each.last_offset >= end]
        self.since = max(self.since, end)

    def advance(self, file: BatchFile, batches: Iterator[Placed]) -> None:
        """Take the next batches of the log. Raises KafkaLogError."""
        for placed in batches:
            header = placed.header
            if header.base_offset < self.offset:
                continue
            self.offset = header.last_offset + 1
            if not header.attributes & TRANSACTIONAL:
                continue
            if not header.attributes & CONTROL:
                self.first_offsets.setdefault(header.producer_id, header.base_offset)
                continue
            marker = marker_of(file, placed)
            first = self.first_offsets.pop(header.producer_id, None)
            if first is None or marker is None or marker.type is not MarkerType.ABORT:
                continue
            stable = self.last_stable(self.offset)
            self.aborted.append(
                KafkaAbortedTransaction(header.producer_id, first, header.last_offset, stable)
            )


def marker_of(file: BatchFile, placed: Placed) -> TransactionMarker | None:
    """The marker in a control batch; None if it has another record, or was emptied by compaction.

    Raises:
        KafkaLogError: the batch is damaged.
    """
    if not placed.header.record_count:
        return None
    if placed.header.length > _MARKER_LIMIT:
        raise KafkaLogError(file.path, "a control batch is too long", placed.position)
    ((_, batch),) = file.read(placed.position, placed.header.length)
    try:
        record = next(iter_records(batch, _MARKER_LIMIT), None)
        return None if record is None else read_marker(record)
    except Malformed as e:
        raise KafkaLogError(file.path, str(e), placed.position) from e


def newest_snapshot(
    snapshots: list[tuple[int, Path]], end: int
) -> tuple[int, list[ProducerEntry]] | None:
    """The newest whole snapshot of at most this offset: the offset, and the producers."""
    for offset, path in reversed(snapshots):
        if offset > end:
            continue
        try:
            return offset, read_snapshot(path)
        except KafkaLogError:
            continue  # like Kafka, fall back to an older one
    return None


def read_snapshot(path: Path) -> list[ProducerEntry]:
    """A `.snapshot` file. Raises KafkaLogError."""
    try:
        return producer_entries(content_of(path))
    except Malformed as e:
        raise KafkaLogError(path, str(e)) from e


def indexed(path: Path, first: int) -> Iterator[KafkaAbortedTransaction]:
    """The rows of a `.txnindex` with markers from `first` on, by marker; none without a file.

    Raises:
        KafkaLogError
    """
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        return
    try:
        rows = os.fstat(descriptor).st_size // ABORTED_ROW_SIZE

        def read(number: int, count: int) -> list[KafkaAbortedTransaction]:
            data = os.pread(descriptor, count * ABORTED_ROW_SIZE, number * ABORTED_ROW_SIZE)
            return aborted_transactions(data)

        def marker(number: int) -> int:
            found = read(number, 1)
            return found[0].last_offset if found else _END_OF_TIME

        at = bisect_left(range(rows), first, key=marker)
        while at < rows and (found := read(at, _ROWS)):
            yield from found
            at += len(found)
    except Malformed as e:
        raise KafkaLogError(path, str(e)) from e
    except OSError as e:
        raise KafkaLogError(path, e.strerror or str(e)) from e
    finally:
        os.close(descriptor)


def overlapping(
    rows: Sequence[KafkaAbortedTransaction], first: int, end: int
) -> Iterator[KafkaAbortedTransaction]:
    """The transactions with records or markers in [first, end), from rows by marker."""
    for row in rows[bisect_left(rows, first, key=attrgetter("last_offset")) :]:
        if row.first_offset < end:
            yield row
