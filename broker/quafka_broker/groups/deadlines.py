"""Deadlines by name, the earliest first. Pure: the caller passes `now`."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

NEVER = float("inf")
_SPARE = 100

Name = TypeVar("Name", str, tuple[int, str])


@dataclass(slots=True, eq=False)
class DeadlineHeap(Generic[Name]):
    """At most one deadline per name: the earliest scheduled one."""

    _heap: list[tuple[float, Name]] = field(default_factory=list[tuple[float, Name]])
    _due: dict[Name, float] = field(default_factory=dict[Name, float])

    @property
    def earliest(self) -> float:
        """The earliest deadline, or an earlier one that was cancelled; NEVER without any."""
        return self._heap[0][0] if self._heap else NEVER

    def schedule(self, name: Name, when: float) -> bool:
        """Set a deadline unless the name has an earlier one; returns whether it was set."""
        if when >= self._due.get(name, NEVER):
            return False
        self._due[name] = when
        if len(self._heap) > _SPARE + 2 * len(self._due):  # most were cancelled or replaced
            self._heap = [(due, each) for each, due in self._due.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (when, name))
        return True

    def cancel(self, name: Name) -> None:
        """Remove the name's deadline."""
        self._due.pop(name, None)

    def pop(self, now: float) -> Name | None:
        """Remove and return the name with the earliest deadline, if that has passed."""
        while self._heap and self._heap[0][0] <= now:
            when, name = heappop(self._heap)
            if self._due.get(name) == when:
                del self._due[name]
                return name
        return None
