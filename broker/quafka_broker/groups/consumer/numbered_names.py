"""Numbers names, so that sets of them are bitmaps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyroaring import BitMap

_COST = 200
"""Bytes of a name with its number, without its characters."""


class NumberedNames:
    """The names of all sets that were claimed and not released, each with its count of sets.

    The number of a name that is no longer in any set is reused.
    """

    def __init__(self) -> None:
        self.listed: list[str] = []
        """Names by their numbers; "" marks a free number."""
        self._numbers: dict[str, int] = {}
        self._claims: list[int] = []
        self._free: list[int] = []
        self._characters = 0

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def cost(self) -> int:
        """The bytes of the names."""
        return _COST * len(self.listed) + self._characters

    def claim(self, names: Iterable[str]) -> BitMap:
        """Add a set of names; each name must be in it once, and none may be empty."""
        numbers, claims = self._numbers, self._claims
        found: list[int] = []
        for name in names:
            number = numbers.get(name)
            if number is None:
                number = self._new(name)
            claims[number] += 1
            found.append(number)
        return BitMap(found)

    def release(self, numbers: BitMap) -> list[str]:
        """Remove a claimed set; returns the names that are in no other set."""
        claims = self._claims
        gone: list[str] = []
        for number in numbers:
            claims[number] -= 1
            if not claims[number]:
                gone.append(self.listed[number])
        for name in gone:
            number = self._numbers.pop(name)
            self.listed[number] = ""
            self._free.append(number)
            self._characters -= len(name)
        if not self._numbers:
            self.listed, self._claims, self._free = [], [], []
        return gone

    def names(self, numbers: BitMap) -> list[str]:
        """The names of a set."""
        return list(map(self.listed.__getitem__, numbers))

    def _new(self, name: str) -> int:
        if self._free:
            number = self._free.pop()
            self.listed[number] = name
        else:
            number = len(self.listed)
            self.listed.append(name)
            self._claims.append(0)
        self._numbers[name] = number
        self._characters += len(name)
        return number
