"""Tracks in little memory which partitions had produces acknowledged, and in which order.

A watermark that was read before an acknowledgement may be lower than what the producer knows. The
gateway compares *moments* (`Moment`), not times: an op that was sent at a moment covers every
acknowledgement before it. Partitions share slots, so an acknowledgement of another partition may
count for this one: the gateway then asks the broker once more than needed, which does no harm.
"""

from __future__ import annotations

import sys
from array import array
from zlib import crc32

Moment = int
"""A count of acknowledgements."""

NEVER: Moment = -1
"""Before the first acknowledgement."""

_LEAST_SLOTS, _MOST_SLOTS, _GROWTH = 256, 16_384, 8


class ProduceAcks:
    """The acknowledgements of one org at one broker through one gateway process."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * _LEAST_SLOTS))
        self._count = _LEAST_SLOTS
        self._grows_at = 4 * _LEAST_SLOTS
        self.now: Moment = 0
        """The present moment."""

    def record(self, topic_id: bytes, partition: int) -> Moment:
        """Count an acknowledgement of the broker, before the client has its answer.

        Returns the moment of the slot's previous acknowledgement.
        """
        if self.now >= self._grows_at:
            self._grow()
        slot = self._slot(topic_id, partition)
        before = self._slots[slot]
        self.now += 1
        self._slots[slot] = self.now
        return before

    def any_since(self, moment: Moment, topic_id: bytes, partition: int) -> bool:
        """Whether a produce to the partition may have been acknowledged after that moment."""
        return self._slots[self._slot(topic_id, partition)] > moment

    def _slot(self, topic_id: bytes, partition: int) -> int:
        # Not hash(): that of bytes differs from process to process, and so would who shares a slot.
        return crc32(topic_id, partition) % self._count

    def _grow(self) -> None:
        """Add slots. Each may have been acknowledged just now, as nothing else is known of it."""
        self._count = min(_GROWTH * self._count, _MOST_SLOTS)
        self._slots = array("q", [self.now]) * self._count
        more = self._count < _MOST_SLOTS
        self._grows_at = 4 * self._count if more else sys.maxsize
