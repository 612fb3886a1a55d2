"""What a checker reports."""

from __future__ import annotations

from typing import NamedTuple


class Violation(NamedTuple):
    """One thing in a history that must not be."""

    name: str
    """Its kind, such as "lost"."""
    message: str
    events: tuple[int, ...]
    """The numbers of the events that show it."""

    def __str__(self) -> str:
        """One line for people."""
        numbers = ", ".join(map(str, self.events))
        return f"{self.name}: {self.message} (events {numbers})"
