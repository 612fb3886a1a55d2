"""The last offset of each key, in bounded memory: sorted columns in numpy.

A key is the 16 bytes of its hash. 24 bytes per key are kept, and as many are used while the map is
sorted. New keys are added behind the sorted ones; when they fill the columns, the map is sorted
again, and of equal keys only the last one is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quafka_broker.compaction.key_hash import HASH_SIZE

BYTES_PER_KEY = 56
"""Bytes per key: 24 in the columns; sorting takes a permutation of 8 and a copy of the columns."""
_FIRST_KEYS = 1 << 12
_HASH = f"S{HASH_SIZE}"
_MOST_FILLED = 0.9
"""A map is full when distinct keys exceed this share of it: sorting again gains too little."""


class OffsetMap:
    """Hashes of keys, and the highest offset of each."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: the bound of its memory; it begins small."""
        self._most = max(_FIRST_KEYS, most_bytes // BYTES_PER_KEY)
        self._hashes: NDArray[np.bytes_] = np.empty(_FIRST_KEYS, _HASH)
        self._offsets: NDArray[np.int64] = np.empty(_FIRST_KEYS, np.int64)
        self._sorted = self._filled = 0

    def __len__(self) -> int:
        """The number of keys; those added since the map was sorted may be counted twice."""
        return self._filled

    @property
    def capacity(self) -> int:
        """The maximum number of keys."""
        return self._most

    def add(self, hashes: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Add keys in the order of their offsets; False if they do not fit.

        Offsets of one key ascend from call to call.
        """
        if self._filled + len(hashes) > len(self._offsets) and not self._make_room(len(hashes)):
            return False
        end = self._filled + len(hashes)
        self._hashes[self._filled : end] = np.frombuffer(b"".join(hashes), _HASH)
        self._offsets[self._filled : end] = offsets
        self._filled = end
        return True

    def has_room(self, keys: int) -> bool:
        """Whether the map holds at most about this number of keys."""
        if self._filled > keys:
            self._sort()
        return self._filled <= keys * _MOST_FILLED or self._filled == 0

    def last_offsets(self, hashes: Sequence[bytes]) -> list[int]:
        """The last offset of each key; -1: the map does not have the key."""
        if self._sorted < self._filled:
            self._sort()
        if not self._filled:
            return [-1] * len(hashes)
        wanted = np.frombuffer(b"".join(hashes), _HASH)
        known = self._hashes[: self._filled]
        at = np.minimum(np.searchsorted(known, wanted), self._filled - 1)
        found: list[int] = np.where(known[at] == wanted, self._offsets[at], -1).tolist()
        return found

    def _make_room(self, count: int) -> bool:
        self._sort()
        needed = self._filled + count
        size = len(self._offsets)
        if needed > size * _MOST_FILLED or self._filled > size // 2:
            size = min(self._most, max(2 * size, needed))
        if needed > size or (size == self._most and self._filled > size * _MOST_FILLED):
            return False
        if size > len(self._offsets):
            hashes, offsets = np.empty(size, _HASH), np.empty(size, np.int64)
            hashes[: self._filled] = self._hashes[: self._filled]
            offsets[: self._filled] = self._offsets[: self._filled]
            self._hashes, self._offsets = hashes, offsets
        return True

    def _sort(self) -> None:
        """Sort by hash; of equal hashes keep the last one, which has the highest offset."""
        hashes = self._hashes[: self._filled]
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        last = np.ones(len(hashes), np.bool_)
        last[:-1] = hashes[:-1] != hashes[1:]
        hashes = hashes[last]
        self._offsets[: len(hashes)] = self._offsets[: self._filled][order[last]]
        self._hashes[: len(hashes)] = hashes
        self._sorted = self._filled = len(hashes)
