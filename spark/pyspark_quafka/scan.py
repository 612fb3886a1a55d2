"""Runs a scan: reads index rows, then the batches that they point to, in chunks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_quafka.batches import Batches
from pyspark_quafka.bodies import Arena
from pyspark_quafka.damage import BatchDamage, CorruptBatchError
from pyspark_quafka.decode import Wanted, decode
from pyspark_quafka.errors import QuafkaError
from pyspark_quafka.index_rows import PartitionRange, Rows, keys_of, read_rows, which_range
from pyspark_quafka.options import FAILFAST
from pyspark_quafka.store import open_store
from quafka_objects.errors import ObjectNotFoundError
from quafka_objects.store import ObjectStore
from quafka_proto.errors import Malformed
from quafka_proto.log_format import ENTRY_HEADER_SIZE, ROW_DAMAGED, check_entry_header
from quafka_proto.snapshot_format import SegmentPiece
from quafka_proto.varints import Flags, Longs

_CHUNK_BYTES = 4 << 20
"""Bytes of stored batches that are decoded together."""
_CHUNK_RECORDS = 40_000
_CHUNK_SPAN = 512 << 20
"""The longest range of a mapped file in a chunk: positions in Arrow have 31 bits."""
_GAP = 256 << 10
"""The longest gap in an object store that is read and not skipped: a request costs more."""


@dataclass(frozen=True)
class Slice:
    """Index rows of a piece: from `first` up to, not including, `end`."""

    piece: SegmentPiece
    first: int
    end: int


@dataclass(frozen=True)
class Scan:
    """What one task reads. Spark sends it to executors."""

    path: str
    storage: Mapping[str, str]
    slices: tuple[Slice, ...]
    ranges: tuple[PartitionRange, ...]
    wanted: Wanted
    mode: str = FAILFAST


def run(scan: Scan) -> Iterator[pa.RecordBatch]:
    """The records of a scan, in the order of the log.

    Raises:
        CorruptBatchError: a batch is damaged, and the mode is FAILFAST.
        QuafkaError: a file of the snapshot is missing.
    """
    store = open_store(scan.path, scan.storage)
    arena = Arena()
    try:
        for slice_ in scan.slices:
            yield from _run_slice(store, scan, slice_, arena)
    except ObjectNotFoundError as e:
        raise QuafkaError(f"a file is missing; was its snapshot dropped? {e}") from e


def _run_slice(
    store: ObjectStore, scan: Scan, slice_: Slice, arena: Arena
) -> Iterator[pa.RecordBatch]:
    wanted, damages = _wanted_rows(store, scan, slice_)
    _report(damages, scan.mode)
    names = [(each.topic, each.partition) for each in scan.ranges]
    for first, end in _chunks(wanted.rows, store.is_remote):
        batches, damages = _load(store, slice_.piece, wanted.only(slice(first, end)), names)
        _report(damages, scan.mode)
        for records, more in decode(batches, scan.wanted, arena):
            _report(more, scan.mode)
            if records.num_rows:
                yield records


@dataclass(frozen=True)
class _WantedRows:
    """Index rows, the range of each, and the range's offsets."""

    rows: Rows
    which: Longs
    starts: Longs
    ends: Longs

    def only(self, chosen: Flags | Longs | slice) -> _WantedRows:
        """Some of the rows."""
        return _WantedRows(
            self.rows[chosen], self.which[chosen], self.starts[chosen], self.ends[chosen]
        )


def _wanted_rows(
    store: ObjectStore, scan: Scan, slice_: Slice
) -> tuple[_WantedRows, list[BatchDamage]]:
    """The rows with wanted offsets, in the order of their positions; damaged ones are left out."""
    piece = slice_.piece
    rows, wrong = read_rows(store, piece, slice_.first, slice_.end)
    damages = [
        BatchDamage("", -1, -1, f"row {slice_.first + row} of {piece.index} does not match its CRC")
        for row in wrong
    ]
    which = which_range(keys_of(rows), scan.ranges)
    which[wrong] = -1
    mine = np.flatnonzero(which >= 0)
    rows, which = rows[mine], which[mine]
    starts = np.array([each.start for each in scan.ranges], np.int64)[which]
    ends = np.array([each.end for each in scan.ranges], np.int64)[which]
    base = rows["base_offset"].astype(np.int64)
    inside = (base < ends) & (base + rows["record_count"] > starts)
    damaged = rows["flags"] & ROW_DAMAGED != 0
    for row in np.flatnonzero(inside & damaged):
        found = scan.ranges[int(which[row])]
        reason = "the broker found it damaged"
        damages.append(BatchDamage(found.topic, found.partition, int(base[row]), reason))
    wanted = _WantedRows(rows, which, starts, ends).only(inside & ~damaged)
    position = wanted.rows["position"].astype(np.int64)
    if (np.diff(position) < 0).any():  # a rewritten segment, which is read from front to back
        wanted = wanted.only(np.argsort(position, kind="stable"))
    return wanted, damages


def _before(ascending: Longs, limit: int) -> int:
    """How many of the values are not above the limit."""
    return int(np.searchsorted(ascending, limit, "right"))


def _chunks(rows: Rows, far: bool) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are decoded together: first and end."""
    if not len(rows):
        return
    length = rows["length"].astype(np.int64) + ENTRY_HEADER_SIZE
    position = rows["position"].astype(np.int64)
    end = position + length
    records = rows["record_count"].astype(np.int64)
    bytes_until: Longs = np.cumsum(length)
    records_until: Longs = np.cumsum(records)
    first = 0
    while first < len(rows):
        until = min(
            _before(bytes_until, int(bytes_until[first] - length[first]) + _CHUNK_BYTES),
            _before(records_until, int(records_until[first] - records[first]) + _CHUNK_RECORDS),
            _before(end, int(position[first]) + _CHUNK_SPAN),
        )
        until = max(until, first + 1)
        if far:
            gaps = np.flatnonzero(position[first + 1 : until] - end[first : until - 1] > _GAP)
            until = first + 1 + int(gaps[0]) if len(gaps) else until
        yield first, until
        first = until


def _load(
    store: ObjectStore, piece: SegmentPiece, chunk: _WantedRows, names: list[tuple[str, int]]
) -> tuple[Batches, list[BatchDamage]]:
    """The batches of a chunk, after checking that their entries are those of the rows."""
    rows = chunk.rows
    position = rows["position"].astype(np.int64)
    length = rows["length"].astype(np.int64)
    start, end = int(position[0]), int((position + length).max()) + ENTRY_HEADER_SIZE
    view = store.view(piece.log, piece.offset_of(start), end - start)
    at = position - start
    damages: list[BatchDamage] = []
    whole = np.ones(len(rows), np.bool_)
    for number, (where, global_id) in enumerate(
        zip(at.tolist(), rows["global_id"].tolist(), strict=True)
    ):
        try:
            _check_entry(view, where, piece.salt, global_id)
        except Malformed as e:
            whole[number] = False
            topic, partition = names[int(chunk.which[number])]
            damages.append(BatchDamage(topic, partition, int(rows["base_offset"][number]), str(e)))
    data = np.frombuffer(view, np.uint8)
    batches = Batches(
        data, at + ENTRY_HEADER_SIZE, length, chunk.which, chunk.starts, chunk.ends, names
    )
    return (batches.only(whole) if damages else batches), damages


def _check_entry(data: memoryview, at: int, salt: int, global_id: int) -> None:
    entry = check_entry_header(data, at, salt)
    if entry.global_id != global_id or at + entry.size > len(data):
        raise Malformed("its entry is not the one that the index names")


def _report(damages: list[BatchDamage], mode: str) -> None:
    if damages and mode == FAILFAST:
        raise CorruptBatchError(damages)
    for damage in damages:
        warnings.warn(f"left out: {damage}", RuntimeWarning, stacklevel=2)
