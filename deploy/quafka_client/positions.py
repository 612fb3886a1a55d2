"""A position in partitions, as the command line names it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestedPosition:
    """A position. `kind`: start, end, offset, time (in ms), last (N records), shift (by N)."""

    kind: str
    value: int = 0
