"""When each of many things is due, the earliest first. Pure: the caller brings `now`."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Deadlines:
    """At most one deadline of each name counts: the earliest it was given."""

    _heap: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    _due: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def earliest(self) -> float:
        """Nothing is due before."""
        return self._heap[0][0] if self._heap else NEVER

    def watch(self, name: str, when: float) -> None:
        """It is due then, if not before."""
        if when < self._due.get(name, NEVER):
            self._due[name] = when
            heappush(self._heap, (when, name))

    def forget(self, name: str) -> None:
        """It is not due at all."""
        self._due.pop(name, None)

    def pop(self, now: float) -> str | None:
        """The first that is due by now; it is not any more."""
        while self._heap and self._heap[0][0] <= now:
            when, name = heappop(self._heap)
            if self._due.get(name) == when:
                del self._due[name]
                return name
        return None
