"""Reads the varints of many records at a time, in numpy.

Garbled lengths may lead to any position: reading there returns some byte of the data. The caller
must check that the fields fit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

_LONGEST = 10
_LONG_MAX = np.int64((1 << 63) - 1)


def read_varints(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """The zigzag varints at these positions, and the positions after them."""
    raw, after = _read_raw(data, at)
    # A logical shift: a tenth byte may set the sign bit.
    return raw >> 1 & _LONG_MAX ^ -(raw & 1), after


def _read_raw(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    raw = data.take(at, mode="clip").astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(raw >= 0x80)
    if not len(longer):
        return raw, after
    if len(longer) == len(raw):
        # Lengths of similar size: all have a second byte, so none need to be selected.
        second = data.take(after, mode="clip").astype(np.int64)
        raw = raw & 0x7F | (second & 0x7F) << 7
        after += 1
        longer = np.flatnonzero(second >= 0x80)
        shift = 14
    else:
        raw[longer] &= 0x7F
        shift = 7
    while len(longer) and shift < 7 * _LONGEST:
        byte = data.take(after[longer], mode="clip").astype(np.int64)
        raw[longer] |= (byte & 0x7F) << shift
        after[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    return raw, after
