"""The positions at which records begin, in numpy.

A record begins with its length, so its position is known only from the record before. Many lanes
are walked side by side: each step of numpy reads one record of every lane. A batch is one lane; a
batch of many records is several, which begin where the bytes look like the beginning of a record.
The look proves nothing. The positions that the lanes of a batch have found count only if each lane
ends exactly where the next one begins: then a walk from the front would find the same. Otherwise,
and where there are few lanes, the batch is walked from the front.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from quafka_proto.records import LEAST_RECORD
from quafka_proto.varints import Bytes, Flags, Longs, read_varints

FEWEST_LANES = 40
"""With fewer lanes a step of numpy costs more than a loop over them."""
RECORDS_A_LANE = 64
_MOST_STEPS = 4 * RECORDS_A_LANE
_LEAST_SIZE = LEAST_RECORD - 1
"""Bytes of the smallest record after its length."""
_CHAIN = 3
"""The number of plausible records in a row that it takes to begin a lane at the first."""
_MOST_LOOKS = 16
"""Zero bytes of a window that are tried as a record's attributes."""


def find_records(data: Bytes, starts: Longs, ends: Longs, counts: Longs) -> Longs:
    """The positions at which records begin, batch after batch.

    Batch `i` has `counts[i]` records in `data[starts[i]:ends[i]]`. A garbled batch gets as many
    positions, too; some of them are its end, or not the beginning of a record.
    """
    begins, batch = _lanes(data, starts, ends, counts)
    found = np.empty(0, np.int64)
    many = np.zeros(len(counts), np.int64)
    right: Flags = many < 0
    if len(begins) >= FEWEST_LANES:
        stops = ends[batch]
        inner = np.flatnonzero(batch[1:] == batch[:-1])
        stops[inner] = begins[inner + 1]
        found, lane, met = _walk_lanes(data, begins, stops, counts[batch])
        many = np.bincount(batch[lane], minlength=len(counts))
        right = many == counts
        right[batch[~met]] = False
        if right.all():
            return found
    if not len(counts):
        return found
    bounds = np.cumsum(many)
    return np.concatenate(
        [
            found[bounds[at] - many[at] : bounds[at]]
            if right[at]
            else _walk_batch(data, int(starts[at]), int(ends[at]), int(counts[at]))
            for at in range(len(counts))
        ]
    )


# --- walks ----------------------------------------------------------------------------------


def _walk_batch(data: Bytes, start: int, end: int, count: int) -> Longs:
    found, _ = _walk(data[start:end].tobytes(), count)
    found += [end - start] * (count - len(found))
    return np.array(found, np.int64) + start


def _walk(body: bytes, most: int) -> tuple[list[int], bool]:
    """The positions of at most `most` records; and whether the last one ends with the body."""
    found: list[int] = []
    append = found.append
    at, end = 0, len(body)
    try:
        while at < end and len(found) < most:
            append(at)
            size = body[at]
            at += 1
            shift = 7
            while size >> shift:
                size = size & (1 << shift) - 1 | body[at] << shift
                at += 1
                shift += 7
            at += size >> 1
    except IndexError:  # cut short
        return found, False
    return found, at == end


def _walk_lanes(
    data: Bytes, begins: Longs, stops: Longs, most: Longs
) -> tuple[Longs, Longs, Flags]:
    """The positions of the records of all lanes, lane after lane; the lane of each position; and
    which lanes end where they must."""
    cursors = begins
    active = cursors < stops
    steps: list[Longs] = []
    while np.count_nonzero(active) >= FEWEST_LANES and len(steps) < _MOST_STEPS:
        steps.append(cursors)
        size, body = read_varints(data, cursors)
        cursors = np.where(active, body + size, cursors)
        active = cursors < stops
    table = np.stack(steps, 1) if steps else np.empty((len(begins), 0), np.int64)
    walked: Flags = table < stops[:, None]
    found = table[walked]
    many = np.count_nonzero(walked, axis=1)
    met: Flags = cursors == stops
    rest: list[int] = []
    at: list[int] = []
    lane_ends = np.cumsum(many)
    for lane in np.flatnonzero(active):  # few
        start = int(cursors[lane])
        more, met[lane] = _walk(data[start : int(stops[lane])].tobytes(), int(most[lane]))
        rest += [start + position for position in more]
        at += [int(lane_ends[lane])] * len(more)
        many[lane] += len(more)
    if rest:
        found = np.insert(found, at, rest)
    return found, np.repeat(np.arange(len(begins)), many), met


# --- lanes ----------------------------------------------------------------------------------


def _lanes(data: Bytes, starts: Longs, ends: Longs, counts: Longs) -> tuple[Longs, Longs]:
    """The positions at which lanes begin, and the batch of each."""
    parts = np.maximum(counts // RECORDS_A_LANE, 1)
    batch = np.repeat(np.arange(len(counts)), parts)
    part = np.arange(len(batch)) - (np.cumsum(parts) - parts)[batch]
    sizes = ends - starts
    begins = starts[batch] + part * sizes[batch] // parts[batch]
    inner = np.flatnonzero(part)
    if not len(inner):
        return begins, batch
    usual = int((sizes // np.maximum(counts, 1))[parts > 1].max())
    begins[inner] = _look(data, begins[inner], ends[batch[inner]], 2 * usual + 64)
    known: Flags = begins >= 0
    begins, batch = begins[known], batch[known]
    known = np.ones(len(begins), np.bool_)
    known[1:] = (begins[1:] > begins[:-1]) | (batch[1:] != batch[:-1])
    return begins[known], batch[known]


def _look(data: Bytes, aims: Longs, ends: Longs, width: int) -> Longs:
    """The position of a likely record soon after each aim; -1 if none is found.

    A record has its length before a zero byte, its attributes; offsets ascend from record to
    record.
    """
    width = min(width, len(data) // len(aims))
    windows = sliding_window_view(data, width)[np.minimum(aims, len(data) - width)]
    aim, column = np.nonzero(windows == 0)
    few = np.arange(len(aim)) - np.searchsorted(aim, aim) < _MOST_LOOKS
    aim = aim[few]
    attributes = np.minimum(aims, len(data) - width)[aim] + column[few]
    two: Flags = data.take(attributes - 2, mode="clip") >= 0x80
    three: Flags = two & (data.take(attributes - 3, mode="clip") >= 0x80)
    begins = attributes - 1 - two - three
    at, delta = begins, np.full(len(begins), -1)
    for _ in range(_CHAIN):
        size, body = read_varints(data, at)
        next_at = body + size
        _, delta_at = read_varints(data, body + 1)
        next_delta, _ = read_varints(data, delta_at)
        likely = (size >= _LEAST_SIZE) & (next_at < ends[aim]) & (next_delta > delta)
        likely &= data.take(body, mode="clip") == 0
        aim, begins, at, delta = aim[likely], begins[likely], next_at[likely], next_delta[likely]
    found = np.full(len(aims), -1)
    aim, first = np.unique(aim, return_index=True)
    found[aim] = begins[first]
    return found
