"""Slugs: topic names in the letters of an RRL.

No two topics of an org have the same slug at a time: later ones get a number. The rule also applies
to logs from before it, and always yields the same slugs.
"""

from __future__ import annotations

import re
from itertools import count


class Slugs:
    """The slugs in use, by org."""

    def __init__(self) -> None:
        self._used: set[tuple[int, str]] = set()
        # By org and base: every number from 2 to below this one is in use.
        self._numbers: dict[tuple[int, str], int] = {}

    def free_for(self, org: int, slug: str) -> str:
        """This slug if it is free; otherwise with the lowest free number."""
        if (org, slug) not in self._used:
            return slug
        first = self._numbers.get((org, slug), 2)
        free = next(n for n in count(first) if (org, f"{slug}-{n}") not in self._used)
        self._numbers[org, slug] = free
        return f"{slug}-{free}"

    def reserve(self, org: int, slug: str) -> None:
        """Mark a slug as used."""
        self._used.add((org, slug))

    def release(self, org: int, slug: str) -> None:
        """Mark a slug as free."""
        self._used.discard((org, slug))
        base, _, number = slug.rpartition("-")
        if number.isdecimal() and int(number) < self._numbers.get((org, base), 0):
            self._numbers[org, base] = max(2, int(number))


def slug_of(name: str) -> str:
    """The slug of a topic name, not yet made unique."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "topic"
