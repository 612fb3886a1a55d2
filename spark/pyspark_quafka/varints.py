"""Varints of many records at a time, in numpy.

A record says how long it is, so records are found one after the other; the records of different
batches are found in lock-step. Where few batches are left, a plain loop is faster than numpy's
calls. All other fields are then read of all records at once.

Positions that garbled lengths lead to may lie anywhere: reading there gives some byte of the
data. Whether all of it fits is for the caller to check.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

FEWEST_LANES = 150
"""Below so many batches side by side a step of numpy costs more than a loop over them."""
_LONGEST = 10
_LONG_MAX = np.int64((1 << 63) - 1)


def read_varints(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """The zigzag varints at these positions, and the positions behind them."""
    raw, behind = _read_raw(data, at)
    # The shift is a logical one: a tenth byte may make the sign bit.
    return raw >> 1 & _LONG_MAX ^ -(raw & 1), behind


def _read_raw(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    raw = data.take(at, mode="clip").astype(np.int64)
    behind = at + 1
    longer = np.flatnonzero(raw >= 0x80)
    if not len(longer):
        return raw, behind
    if len(longer) == len(raw):
        # Lengths of much the same size: the second byte without picking them out.
        second = data.take(behind, mode="clip").astype(np.int64)
        raw = raw & 0x7F | (second & 0x7F) << 7
        behind += 1
        longer = np.flatnonzero(second >= 0x80)
        shift = 14
    else:
        raw[longer] &= 0x7F
        shift = 7
    while len(longer) and shift < 7 * _LONGEST:
        byte = data.take(behind[longer], mode="clip").astype(np.int64)
        raw[longer] |= (byte & 0x7F) << shift
        behind[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    return raw, behind


def find_records(data: Bytes, starts: Longs, ends: Longs, counts: Longs) -> Longs:
    """The positions at which records begin, with their lengths, batch after batch.

    Batch `i` has `counts[i]` records in `data[starts[i]:ends[i]]`.
    """
    found = np.empty(int(counts.sum()), np.int64)
    first = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    falling = -counts[order]
    slots, cursors = first[order], starts[order]
    step, lanes = 0, int(np.searchsorted(falling, 0))
    while lanes >= FEWEST_LANES:
        slots, cursors = slots[:lanes], cursors[:lanes]
        found[slots + step] = cursors
        size, behind = read_varints(data, cursors)
        cursors = behind + size
        step += 1
        lanes = int(np.searchsorted(falling, -step))
    for lane in range(lanes):
        batch = order[lane]
        slot, at = int(slots[lane]), int(cursors[lane])
        many = int(counts[batch]) - step
        begin = int(starts[batch])
        body = data[begin : int(ends[batch])].tobytes()
        found[slot + step : slot + step + many] = _walk(body, at - begin, many)
        found[slot + step : slot + step + many] += begin
    return found


def _walk(body: bytes, at: int, many: int) -> list[int]:
    """The positions of so many records, the first of them at `at`."""
    found: list[int] = []
    append = found.append
    try:
        for _ in range(many):
            append(at)
            size = body[at]
            at += 1
            shift = 7
            while size >> shift:
                size = size & (1 << shift) - 1 | body[at] << shift
                at += 1
                shift += 7
            at += size >> 1
    except IndexError:
        # Cut short or garbled: the rest is where the caller finds that it does not fit. The last
        # position may be one that no array can hold.
        found[-1] = min(found[-1], len(body))
        found += [len(body)] * (many - len(found))
    return found
