"""Tasks of about the same size: each reads ranges of index rows, and the batches they point to.

Zones show which pieces have wanted records, and which rows to read, before any data is read. Where
only some offsets of a zone are wanted, the planner reads the rows, so that a narrow scan gets no
more tasks than its bytes are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np

from pyspark_quafka.decode import Wanted
from pyspark_quafka.index_rows import Source, keys_of, read_rows, which_source
from pyspark_quafka.options import Options
from pyspark_quafka.scan import Scan, Slice
from pyspark_quafka.snapshot import Snapshot
from quafka_proto.snapshot_format import Piece

TASK_BYTES = 32 << 20
"""Bytes of record batches that one task reads, unless options set a number of partitions."""


@dataclass(frozen=True)
class Part:
    """Rows of a piece, the bytes of the wanted batches in them, and their sources."""

    slice: Slice
    bytes: int
    sources: tuple[int, ...]


def plan(snapshot: Snapshot, sources: Sequence[Source], options: Options) -> list[Scan]:
    """The scans that read these partitions between these offsets."""
    if not sources:
        return []
    if options.max_records is not None:
        limit = options.max_records
        if options.min_partitions is not None:
            records = sum(source.end - source.start for source in sources)
            limit = min(limit, ceil(records / options.min_partitions))
        pieces = [piece for source in sources for piece in _split_offsets(source, limit)]
        return [scan for piece in pieces for scan in _one_task(snapshot, piece, options)]
    parts = list(parts_of(snapshot, sources))
    total = sum(part.bytes for part in parts)
    size = TASK_BYTES
    if options.min_partitions is not None:
        size = max(1, min(size, total // options.min_partitions))
    return [
        scan_of(task, sources, options)
        for task in _pack([p for part in parts for p in _split(part, size)], size)
    ]


def _split_offsets(source: Source, limit: int) -> Iterator[Source]:
    """Equal ranges of at most `limit` offsets, as Kafka's source splits them."""
    many = ceil((source.end - source.start) / limit)
    step = ceil((source.end - source.start) / many)
    for start in range(source.start, source.end, step):
        yield replace(source, start=start, end=min(start + step, source.end))


def _one_task(snapshot: Snapshot, source: Source, options: Options) -> Iterator[Scan]:
    parts = list(parts_of(snapshot, [source]))
    if parts:
        yield scan_of(parts, [source], options)


def scan_of(parts: Sequence[Part], sources: Sequence[Source], options: Options) -> Scan:
    """The scan that reads these parts."""
    named = sorted({number for part in parts for number in part.sources})
    return Scan(
        options.path,
        options.storage,
        tuple(part.slice for part in parts),
        tuple(sources[number] for number in named),
        Wanted(options.columns),
        options.mode,
    )


# --- which rows -----------------------------------------------------------------------------


def parts_of(snapshot: Snapshot, sources: Sequence[Source]) -> Iterator[Part]:
    """The parts of each piece that have wanted records."""
    starts = np.array([source.start for source in sources], np.int64)
    ends = np.array([source.end for source in sources], np.int64)
    for piece, zones in zip(snapshot.manifest.pieces, snapshot.zones, strict=True):
        of = which_source(zones["key"], sources)
        first, end = zones["first_offset"].astype(np.int64), zones["end_offset"].astype(np.int64)
        wanted = (of >= 0) & (first < ends[of]) & (end > starts[of])
        if not wanted.any():
            continue
        whole = (first >= starts[of]) & (end <= ends[of])
        zones, of = zones[wanted], of[wanted]
        part = Part(
            Slice(piece, int(zones["first_row"].min()), int(zones["end_row"].max())),
            int(zones["bytes"].sum()),
            tuple(of.tolist()),
        )
        if not whole[wanted].all():
            yield from _narrowed(snapshot, piece, part, sources)
        else:
            yield part


def _narrowed(
    snapshot: Snapshot, piece: Piece, part: Part, sources: Sequence[Source]
) -> Iterator[Part]:
    """The part from the first to the last wanted row."""
    first_row = part.slice.first
    rows, wrong = read_rows(snapshot.store, piece, first_row, part.slice.end)
    if wrong:  # the task reports them
        yield part
        return
    named = [sources[number] for number in part.sources]
    of = which_source(keys_of(rows), named)
    base = rows["base_offset"].astype(np.int64)
    inside = of >= 0
    inside &= base < np.array([source.end for source in named], np.int64)[of]
    after = base + rows["record_count"]
    inside &= after > np.array([source.start for source in named], np.int64)[of]
    found = np.flatnonzero(inside)
    if len(found):
        narrowed = Slice(piece, first_row + int(found[0]), first_row + int(found[-1]) + 1)
        yield Part(narrowed, int(rows["length"][found].sum(dtype=np.int64)), part.sources)


# --- of much the same size ------------------------------------------------------------------


def _split(part: Part, size: int) -> Iterator[Part]:
    """A part in ranges of rows of about `size` bytes each."""
    first, end = part.slice.first, part.slice.end
    many = max(1, min(end - first, round(part.bytes / size)))
    bounds = [first + (end - first) * number // many for number in range(many + 1)]
    for low, high in pairwise(bounds):
        rows = Slice(part.slice.piece, low, high)
        yield Part(rows, part.bytes // many, part.sources)


def _pack(parts: Sequence[Part], size: int) -> Iterator[list[Part]]:
    """Parts grouped into tasks of about `size` bytes, in the order of the log."""
    task: list[Part] = []
    room = size
    for part in parts:
        if task and part.bytes > room:
            yield task
            task, room = [], size
        task.append(part)
        room -= part.bytes
    if task:
        yield task
