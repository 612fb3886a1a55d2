"""Which segments of a folder the chain has, since which object, and in which parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quafka_broker.chain.chain import DurableEnd
from quafka_broker.chain.segment_parts import SegmentParts
from quafka_proto.chain_format import StoredFile


class ChainedSegments:
    """The segment that is appended to, the *active* one, and sealed ones that are not objects yet.

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
        """The number of the newest segment; None: there is none."""
        return max(self._first_seq, default=None)

    def add(self, number: int, first_seq: int, parts: SegmentParts | None = None) -> None:
        """A segment whose entries are in the chain from this object on."""
        self._first_seq[number] = first_seq
        self._parts[number] = parts or SegmentParts()

    def remove(self, number: int) -> None:
        """A segment is an object, or its files are gone."""
        self._first_seq.pop(number, None)
        self._parts.pop(number, None)

    def drop_parts(self, number: int) -> None:
        """All of a segment's log is one object."""
        self._parts.pop(number, None)

    def keep(self, is_needed: Callable[[int], bool]) -> None:
        """Forget the sealed segments that are not needed any more."""
        self._first_seq = {
            number: seq
            for number, seq in self._first_seq.items()
            if number >= self.sealed_below or is_needed(number)
        }

    # --- parts of the active segment ------------------------------------------------------------

    def parts_of(self, number: int) -> SegmentParts | None:
        """The parts of a segment; None: the chain does not have it."""
        return self._parts.get(number)

    def set_parts(self, number: int, parts: SegmentParts) -> None:
        """A segment has these parts from now on."""
        self._parts[number] = parts

    def files(self) -> list[StoredFile]:
        """The objects of all parts."""
        return [file for parts in self._parts.values() for file in parts.files]

    def tail(self, end: DurableEnd) -> tuple[int, int]:
        """How many objects and bytes of the active segment are in the chain, but in no part."""
        number = self.sealed_below
        parts = self._parts.get(number)
        if parts is None or end.segment != number:
            return 0, 0
        since = max(parts.next_seq, self._first_seq[number])
        return end.seq - since, end.position - parts.end

    def starts(self, is_chained: Callable[[int], bool]) -> tuple[int, int]:
        """The first chain object that is needed, and the first that is not in parts, either."""
        chained = [number for number in self._first_seq if is_chained(number)]
        if not chained:
            return 0, 0
        tails = (max(self._first_seq[n], self._parts[n].next_seq) for n in chained)
        return min(self._first_seq[number] for number in chained), min(tails)
