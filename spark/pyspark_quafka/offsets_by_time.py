"""The first offset at a time: zones first, then index rows, then the records of one batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyspark_quafka.bodies import BATCH_LIMIT
from pyspark_quafka.index_rows import PartitionRange, keys_of, read_rows
from pyspark_quafka.snapshot import Snapshot
from quafka_proto.errors import Malformed
from quafka_proto.log_format import ENTRY_HEADER_SIZE, ROW_DAMAGED
from quafka_proto.record_codec import iter_records
from quafka_proto.records import PATCHED_SIZE, crc32c, read_header
from quafka_proto.snapshot_format import SegmentPiece


def offset_at(
    snapshot: Snapshot, whole: PartitionRange, timestamp: int, *, at_damage: bool = False
) -> int | None:
    """The first offset whose record has this timestamp or a later one, as in Kafka's ListOffsets.

    A damaged batch may hide that record: it is passed over or, with `at_damage`, its offset is
    returned.
    """
    for piece, first, end in _zones_from(snapshot, whole, timestamp):
        rows, _ = read_rows(snapshot.store, piece, first, end)
        mine = keys_of(rows) == whole.key
        mine &= rows["max_timestamp"] >= timestamp
        mine &= rows["base_offset"] + rows["record_count"].astype(np.int64) > whole.start
        for row in np.flatnonzero(mine):
            base = max(int(rows["base_offset"][row]), whole.start)
            try:
                found = _offset_in(snapshot, piece, rows[row], whole.start, timestamp)
            except Malformed:
                found = base if at_damage else None
            if base >= whole.end or (found is not None and found >= whole.end):
                return None
            if found is not None:
                return found
    return None


def _offset_in(
    snapshot: Snapshot, piece: SegmentPiece, row: np.void, start: int, timestamp: int
) -> int | None:
    """The first such offset in one batch, from `start` on. Raises Malformed if it is damaged."""
    if int(row["flags"]) & ROW_DAMAGED:
        raise Malformed("the broker found it damaged")
    at = piece.offset_of(int(row["position"])) + ENTRY_HEADER_SIZE
    batch = snapshot.store.read(piece.log, at, int(row["length"]))
    if crc32c(batch[PATCHED_SIZE:]) != read_header(batch).crc:
        raise Malformed("it does not match its CRC")
    for record in iter_records(batch, BATCH_LIMIT):
        if record.offset >= start and record.timestamp >= timestamp:
            return record.offset
    return None


def _zones_from(
    snapshot: Snapshot, whole: PartitionRange, timestamp: int
) -> Iterator[tuple[SegmentPiece, int, int]]:
    """The rows that may have such a record, in the order of their offsets."""
    found: list[tuple[int, SegmentPiece, int, int]] = []
    for piece, zones in zip(snapshot.manifest.pieces, snapshot.zones, strict=True):
        for zone in zones[zones["key"] == np.bytes_(whole.key)]:
            if zone["max_timestamp"] >= timestamp and zone["end_offset"] > whole.start:
                at = int(zone["first_offset"]), piece, int(zone["first_row"]), int(zone["end_row"])
                found.append(at)
    for _, piece, first, end in sorted(found, key=lambda zone: zone[0]):
        yield piece, first, end
