"""What is kept in memory of a partition's batches: one sample for every 64 of them.

A block is 64 neighbouring batches of one virtual topic. Its sample says where it begins, the
greatest timestamp in it, the greatest up to its end, and how many bytes came before it: enough to
find a time or a size within one block, whose index rows are then read. 32 bytes a block.

Timestamps need not ascend: the running maximum does, so the first block that reaches a time is
found by bisection, and the first batch of it that does is the first of the partition.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

BATCHES_PER_BLOCK = 64

_HEAD = struct.Struct(">IIQQ")  # blocks, batches in the last one, bytes ever, end offset


class Block(NamedTuple):
    """Batches that hold the offsets in [start, end), and the greatest timestamp in them.

    Of the first block of a partition some batches may be gone already; it says nothing of that.
    """

    start: int
    end: int
    max_timestamp: int


class SparseIndex:
    """The blocks of one virtual topic, in order of offsets. Pure."""

    __slots__ = ("_before", "_bytes", "_in_last", "_maxima", "_running", "_starts", "end")

    def __init__(self) -> None:
        self._starts = array("Q")
        self._maxima = array("q")
        self._running = array("q")
        self._before = array("Q")
        self._bytes = 0
        self._in_last = 0
        self.end = 0

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self._starts)

    def add(self, offset: int, count: int, max_timestamp: int, length: int) -> None:
        """A batch of `length` bytes was appended: `count` offsets from `offset` on."""
        if not self._starts or self._in_last == BATCHES_PER_BLOCK:
            before = self._running[-1] if self._starts else max_timestamp
            self._starts.append(offset)
            self._maxima.append(max_timestamp)
            self._running.append(max(before, max_timestamp))
            self._before.append(self._bytes)
            self._in_last = 0
        elif max_timestamp > self._maxima[-1]:
            self._maxima[-1] = max_timestamp
            self._running[-1] = max(self._running[-1], max_timestamp)
        self._in_last += 1
        self._bytes += length
        self.end = offset + count

    def drop_below(self, offset: int) -> None:
        """Forget the blocks of which nothing is left when the log starts at `offset`."""
        gone = len(self) if offset >= self.end else bisect_right(self._starts, offset) - 1
        if gone <= 0:
            return
        for samples in (self._starts, self._maxima, self._running, self._before):
            del samples[:gone]
        greatest = None
        for number, maximum in enumerate(self._maxima):
            greatest = maximum if greatest is None else max(greatest, maximum)
            if self._running[number] == greatest:
                break  # from here on, what is gone was not the greatest
            self._running[number] = greatest

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """The blocks from the one of that number on."""
        for number in range(first, len(self)):
            yield self._block(number)

    def first_reaching(self, timestamp: int, offset: int = 0) -> Block | None:
        """The first block with a timestamp at or above this one, of those that end above `offset`.

        O(log n), but for a search that begins behind a block that has reached it.
        """
        number = max(bisect_left(self._running, timestamp), self._number_of(offset))
        while number < len(self) and self._maxima[number] < timestamp:
            number += 1
        return self._block(number) if number < len(self) else None

    def greatest(self, offset: int = 0) -> Block | None:
        """The block with the greatest timestamp, the first of equal ones, of those that end above.

        O(log n) where those are all blocks.
        """
        first = self._number_of(offset)
        if first >= len(self):
            return None
        if not first:
            return self._block(bisect_left(self._running, self._running[-1]))
        left = self._maxima[first:]
        return self._block(first + left.index(max(left)))

    def block_of(self, offset: int) -> Block | None:
        """The block that holds an offset; the first one for an offset below all."""
        number = self._number_of(offset)
        return self._block(number) if number < len(self) else None

    @property
    def size(self) -> int:
        """Bytes of all batches in all blocks."""
        return self._bytes - self._before[0] if self._before else 0

    def bytes_from(self, block: Block) -> int:
        """Bytes of all batches from the first of a block on."""
        number = bisect_left(self._starts, block.start)
        return self._bytes - self._before[number]

    def _number_of(self, offset: int) -> int:
        """Of the first block that ends above an offset."""
        if offset >= self.end:
            return len(self)
        return max(0, bisect_right(self._starts, offset) - 1)

    def _block(self, number: int) -> Block:
        following = number + 1
        end = self._starts[following] if following < len(self) else self.end
        return Block(self._starts[number], end, self._maxima[number])

    def dump(self) -> bytes:
        """Everything, for a checkpoint: a head, then 24 bytes a block, big-endian."""
        head = _HEAD.pack(len(self), self._in_last, self._bytes, self.end)
        samples = zip(self._starts, self._maxima, self._before, strict=True)
        return head + b"".join(struct.pack(">QqQ", *sample) for sample in samples)

    @classmethod
    def load(cls, data: bytes) -> SparseIndex:
        """Read what `dump` wrote.

        Raises:
            ValueError: it did not.
        """
        index = cls()
        try:
            count, index._in_last, index._bytes, index.end = _HEAD.unpack_from(data)
            samples = list(struct.iter_unpack(">QqQ", data[_HEAD.size :]))
        except struct.error as e:
            raise ValueError(f"not a sparse index: {e}") from e
        if len(samples) != count or any(a[0] >= b[0] for a, b in pairwise(samples)):
            raise ValueError("not a sparse index: its blocks are not in order")
        for start, maximum, before in samples:
            greatest = max(index._running[-1], maximum) if index._running else maximum
            index._starts.append(start)
            index._maxima.append(maximum)
            index._running.append(greatest)
            index._before.append(before)
        return index
