"""Ranges of records with equal states, ascending and without holes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from quafka_broker.shares.states import NOBODY, Holder, RecordState

NEVER = float("inf")
_first = attrgetter("first")


@dataclass(slots=True)
class Range:
    """Records [first, end) in one state.

    Attributes:
        deliveries: the number of deliveries.
        holder: who has them, if they are acquired.
        until: the time at which their lock ends.
        pending: whether an acknowledgement is not complete, so that the records cannot be used.
            Until it is, `holder` and `until` are those from before.
    """

    first: int
    end: int
    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    holder: Holder = NOBODY
    until: float = NEVER
    pending: bool = False

    @property
    def is_free(self) -> bool:
        """Whether a member may take the records."""
        return self.state is RecordState.AVAILABLE and not self.pending

    @property
    def is_held(self) -> bool:
        """Whether a member has the records, and no acknowledgement of them is under way."""
        return self.state is RecordState.ACQUIRED and not self.pending

    def continues(self, other: Range) -> bool:
        """Whether this range can be merged with the one before it."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.pending == other.pending
            and self.holder == other.holder
            and self.until == other.until
        )


class Ranges(list[Range]):
    """The ranges over some offsets. Callers may change the first and the last one."""

    __slots__ = ()

    def place(self, offset: int) -> int:
        """The place of the range that contains an offset."""
        return max(0, bisect_right(self, offset, key=_first) - 1)

    def extend_to(self, first: int, end: int) -> None:
        """Add the offsets [first, end), which follow the last range, as records never delivered."""
        last = self[-1] if self else None
        if last is not None and last.is_free and not last.deliveries:
            last.end = end
        else:
            self.append(Range(first, end))

    def split(self, at: int, offset: int) -> None:
        """Split a range in two, the second one beginning at `offset`."""
        here = self[at]
        if here.first < offset < here.end:
            rest = Range(
                offset, here.end, here.state, here.deliveries, here.holder, here.until, here.pending
            )
            here.end = offset
            self.insert(at + 1, rest)

    def carve(self, first: int, end: int) -> Iterator[int]:
        """The places of the ranges that make up [first, end) exactly.

        The caller may split a range at its place; then the next place is the second part.
        """
        at = self.place(first)
        if self[at].first < first:
            self.split(at, first)
            at += 1
        while at < len(self) and self[at].first < end:
            self.split(at, end)
            yield at
            at += 1

    def merge(self, first: int, end: int) -> None:
        """Merge equal neighbours in and around [first, end)."""
        low = max(0, self.place(first) - 1)
        high = min(len(self), self.place(end) + 1)
        merged: list[Range] = []
        for here in self[low:high]:
            if merged and here.continues(merged[-1]):
                merged[-1].end = here.end
            else:
                merged.append(here)
        if len(merged) < high - low:
            self[low:high] = merged
