"""When each of many things is due, the earliest first. Pure: the caller brings `now`."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

NEVER = float("inf")
_SPARE = 100

Name = TypeVar("Name", str, tuple[int, str])


@dataclass(slots=True, eq=False)
class Deadlines(Generic[Name]):
    """At most one deadline of each name counts: the earliest it was given."""

    _heap: list[tuple[float, Name]] = field(default_factory=list[tuple[float, Name]])
    _due: dict[Name, float] = field(default_factory=dict[Name, float])

    @property
    def earliest(self) -> float:
        """Nothing is due before."""
        return self._heap[0][0] if self._heap else NEVER

    def watch(self, name: Name, when: float) -> bool:
        """It is due then, if not before; whether that is earlier than it was."""
        if when >= self._due.get(name, NEVER):
            return False
        self._due[name] = when
        if len(self._heap) > _SPARE + 2 * len(self._due):  # mostly of names forgotten since
            self._heap = [(due, each) for each, due in self._due.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (when, name))
        return True

    def forget(self, name: Name) -> None:
        """It is not due at all."""
        self._due.pop(name, None)

    def pop(self, now: float) -> Name | None:
        """The first that is due by now; it is not any more."""
        while self._heap and self._heap[0][0] <= now:
            when, name = heappop(self._heap)
            if self._due.get(name) == when:
                del self._due[name]
                return name
        return None
