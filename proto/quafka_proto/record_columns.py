"""Reads the fields of many records at once, in numpy. `record_check` imports this when needed.

Garbled lengths may lead to any position in the data: reading there returns some byte, and fields
that do not fit their record are rejected.
"""

from __future__ import annotations

import numpy as np

from quafka_proto.varints import Bytes, Flags, Longs, read_varints

_MOST_HEADERS = 16
_FEWEST_LANES = 64
"""For fewer adjacent records, a step of numpy costs more than a loop over them."""


def check(
    data: bytes | bytearray | memoryview, starts: list[int], end: int, first: int, stop: int
) -> tuple[int, int, bool] | None:
    """The lowest and the highest timestamp delta of valid records, and whether one has no key.

    The records begin at `starts`, end at `end`, and have the offset deltas from `first` on. None: a
    record is invalid, or has so many headers that it must be checked by itself.
    """
    view = np.frombuffer(data, np.uint8, count=stop)
    begins = np.array(starts, np.int64)
    ends = np.empty_like(begins)
    ends[:-1] = begins[1:]
    ends[-1] = end
    size, at = read_varints(view, begins)
    good: Flags = at + size == ends
    timestamp, at = read_varints(view, at + 1)  # after the unused attributes
    delta, at = read_varints(view, at)
    good &= delta == np.arange(first, first + len(begins))
    key, at = read_varints(view, at)
    value, at = read_varints(view, at + np.maximum(key, 0))
    for length in (key, value):
        good &= (length >= -1) & (length <= size)
    at += np.maximum(value, 0)
    if not good.all():
        return None
    headers, at = read_varints(view, at)
    if headers.any() and not _headers_fit(view, headers, at, ends):
        return None
    if not headers.any() and not (at == ends).all():
        return None
    return int(timestamp.min()), int(timestamp.max()), bool(key.min() < 0)


def _headers_fit(data: Bytes, counts: Longs, at: Longs, ends: Longs) -> bool:
    """Whether all headers end with their records. A step reads one more header of each record."""
    with_some = np.flatnonzero(counts)
    if int(counts.min()) < 0 or int(counts.max()) > _MOST_HEADERS:
        return False
    if len(with_some) < _FEWEST_LANES:
        return False
    if not (at[counts == 0] == ends[counts == 0]).all():
        return False
    counts, at, ends = counts[with_some], at[with_some], ends[with_some]
    for step in range(1, int(counts.max()) + 1):
        name, at = read_varints(data, at)
        room = ends - at
        if not ((name >= 0) & (name <= room)).all():
            return False
        value, at = read_varints(data, at + name)
        at += np.maximum(value, 0)
        if not ((value >= -1) & (value <= room) & (at <= ends)).all():
            return False
        last = counts == step
        if not (at[last] == ends[last]).all():
            return False
        counts, at, ends = counts[~last], at[~last], ends[~last]
    return True
