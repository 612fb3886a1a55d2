"""The segments of a folder that the chain has, their first objects, and their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quafka_broker.chain.chain import DurableEnd
from quafka_broker.chain.segment_parts import SegmentParts
from quafka_proto.chain_format import StoredFile


class ChainedSegments:
    """The segment that is appended to (the *active* one), and sealed ones that are not objects yet.

    All methods are called with the lock of the folder held.

    Attributes:
        sealed_below: the number of the active segment; those before it are sealed.
    """

    def __init__(self) -> None:
        self._first_seq: dict[int, int] = {}
        self._parts: dict[int, SegmentParts] = {}
        self.sealed_below = 0

    def __iter__(self) -> Iterator[int]:
        """The numbers of the segments, oldest first."""
        return iter(sorted(self._first_seq))

    @property
    def newest(self) -> int | None:
        """The number of the newest segment, or None."""
        return max(self._first_seq, default=None)

    def add(self, number: int, first_seq: int, parts: SegmentParts | None = None) -> None:
        """Add a segment whose entries are in the chain from this object on."""
        self._first_seq[number] = first_seq
        self._parts[number] = parts or SegmentParts()

    def remove(self, number: int) -> None:
        """Remove a segment that has become an object, or whose files are gone."""
        self._first_seq.pop(number, None)
        self._parts.pop(number, None)

    def drop_parts(self, number: int) -> None:
        """Forget the parts of a segment whose whole log is one object."""
        self._parts.pop(number, None)

    def keep(self, is_needed: Callable[[int], bool]) -> None:
        """Forget the sealed segments that are no longer needed."""
        self._first_seq = {
            number: seq
            for number, seq in self._first_seq.items()
            if number >= self.sealed_below or is_needed(number)
        }

    # --- parts of the active segment ------------------------------------------------------------

    def parts_of(self, number: int) -> SegmentParts | None:
        """The parts of a segment, or None if the chain does not have it."""
        return self._parts.get(number)

    def set_parts(self, number: int, parts: SegmentParts) -> None:
        """Set the parts of a segment."""
        self._parts[number] = parts

    def files(self) -> list[StoredFile]:
        """The objects of all parts."""
        return [file for parts in self._parts.values() for file in parts.files]

    def tail(self, end: DurableEnd) -> tuple[int, int]:
        """The numbers of objects and bytes of the active segment that are in no part."""
        number = self.sealed_below
        parts = self._parts.get(number)
        if parts is None or end.segment != number:
            return 0, 0
        since = max(parts.next_seq, self._first_seq[number])
        return end.seq - since, end.position - parts.end

    def starts(self, is_chained: Callable[[int], bool]) -> tuple[int, int]:
        """The first chain object that is needed, and the first that is in no part."""
        chained = [number for number in self._first_seq if is_chained(number)]
        if not chained:
            return 0, 0
        tails = (max(self._first_seq[n], self._parts[n].next_seq) for n in chained)
        return min(self._first_seq[number] for number in chained), min(tails)
