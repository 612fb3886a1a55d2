"""Entry ids of a stream and offsets of a partition.

    offset = (milliseconds << sequence bits) | sequence

With 10 bits, as in Korvet, a millisecond has 1,024 offsets. Offsets ascend as ids do, and either
follows from the other without a table, so a fetch may begin at any offset and after any restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_DIGITS = 20
_OFFSET_BITS = 63
OFFSETS = 1 << _OFFSET_BITS
"""All offsets are below."""

SEQUENCE_BITS = 10


class EntryId(NamedTuple):
    """The id of an entry. Both numbers have 64 bits in Redis."""

    ms: int
    sequence: int

    @property
    def text(self) -> bytes:
        """The id as Redis writes it."""
        return b"%d-%d" % self

    @classmethod
    def parse(cls, text: bytes) -> EntryId:
        """The id in Redis's answer.

        Raises:
            ValueError: it is no id.
        """
        ms, _, sequence = text.partition(b"-")
        if ms.isdigit() and sequence.isdigit() and len(ms) <= _DIGITS >= len(sequence):
            return cls(int(ms), int(sequence))
        raise ValueError(f"{text[:64]!r} is no entry id")


ZERO = EntryId(0, 0)
"""Below every entry: the last id of a stream that never had one."""


class UnmappedIdError(ValueError):
    """An entry whose id has no offset: its sequence or its milliseconds need more bits."""


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """The mapping with this number of bits for sequences."""

    bits: int = SEQUENCE_BITS

    @property
    def per_ms(self) -> int:
        """The number of offsets of a millisecond."""
        return 1 << self.bits

    def offset_of(self, entry: EntryId) -> int:
        """The offset of an entry.

        Raises:
            UnmappedIdError: it has none.
        """
        ms, sequence = entry
        if sequence >> self.bits or ms >> (_OFFSET_BITS - self.bits):
            raise UnmappedIdError(
                f"entry {ms}-{sequence} has no offset: sequences are below {self.per_ms}, "
                f"milliseconds below {1 << (_OFFSET_BITS - self.bits)} (bits={self.bits})"
            )
        return (ms << self.bits) | sequence

    def offset_after(self, entry: EntryId) -> int:
        """The offset after an entry; after the last of its millisecond where it has no offset."""
        ms = min(entry.ms, (1 << (_OFFSET_BITS - self.bits)) - 1)
        after = ((ms << self.bits) | min(entry.sequence, self.per_ms - 1)) + 1
        return min(after, (1 << _OFFSET_BITS) - 1)

    def id_at(self, offset: int) -> EntryId:
        """The id that has this offset, of an entry that may not exist."""
        return EntryId(offset >> self.bits, offset & (self.per_ms - 1))

    def first_id_from(self, offset: int) -> EntryId:
        """The least id that must not be skipped by a read from `offset` on.

        At the first offset of a millisecond, that includes the entries without an offset at the
        end of the millisecond before: the read fails instead of skipping them.
        """
        found = self.id_at(offset)
        if found.sequence or not found.ms:
            return found
        return EntryId(found.ms - 1, self.per_ms)

    def first_offset_of(self, ms: int) -> int:
        """The least offset of a millisecond, or of the last millisecond that has any."""
        return min(max(ms, 0), (1 << (_OFFSET_BITS - self.bits)) - 1) << self.bits
