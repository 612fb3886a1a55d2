"""A set of global message ids: Roaring bitmaps, one for each window of 2^32 ids with a member.

A set nearly always has one window. CRoaring's own 64-bit bitmaps take almost twice the memory if
the ids of many partitions are interleaved, as they are here. The serialized form is CRoaring's
portable 64-bit format, byte for byte.
"""

from __future__ import annotations

import struct

from pyroaring import BitMap

_WINDOW = 1 << 32
_COUNT = struct.Struct("<Q")
_HIGH = struct.Struct("<I")


class GlobalIds:
    """Ids in ascending order; `self[n]` is the nth."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[tuple[int, BitMap]] = []  # by the upper 32 bits; none is empty

    def __len__(self) -> int:
        return sum(len(ids) for _, ids in self._windows)

    def __getitem__(self, n: int) -> int:
        """The nth id, counted from 0, or from the end if n is negative.

        Raises:
            IndexError: the set has fewer ids.
        """
        windows = self._windows
        if len(windows) == 1:
            return (windows[0][0] << 32) + windows[0][1][n]
        if n < 0:
            n += len(self)
        for high, ids in windows if n >= 0 else ():
            if n < len(ids):
                return (high << 32) + ids[n]
            n -= len(ids)
        raise IndexError("the set has fewer ids")

    def rank(self, global_id: int) -> int:
        """The number of ids up to this one."""
        above, low = divmod(global_id, _WINDOW)
        count = 0
        for high, ids in self._windows:
            if high < above:
                count += len(ids)
            elif high == above:
                count += ids.rank(low)
        return count

    def next_from(self, global_id: int) -> int | None:
        """The first id from this one on, or None."""
        above, low = divmod(global_id, _WINDOW)
        for high, ids in self._windows:
            if high > above:
                return (high << 32) + ids.min()
            if high == above and ids.max() >= low:
                return (high << 32) + ids.next_set_bit(low)
        return None

    def count_between(self, first: int, end: int) -> int:
        """The number of ids in [first, end). The cost grows with the range, not with the set."""
        count = 0
        for high, ids in self._windows:
            base = high << 32
            low, above = max(0, first - base), min(_WINDOW, end - base)
            if low < above:
                count += ids.range_cardinality(low, above)
        return count

    def add_range(self, first: int, end: int) -> None:
        """Add the ids in [first, end)."""
        if self._windows:
            high, ids = self._windows[-1]
            base = high << 32
            if base <= first and end - base <= _WINDOW:  # nearly always
                ids.add_range(first - base, end - base)
                return
        while first < end:
            high, low = divmod(first, _WINDOW)
            count = min(end - first, _WINDOW - low)
            self._window(high).add_range(low, low + count)
            first += count

    def copy_from(self, global_id: int) -> GlobalIds:
        """A new set with the ids at or above this one."""
        above, low = divmod(global_id, _WINDOW)
        copied = GlobalIds()
        for high, ids in self._windows:
            if high >= above:
                left = ids.copy()
                if high == above:
                    left.remove_range(0, low)
                if left:
                    copied._windows.append((high, left))
        return copied

    def _window(self, high: int) -> BitMap:
        for at in reversed(range(len(self._windows))):  # it is nearly always the last one
            if self._windows[at][0] == high:
                return self._windows[at][1]
            if self._windows[at][0] < high:
                self._windows.insert(at + 1, (high, BitMap()))
                return self._windows[at + 1][1]
        self._windows.insert(0, (high, BitMap()))
        return self._windows[0][1]

    def serialize(self) -> bytes:
        """The portable form, for a checkpoint."""
        parts = [_COUNT.pack(len(self._windows))]
        for high, ids in self._windows:
            parts += [_HIGH.pack(high), ids.serialize()]
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes) -> GlobalIds:
        """Read the portable form.

        Raises:
            ValueError: the bytes are not a set of ids.
        """
        read = cls()
        try:
            (count,) = _COUNT.unpack_from(data)
            at = _COUNT.size
            for _ in range(count):
                (high,) = _HIGH.unpack_from(data, at)
                ids = BitMap.deserialize(data[at + _HIGH.size :])
                read._windows.append((high, ids))
                at += _HIGH.size + len(ids.serialize())
        except struct.error as e:
            raise ValueError(f"not a set of ids: {e}") from e
        return read
