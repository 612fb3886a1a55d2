"""The in-memory index of a partition's batches: one sample for every 64 batches.

A block is 64 successive batches of one partition. Its sample has its first offset, its highest
timestamp, the highest timestamp up to its end, and the bytes before it. This is enough to narrow a
search by time or size to one block, whose index rows are then read. A block takes 32 bytes.

Timestamps need not ascend, but their running maximum does. So bisection finds the first block that
reaches a time, and the first batch in it that reaches the time is the partition's first.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

BATCHES_PER_BLOCK = 64

_HEAD = struct.Struct(">IIQQ")  # blocks, batches in the last one, bytes ever added, end offset


class Block(NamedTuple):
    """Batches with the offsets [start, end), and their highest timestamp.

    Some batches of a partition's first block may have been deleted; the block does not show it.
    """

    start: int
    end: int
    max_timestamp: int


class Count(NamedTuple):
    """The content of a block: batches, their bytes, and their highest timestamp."""

    batches: int
    bytes: int
    max_timestamp: int


class SparseIndex:
    """The blocks of one partition, in order of offsets. Pure."""

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
        """The number of blocks."""
        return len(self._starts)

    def add(self, offset: int, count: int, max_timestamp: int, length: int) -> None:
        """Add an appended batch of `length` bytes with `count` offsets from `offset` on."""
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
        """Drop the blocks that end up to the log start `offset`."""
        gone = len(self) if offset >= self.end else bisect_right(self._starts, offset) - 1
        if gone <= 0:
            return
        for samples in (self._starts, self._maxima, self._running, self._before):
            del samples[:gone]
        self._run_from(0, 0)

    def recounted(self, counts: Mapping[int, Count]) -> None:
        """Update the content of blocks, by their starts, after batches were removed.

        Blocks without batches are dropped, except the last one.
        """
        if not counts:
            return
        low = bisect_left(self._starts, min(counts))
        high = bisect_right(self._starts, max(counts))
        if low >= high:
            return
        kept: list[tuple[int, Count]] = []
        for number in range(low, high):
            old = Count(1, self._size_of(number), self._maxima[number])
            count = counts.get(self._starts[number], old)
            if count.batches or number + 1 == len(self):
                kept.append((self._starts[number], count))
        end = self._before[high] if high < len(self) else self._bytes
        grown = sum(count.bytes for _, count in kept) - (end - self._before[low])
        if grown > 0:  # a batch with a delete horizon can be longer
            self._before[high:] = array("Q", map(grown.__add__, self._before[high:]))
            self._bytes += grown
        elif grown:
            self._before[:low] = array("Q", map((-grown).__add__, self._before[:low]))
        position = self._before[low] - min(0, grown)
        before = accumulate((count.bytes for _, count in kept), initial=position)
        self._before[low:high] = array("Q", list(before)[: len(kept)])
        self._starts[low:high] = array("Q", [start for start, _ in kept])
        self._maxima[low:high] = array("q", [count.max_timestamp for _, count in kept])
        self._running[low:high] = self._maxima[low : low + len(kept)]
        self._run_from(low, low + len(kept))

    def _size_of(self, number: int) -> int:
        following = self._before[number + 1] if number + 1 < len(self) else self._bytes
        return following - self._before[number]

    def _run_from(self, number: int, settled: int) -> None:
        """Compute the running maxima from a block on, at least up to block `settled`."""
        greatest = self._running[number - 1] if number else None
        for at in range(number, len(self)):
            maximum = self._maxima[at]
            greatest = maximum if greatest is None else max(greatest, maximum)
            if at >= settled and self._running[at] == greatest:
                break  # from here on, the maximum does not come from a changed block
            self._running[at] = greatest

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """The blocks from number `first` on."""
        for number in range(first, len(self)):
            yield self._block(number)

    def first_reaching(self, timestamp: int, offset: int = 0) -> Block | None:
        """The first block that ends above `offset` and has a timestamp at or above this one.

        O(log n), unless a block before `offset` reaches the timestamp.
        """
        number = max(bisect_left(self._running, timestamp), self._number_of(offset))
        while number < len(self) and self._maxima[number] < timestamp:
            number += 1
        return self._block(number) if number < len(self) else None

    def greatest(self, offset: int = 0) -> Block | None:
        """The first block with the highest timestamp of those that end above `offset`.

        O(log n) if all blocks end above `offset`.
        """
        first = self._number_of(offset)
        if first >= len(self):
            return None
        if not first:
            return self._block(bisect_left(self._running, self._running[-1]))
        left = self._maxima[first:]
        return self._block(first + left.index(max(left)))

    def block_of(self, offset: int) -> Block | None:
        """The block that contains an offset; the first block for an offset below all blocks."""
        number = self._number_of(offset)
        return self._block(number) if number < len(self) else None

    @property
    def size(self) -> int:
        """Bytes of all batches in all blocks."""
        return self._bytes - self._before[0] if self._before else 0

    def bytes_from(self, block: Block) -> int:
        """Bytes of all batches from the block's first batch on."""
        number = bisect_left(self._starts, block.start)
        return self._bytes - self._before[number]

    def bytes_below(self, offset: int) -> int:
        """Bytes of the batches below an offset, estimated within its block."""
        number = self._number_of(offset)
        if not self._starts or offset <= self._starts[0]:
            return 0
        if number >= len(self):
            return self.size
        start, end, _ = self._block(number)
        before = self._before[number] - self._before[0]
        return before + self._size_of(number) * (offset - start) // (end - start)

    def _number_of(self, offset: int) -> int:
        """The number of the first block that ends above an offset."""
        if offset >= self.end:
            return len(self)
        return max(0, bisect_right(self._starts, offset) - 1)

    def _block(self, number: int) -> Block:
        following = number + 1
        end = self._starts[following] if following < len(self) else self.end
        return Block(self._starts[number], end, self._maxima[number])

    def dump(self) -> bytes:
        """The whole index, for a checkpoint: a head, then 24 bytes a block, big-endian."""
        head = _HEAD.pack(len(self), self._in_last, self._bytes, self.end)
        samples = zip(self._starts, self._maxima, self._before, strict=True)
        return head + b"".join(struct.pack(">QqQ", *sample) for sample in samples)

    @classmethod
    def load(cls, data: bytes) -> SparseIndex:
        """Load the result of `dump`.

        Raises:
            ValueError: the bytes are not a sparse index.
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
