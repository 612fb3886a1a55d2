"""Maps entry ids of a stream to offsets of a partition.

    offset = (milliseconds << sequence bits) | sequence

With 10 bits, as in Korvet, a millisecond has 1,024 offsets. Offsets ascend like ids, and each
follows from the other without a table, so a fetch may begin at any offset and after any restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_DIGITS = 20
_OFFSET_BITS = 63
OFFSETS = 1 << _OFFSET_BITS
"""The upper bound of all offsets."""

SEQUENCE_BITS = 10


class EntryId(NamedTuple):
    """The id of an entry. Both numbers have 64 bits in Redis."""

    ms: int
    sequence: int

    @property
    def text(self) -> bytes:
        """The id in Redis's form."""
        return b"%d-%d" % self

    @classmethod
    def parse(cls, text: bytes) -> EntryId:
        """Parse an id in an answer of Redis.

        Raises:
            ValueError: not an id.
        """
        ms, _, sequence = text.partition(b"-")
        if ms.isdigit() and sequence.isdigit() and len(ms) <= _DIGITS >= len(sequence):
            return cls(int(ms), int(sequence))
        raise ValueError(f"{text[:64]!r} is no entry id")


ZERO = EntryId(0, 0)
"""Below every entry: the last id of a stream that never had an entry."""


class UnmappedIdError(ValueError):
    """An entry whose id has no offset: its sequence or its milliseconds need more bits."""


@dataclass(frozen=True, slots=True)
class EntryIdMap:
    """The mapping with this number of bits for sequences."""

    bits: int = SEQUENCE_BITS

    @property
    def per_ms(self) -> int:
        """The number of offsets of a millisecond."""
        return 1 << self.bits

    def offset_of(self, entry: EntryId) -> int:
        """The offset of an entry.

        Raises:
            UnmappedIdError: the entry has none.
        """
        ms, sequence = entry
        if sequence >> self.bits or ms >> (_OFFSET_BITS - self.bits):
            raise UnmappedIdError(
                f"entry {ms}-{sequence} has no offset: sequences are below {self.per_ms}, "
                f"milliseconds below {1 << (_OFFSET_BITS - self.bits)} (bits={self.bits})"
            )
        return (ms << self.bits) | sequence

    def offset_after(self, entry: EntryId) -> int:
        """The offset after an entry or, if the entry has no offset, after its millisecond."""
        ms = min(entry.ms, (1 << (_OFFSET_BITS - self.bits)) - 1)
        after = ((ms << self.bits) | min(entry.sequence, self.per_ms - 1)) + 1
        return min(after, (1 << _OFFSET_BITS) - 1)

    def id_at(self, offset: int) -> EntryId:
        """The id with this offset, of an entry that may not exist."""
        return EntryId(offset >> self.bits, offset & (self.per_ms - 1))

    def first_id_from(self, offset: int) -> EntryId:
        """The lowest id that a read from `offset` on must not skip.

        At the first offset of a millisecond, this includes the entries without an offset at the end
        of the previous millisecond: the read fails instead of skipping them.
        """
        found = self.id_at(offset)
        if found.sequence or not found.ms:
            return found
        return EntryId(found.ms - 1, self.per_ms)

    def first_offset_of(self, ms: int) -> int:
        """The lowest offset of a millisecond, or of the last millisecond with offsets."""
        return min(max(ms, 0), (1 << (_OFFSET_BITS - self.bits)) - 1) << self.bits
