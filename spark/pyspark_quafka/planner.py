"""Tasks of about the same size: each reads ranges of index rows, and the batches they point to.

Zones show which pieces have wanted records, and which rows to read, before any data is read. Where
only some offsets of a zone are wanted, the planner reads the rows, so that a narrow scan gets no
more tasks than its bytes are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np

from pyspark_quafka.aborted import aborted_in
from pyspark_quafka.decode import Wanted
from pyspark_quafka.index_rows import PartitionRange, keys_of, read_rows, which_range
from pyspark_quafka.options import READ_COMMITTED, Options
from pyspark_quafka.scan import Scan, Slice
from pyspark_quafka.snapshot import Snapshot
from quafka_proto.snapshot_format import SegmentPiece
from quafka_proto.varints import Longs

TASK_BYTES = 32 << 20
"""Bytes of record batches that one task reads, unless options set a number of partitions."""


@dataclass(frozen=True)
class SizedSlice:
    """Rows of a piece, and the bytes of the wanted batches in them.

    Attributes:
        ranges: the numbers of the ranges that they are in, each with the offsets that the piece
            has of it: first and end.
    """

    slice: Slice
    bytes: int
    ranges: Mapping[int, tuple[int, int]]


def plan(snapshot: Snapshot, ranges: Sequence[PartitionRange], options: Options) -> list[Scan]:
    """The scans that read these partitions between these offsets."""
    if not ranges:
        return []
    if options.max_records is not None:
        limit = options.max_records
        if options.min_partitions is not None:
            records = sum(r.end - r.start for r in ranges if not _has_gaps(snapshot, r))
            limit = max(1, min(limit, ceil(records / options.min_partitions)))
        dense = [range_ for range_ in ranges if not _has_gaps(snapshot, range_)]
        pieces = [piece for range_ in dense for piece in _split_offsets(range_, limit)]
        scans = [scan for piece in pieces for scan in _one_task(snapshot, piece, options)]
        ranges = [range_ for range_ in ranges if _has_gaps(snapshot, range_)]
        return [*scans, *plan(snapshot, ranges, replace(options, max_records=None))]
    slices = list(sized_slices(snapshot, ranges))
    total = sum(sized.bytes for sized in slices)
    size = TASK_BYTES
    if options.min_partitions is not None:
        size = max(1, min(size, total // options.min_partitions))
    return [
        scan_of(snapshot, task, ranges, options)
        for task in _pack([p for sized in slices for p in _split(sized, size)], size)
    ]


def _has_gaps(snapshot: Snapshot, range_: PartitionRange) -> bool:
    """Whether the number of offsets says nothing about the number of records."""
    topic = snapshot.manifest.topic(range_.org, range_.topic)
    return topic is not None and topic.is_copied


def _split_offsets(range_: PartitionRange, limit: int) -> Iterator[PartitionRange]:
    """Equal ranges of at most `limit` offsets, as Kafka's source splits them."""
    many = ceil((range_.end - range_.start) / limit)
    step = ceil((range_.end - range_.start) / many)
    for start in range(range_.start, range_.end, step):
        yield replace(range_, start=start, end=min(start + step, range_.end))


def _one_task(snapshot: Snapshot, range_: PartitionRange, options: Options) -> Iterator[Scan]:
    slices = list(sized_slices(snapshot, [range_]))
    if slices:
        yield scan_of(snapshot, slices, [range_], options)


def scan_of(
    snapshot: Snapshot,
    slices: Sequence[SizedSlice],
    ranges: Sequence[PartitionRange],
    options: Options,
) -> Scan:
    """The scan that reads these slices."""
    named = sorted({number for sized in slices for number in sized.ranges})
    aborted = None
    if options.isolation == READ_COMMITTED and snapshot.aborted:
        aborted = aborted_in(
            snapshot.aborted,
            [(ranges[number].key, *_offsets(slices, number)) for number in named],
        )
    return Scan(
        options.path,
        options.storage,
        tuple(sized.slice for sized in slices),
        tuple(ranges[number] for number in named),
        Wanted(options.columns, aborted),
        options.mode,
    )


def _offsets(slices: Sequence[SizedSlice], number: int) -> tuple[int, int]:
    """The first and the end offset that the slices' pieces have of a range."""
    found = [sized.ranges[number] for sized in slices if number in sized.ranges]
    return min(first for first, _ in found), max(end for _, end in found)


# --- which rows -----------------------------------------------------------------------------


def sized_slices(snapshot: Snapshot, ranges: Sequence[PartitionRange]) -> Iterator[SizedSlice]:
    """The rows of each piece that have wanted records."""
    starts = np.array([range_.start for range_ in ranges], np.int64)
    ends = np.array([range_.end for range_ in ranges], np.int64)
    for piece, zones in zip(snapshot.manifest.pieces, snapshot.zones, strict=True):
        of = which_range(zones["key"], ranges)
        first, end = zones["first_offset"].astype(np.int64), zones["end_offset"].astype(np.int64)
        wanted = (of >= 0) & (first < ends[of]) & (end > starts[of])
        if not wanted.any():
            continue
        whole = (first >= starts[of]) & (end <= ends[of])
        zones, of = zones[wanted], of[wanted]
        sized = SizedSlice(
            Slice(piece, int(zones["first_row"].min()), int(zones["end_row"].max())),
            int(zones["bytes"].sum()),
            _by_range(of, first[wanted], end[wanted]),
        )
        if not whole[wanted].all():
            yield from _narrowed(snapshot, piece, sized, ranges)
        else:
            yield sized


def _by_range(of: Longs, first: Longs, end: Longs) -> dict[int, tuple[int, int]]:
    offsets = zip(first.tolist(), end.tolist(), strict=True)
    return dict(zip(of.tolist(), offsets, strict=True))


def _narrowed(
    snapshot: Snapshot, piece: SegmentPiece, sized: SizedSlice, ranges: Sequence[PartitionRange]
) -> Iterator[SizedSlice]:
    """The slice from the first to the last wanted row."""
    first_row = sized.slice.first
    rows, wrong = read_rows(snapshot.store, piece, first_row, sized.slice.end)
    if wrong:  # the task reports them
        yield sized
        return
    named = [ranges[number] for number in sized.ranges]
    of = which_range(keys_of(rows), named)
    base = rows["base_offset"].astype(np.int64)
    inside = of >= 0
    inside &= base < np.array([range_.end for range_ in named], np.int64)[of]
    after = base + rows["record_count"]
    inside &= after > np.array([range_.start for range_ in named], np.int64)[of]
    found = np.flatnonzero(inside)
    if len(found):
        narrowed = Slice(piece, first_row + int(found[0]), first_row + int(found[-1]) + 1)
        yield SizedSlice(narrowed, int(rows["length"][found].sum(dtype=np.int64)), sized.ranges)


# --- of much the same size ------------------------------------------------------------------


def _split(sized: SizedSlice, size: int) -> Iterator[SizedSlice]:
    """A slice in slices of about `size` bytes each."""
    first, end = sized.slice.first, sized.slice.end
    many = max(1, min(end - first, round(sized.bytes / size)))
    bounds = [first + (end - first) * number // many for number in range(many + 1)]
    for low, high in pairwise(bounds):
        rows = Slice(sized.slice.piece, low, high)
        yield SizedSlice(rows, sized.bytes // many, sized.ranges)


def _pack(slices: Sequence[SizedSlice], size: int) -> Iterator[list[SizedSlice]]:
    """Slices grouped into tasks of about `size` bytes, in the order of the log."""
    task: list[SizedSlice] = []
    room = size
    for sized in slices:
        if task and sized.bytes > room:
            yield task
            task, room = [], size
        task.append(sized)
        room -= sized.bytes
    if task:
        yield task
