"""Which partitions produces were acknowledged for, and when, in a fixed amount of memory.

A watermark that was heard before an acknowledgement may be lower than what the producer knows. The
gateway compares *moments* (`Moment`), not times: a question that was sent at a moment covers every
acknowledgement before it. Partitions share slots, so that an acknowledgement of another partition
may be taken for one of this: then the broker is asked once more than needed, and nothing is wrong.

Several workers of one gateway share the cells: each writes its own row and reads all of them.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from zlib import crc32

Moment = tuple[int, ...]
"""For each worker, how many acknowledgements it had noted."""

SLOTS = 16_384
ROW = SLOTS + 1
"""Cells of one worker: the number of its last acknowledgement for each slot, and its last one."""


class Acknowledged:
    """The acknowledgements of this worker, and those of the others as far as they are shared."""

    def __init__(self, cells: MutableSequence[int] | None = None, worker: int = 0) -> None:
        """`cells`: ROW cells for each worker, all 0 at first; this one writes only its row."""
        self._cells: MutableSequence[int] = [0] * ROW if cells is None else cells
        self._worker = worker
        self._base = worker * ROW
        self._lasts = range(SLOTS, len(self._cells), ROW)

    def note(self, topic_id: bytes, partition: int) -> int:
        """A produce to the partition was acknowledged by the broker. Call it before the client is
        answered; returns the number of the slot's acknowledgement before this one."""
        cells, last = self._cells, self._base + SLOTS
        slot = self._base + _slot(topic_id, partition)
        before = cells[slot]
        number = cells[last] + 1
        cells[slot] = number
        cells[last] = number
        return before

    def now(self) -> Moment:
        """The present moment."""
        cells = self._cells
        return tuple([cells[last] for last in self._lasts])

    def since(self, moment: Moment, topic_id: bytes, partition: int) -> bool:
        """Whether a produce to the partition may have been acknowledged after that moment."""
        at = _slot(topic_id, partition)
        for number in moment:
            if self._cells[at] > number:
                return True
            at += ROW
        return False

    def with_own(self, moment: Moment, before: int) -> Moment:
        """The moment, moved to the acknowledgement that was just noted, if it covers those before.

        `before`: what `note` returned.
        """
        own = self._worker
        if moment[own] < before:
            return moment
        return (*moment[:own], self._cells[self._base + SLOTS], *moment[own + 1 :])


def both(one: Moment, other: Moment) -> Moment:
    """The moment that covers what either of two covers. An empty one covers nothing."""
    if not one or one == other:
        return other
    return tuple(map(max, one, other)) if other else one


def _slot(topic_id: bytes, partition: int) -> int:
    # Not hash(): that is another one in each process.
    return crc32(topic_id, partition & 0xFFFFFFFF) % SLOTS
