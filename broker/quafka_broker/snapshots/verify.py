"""Verifies a snapshot: reads every byte, and checks offsets and transactions."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from quafka_broker.snapshots.verify_transactions import FoundTransactions
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    ROW_DAMAGED,
    ROW_TRANSACTIONAL,
    IndexRow,
    check_entry,
    check_file_header,
    decode_row,
)
from quafka_proto.snapshot_format import (
    SegmentPiece,
    SnapshotManifest,
    SnapshotPartition,
    SnapshotTopic,
)
from quafka_proto.zone_format import ZoneBuilder, decode_zones

_ROWS_PER_READ = 4096
_READ_BYTES = 8 << 20

_Key = tuple[bytes, int, int, int]
"""Topic hash, org, partition, generation."""


class PieceReport(NamedTuple):
    """A piece, and its faults."""

    piece: SegmentPiece
    entries: int
    faults: list[str]


class SnapshotVerification:
    """The verification of one snapshot."""

    def __init__(
        self, store: ObjectStore, manifest: SnapshotManifest, *, zones: bool = True
    ) -> None:
        """`zones`: whether the pieces have zones files to check."""
        self._store = store
        self._zones = zones
        self._manifest = manifest
        self._wanted = {
            (bytes.fromhex(topic.topic_hash), topic.org, partition.partition, topic.generation): (
                topic,
                partition,
            )
            for topic in manifest.topics
            for partition in topic.partitions
        }
        # First and end offsets of each batch, alternately.
        self._found: dict[_Key, array[int]] = {key: array("Q") for key in self._wanted}
        self._transactions: defaultdict[_Key, FoundTransactions] = defaultdict(FoundTransactions)

    def pieces(self) -> Iterator[PieceReport]:
        """Read all pieces. Blocks. Raises OSError if the store fails."""
        for piece in self._manifest.pieces:
            faults: list[str] = []
            try:
                self._piece(piece, faults)
            except (ObjectNotFoundError, Malformed) as e:
                faults.append(str(e))
            yield PieceReport(piece, piece.rows, faults)

    def missing(self) -> list[str]:
        """Offsets and ends of transactions that are in the manifest but in no piece.

        Call it after `pieces`.
        """
        faults: list[str] = []
        for key, (topic, partition) in self._wanted.items():
            offsets = self._found[key]
            batches = list(zip(offsets[::2], offsets[1::2], strict=True))
            ranges = sorted([*batches, *((first, end) for first, end in partition.lost)])
            if topic.is_copied:  # its offsets have gaps, which are not listed
                ranges = [(partition.log_start, partition.log_start), *ranges]
                faults += _twice(topic, partition, ranges)
            elif partition.gone and _missing(partition, ranges) == partition.gone:
                faults += _twice(topic, partition, ranges)
            else:
                faults += _gaps(topic, partition, ranges)
            transactions = self._transactions.get(key)
            if transactions is not None or partition.has_transactions:
                found = transactions or FoundTransactions()
                faults += found.faults(_name(topic, partition), partition)
        return faults

    def _piece(self, piece: SegmentPiece, faults: list[str]) -> None:
        if piece.position == 0:
            head = self._store.read(piece.log, piece.log_offset, FILE_HEADER_SIZE)
            number = self._manifest.number_in_file(piece)
            if check_file_header(head, LOG_MAGIC, number).salt != piece.salt:
                faults.append(f"{piece.log} has another salt")
        builder = ZoneBuilder()
        size = FILE_HEADER_SIZE if piece.position == 0 else 0
        for data in self._rows(piece):
            builder.add(data)
            rows = [decode_row(data, at) for at in range(0, len(data), INDEX_ROW_SIZE)]
            rows.sort(key=lambda row: row.position)
            size += sum(ENTRY_HEADER_SIZE + row.length for row in rows)
            self._entries(piece, rows, faults)
        if size != piece.length:
            faults.append(f"its entries have {size} bytes, not {piece.length}")
        if self._zones and decode_zones(self._store.read(piece.zones)) != builder.zones():
            faults.append(f"{piece.zones} does not match the index rows")

    def _rows(self, piece: SegmentPiece) -> Iterator[bytes]:
        for start in range(0, piece.rows, _ROWS_PER_READ):
            size = INDEX_ROW_SIZE * min(_ROWS_PER_READ, piece.rows - start)
            data = self._store.read(piece.index, piece.index_offset + INDEX_ROW_SIZE * start, size)
            if len(data) < size:
                raise Malformed(f"{piece.index} is cut short")
            yield data

    def _entries(self, piece: SegmentPiece, rows: list[IndexRow], faults: list[str]) -> None:
        for group in _neighbours(rows):
            start = group[0].position
            size = group[-1].end - start
            data = memoryview(self._store.read(piece.log, piece.offset_of(start), size))
            for row in group:
                if row.flags & ROW_DAMAGED:
                    continue
                try:
                    entry = check_entry(data, row.position - start, piece.salt)
                except Malformed as e:
                    faults.append(f"{piece.log}, entry at {row.position}: {e}")
                    continue
                if (entry.global_id, entry.base_offset) != (row.global_id, row.base_offset):
                    faults.append(f"{piece.log}, entry at {row.position}: its row does not match")
                    continue
                key = (row.topic_hash, row.org_id, row.partition, row.generation)
                if key in self._found:
                    self._found[key].extend((row.base_offset, row.base_offset + row.record_count))
                    if row.flags & ROW_TRANSACTIONAL:
                        self._transactions[key].add(row)


def _neighbours(rows: list[IndexRow]) -> Iterator[list[IndexRow]]:
    """Rows in the order of positions, in groups whose entries are read together."""
    some: list[IndexRow] = []
    for row in rows:
        if some and (row.position != some[-1].end or row.end - some[0].position > _READ_BYTES):
            yield some
            some = []
        some.append(row)
    if some:
        yield some


def _name(topic: SnapshotTopic, partition: SnapshotPartition) -> str:
    return f"{topic.name}-{partition.partition} of org {topic.org}"


def _missing(partition: SnapshotPartition, ranges: list[tuple[int, int]]) -> int:
    """The number of offsets that are in no range."""
    at, missing = partition.log_start, 0
    for first, end in [*ranges, (partition.high_watermark, partition.high_watermark)]:
        missing += max(0, min(first, partition.high_watermark) - at)
        at = max(at, end)
    return missing


def _twice(
    topic: SnapshotTopic, partition: SnapshotPartition, ranges: list[tuple[int, int]]
) -> Iterator[str]:
    return (fault for fault in _gaps(topic, partition, ranges) if "twice" in fault)


def _gaps(
    topic: SnapshotTopic, partition: SnapshotPartition, ranges: list[tuple[int, int]]
) -> Iterator[str]:
    at = partition.log_start
    name = _name(topic, partition)
    for first, end in [*ranges, (partition.high_watermark, partition.high_watermark)]:
        if first > at and at < partition.high_watermark:
            yield f"{name}: offsets {at} to {min(first, partition.high_watermark) - 1} are missing"
        elif first < at < end and first >= partition.log_start:
            yield f"{name}: offsets {first} to {min(at, end) - 1} exist twice"
        at = max(at, end)
