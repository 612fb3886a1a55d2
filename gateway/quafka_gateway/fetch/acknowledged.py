"""Which partitions produces were acknowledged for, and when, in a fixed amount of memory.

A watermark that was heard before an acknowledgement may be lower than what the producer knows. The
gateway compares *moments* (`Moment`), not times: a question that was sent at a moment covers every
acknowledgement before it. Partitions share slots, so that an acknowledgement of another partition
may be taken for one of this: then the broker is asked once more than needed, and nothing is wrong.
"""

from __future__ import annotations

from array import array

Moment = int
"""How many acknowledgements there had been."""

NEVER: Moment = -1
"""Before all of them."""

_SLOTS = 16_384


class Acknowledged:
    """The acknowledgements of one gateway process."""

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * _SLOTS))
        self.now: Moment = 0
        """The present moment."""

    def note(self, topic_id: bytes, partition: int) -> Moment:
        """A produce to the partition was acknowledged by the broker. Call it before the client is
        answered; returns the moment of the slot's acknowledgement before this one."""
        slot = hash((topic_id, partition)) % _SLOTS
        before = self._slots[slot]
        self.now += 1
        self._slots[slot] = self.now
        return before

    def since(self, moment: Moment, topic_id: bytes, partition: int) -> bool:
        """Whether a produce to the partition may have been acknowledged after that moment."""
        return self._slots[hash((topic_id, partition)) % _SLOTS] > moment
