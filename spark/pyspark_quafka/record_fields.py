"""The positions of the fields of records, in numpy.

No Python code runs per record: `varints` reads one field of all records at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyspark_quafka.batches import BatchHeaders
from pyspark_quafka.bodies import Bodies
from pyspark_quafka.columns import HEADERS
from pyspark_quafka.record_starts import find_records
from quafka_proto.records import LEAST_RECORD, LOG_APPEND_TIME
from quafka_proto.varints import Bytes, Flags, Longs, read_varints

_LAST_MS = ((1 << 63) - 1) // 1_000
"""The last time that Spark has, in ms: its times are in µs."""


Pieces = tuple[Longs, Longs]
"""Positions and sizes; a size of -1 is null."""


@dataclass(frozen=True)
class RecordHeaders:
    """The headers of all records, in the order of the records."""

    bounds: Longs
    """For each record the number of its first header; at the end, the count of all headers."""
    names: Pieces
    values: Pieces


@dataclass(frozen=True)
class Records:
    """Records, as the positions of their fields in `data`."""

    data: Bytes
    batch: Longs
    offset: Longs
    timestamp: Longs
    keys: Pieces
    values: Pieces
    headers: RecordHeaders | None


def read_records(
    headers: BatchHeaders, bodies: Bodies, columns: Sequence[str]
) -> tuple[Records, Flags]:
    """All records, and which batches are garbled: the results for those are meaningless."""
    data = bodies.data
    counts = headers["record_count"].astype(np.int64)
    batch = np.repeat(np.arange(len(counts)), counts)
    found = find_records(data, bodies.starts, bodies.ends, counts)
    size, at = read_varints(data, found)
    ends = at + size
    timestamp, at = read_varints(data, at + 1)  # after the unused attributes
    delta, at = read_varints(data, at)
    key_size, key = read_varints(data, at)
    value_size, value = read_varints(data, key + np.maximum(key_size, 0))
    header_count, header_at = read_varints(data, value + np.maximum(value_size, 0))
    fits = (found >= bodies.starts[batch]) & (ends <= bodies.ends[batch])
    # Check each size alone first: sums of garbled sizes may have wrapped around.
    fits &= (size >= LEAST_RECORD - 1) & (size <= len(data))
    for part, least in ((key_size, -1), (value_size, -1), (header_count, 0)):
        fits &= (part >= least) & (part <= size)
    fits &= (header_at + 2 * header_count <= ends) & ((header_count > 0) | (header_at == ends))
    fits &= (delta >= 0) & (delta <= headers["last_offset_delta"].astype(np.int64)[batch])
    walked = None
    if HEADERS in columns:
        walked, headers_fit = _walk_headers(data, header_at, np.where(fits, header_count, 0), ends)
        fits &= headers_fit
    timestamp = _timestamps(headers, batch, timestamp)
    if "timestamp" in columns:
        fits &= (timestamp >= -_LAST_MS) & (timestamp <= _LAST_MS)
    garbled: Flags = np.zeros(len(counts), np.bool_)
    garbled[batch[~fits]] = True
    after_last = np.zeros(len(counts), np.int64)
    after_last[batch] = ends
    garbled |= after_last != bodies.ends
    offset = headers["base_offset"].astype(np.int64)[batch] + delta
    pieces = (key, key_size), (value, value_size)
    return Records(data, batch, offset, timestamp, *pieces, walked), garbled


def _timestamps(headers: BatchHeaders, batch: Longs, delta: Longs) -> Longs:
    timestamp: Longs = headers["base_timestamp"].astype(np.int64)[batch] + delta
    appended = headers["attributes"] & LOG_APPEND_TIME != 0
    if not appended.any():
        return timestamp
    newest = headers["max_timestamp"].astype(np.int64)
    return np.where(appended[batch], newest[batch], timestamp)


def _walk_headers(
    data: Bytes, at: Longs, counts: Longs, ends: Longs
) -> tuple[RecordHeaders, Flags]:
    """The headers of all records, and which records they fit. Each step reads one more header of
    every record."""
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    many = int(bounds[-1])
    names = (np.zeros(many, np.int64), np.zeros(many, np.int64))
    values = (np.zeros(many, np.int64), np.zeros(many, np.int64))
    fits: Flags = np.ones(len(counts), np.bool_)
    active = np.flatnonzero(counts)
    cursor = at[active]
    step = 0
    while len(active):
        slot = bounds[active] + step
        name_size, name = read_varints(data, cursor)
        value_size, value = read_varints(data, name + np.maximum(name_size, 0))
        cursor = value + np.maximum(value_size, 0)
        room = ends[active] - at[active]
        good = (name_size >= 0) & (name_size <= room) & (value_size >= -1) & (value_size <= room)
        good &= cursor <= ends[active]
        names[0][slot], names[1][slot] = name, name_size
        values[0][slot], values[1][slot] = value, value_size
        step += 1
        more = counts[active] > step
        good &= more | (cursor == ends[active])
        fits[active[~good]] = False
        active, cursor = active[more & good], cursor[more & good]
    return RecordHeaders(bounds, names, values), fits
