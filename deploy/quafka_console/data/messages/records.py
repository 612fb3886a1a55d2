"""Records as the console keeps them: the beginnings of large keys, values and headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SHOWN_BYTES = 64 << 10
"""Of each key and value, and of all headers of a record."""


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """The beginning of a key or value. `size`: all bytes that it had."""

    data: bytes
    size: int

    @property
    def whole(self) -> bool:
        """Whether nothing is cut."""
        return len(self.data) == self.size


class Outcome(StrEnum):
    """What became of a record's transaction, as far as read_committed consumers are concerned.

    HELD: the record is at or after the last stable offset. Its own transaction or an earlier one
    is open, and consumers do not get it before that has ended.
    """

    NONE = ""
    COMMITTED = "committed"
    ABORTED = "aborted"
    HELD = "held back"


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record.

    Attributes:
        timestamp: ms since 1970.
        headers: the first ones.
        all_headers: how many there were.
        mark: COMMIT or ABORT, if it ends a transaction.
        outcome: of its transaction.
    """

    partition: int
    offset: int
    timestamp: int
    key: KeptBytes | None
    value: KeptBytes | None
    headers: Sequence[tuple[str, KeptBytes | None]]
    all_headers: int = 0
    mark: str = ""
    outcome: Outcome = Outcome.NONE

    @property
    def kept(self) -> int:
        """About the bytes of memory that it takes."""
        parts = [self.key, self.value, *(value for _, value in self.headers)]
        names = sum(len(name) for name, _ in self.headers)
        return 500 + names + sum(len(each.data) for each in parts if each is not None)


def kept(data: bytes | None, most: int = SHOWN_BYTES) -> KeptBytes | None:
    """The first `most` bytes."""
    return None if data is None else KeptBytes(data[:most], len(data))


def kept_headers(
    headers: Sequence[tuple[str, bytes | None]], most: int = SHOWN_BYTES
) -> list[tuple[str, KeptBytes | None]]:
    """The first headers, of together `most` bytes; the last of them may be cut."""
    found: list[tuple[str, KeptBytes | None]] = []
    for name, value in headers:
        if most <= 0:
            break
        cut = kept(value, max(0, most - len(name)))
        found.append((name[:most], cut))
        most -= len(name) + (0 if cut is None else len(cut.data)) + 16
    return found
