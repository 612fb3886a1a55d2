"""How a person names a place in partitions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A place. `kind`: start, end, offset, time (ms), last (so many), shift (by so many)."""

    kind: str
    value: int = 0
