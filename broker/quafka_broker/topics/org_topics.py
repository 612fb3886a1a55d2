"""One org's topics: their sorted names, number of partitions, and a version. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class _Topic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...


class OrgFullError(Exception):
    """The org would exceed its limit of topics or partitions."""


class CollidingNameError(Exception):
    """Another topic of the org has the name, except for `.` and `_`."""


class OrgRoom(NamedTuple):
    """The maximum numbers of topics and partitions of an org."""

    partitions: int
    topics: int


class OrgTopics:
    """One org's topics, updated with the registry. Names are sorted on first use."""

    __slots__ = ("_changes", "_names", "_run", "_sorted", "_unified", "partitions")

    def __init__(self, run: bytes) -> None:
        """`run`: makes versions differ from those of any other run of the broker."""
        self._run = run
        self._names: set[str] = set()
        self._sorted: list[str] | None = None
        self._unified: dict[str, tuple[str, ...]] = {}
        """The names with `.` or `_`, by the name with `_` for `.`."""
        self._changes = 0
        self.partitions = 0
        """The number of partitions of all topics."""

    def __len__(self) -> int:
        """The number of topics."""
        return len(self._names)

    @property
    def version(self) -> bytes:
        """A version that changes with each change, and in each run of the broker."""
        return self._run + self._changes.to_bytes(8, "big")

    def put(self, before: _Topic | None, topic: _Topic) -> None:
        """Add a topic, or replace its earlier state `before`."""
        self._changes += 1
        self.partitions += topic.partitions - (before.partitions if before else 0)
        if topic.name not in self._names:
            self._names.add(topic.name)
            unified = _unified(topic.name)
            if unified is not None:
                self._unified[unified] = (*self._unified.get(unified, ()), topic.name)
            if self._sorted is not None:
                insort(self._sorted, topic.name)

    def remove(self, topic: _Topic) -> None:
        """Remove a topic."""
        self._changes += 1
        self.partitions -= topic.partitions
        self._names.discard(topic.name)
        unified = _unified(topic.name)
        if unified is not None:
            left = tuple(name for name in self._unified.pop(unified) if name != topic.name)
            if left:
                self._unified[unified] = left
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, topic.name)]

    def check_name(self, name: str) -> None:
        """Raise CollidingNameError if the new name collides with an existing one, as in Kafka.

        Logs of earlier versions may have topics whose names collide; they are kept.
        """
        unified = _unified(name)
        if unified is not None and unified in self._unified:
            raise CollidingNameError(f"the name collides with topic {self._unified[unified][0]!r}")

    def check_room(self, more: int, room: OrgRoom, topics: int = 0) -> None:
        """Raise OrgFullError if this many more partitions and topics would exceed a limit."""
        if self.partitions + more > room.partitions:
            raise OrgFullError(
                f"{more} more partitions: the org has {self.partitions} of "
                f"max.partitions.per.org={room.partitions}"
            )
        if topics and len(self) + topics > room.topics:
            raise OrgFullError(f"the org has {len(self)} topics of max.topics={room.topics}")

    def after(self, name: str, most: int) -> tuple[Sequence[str], bool]:
        """Up to `most` names after this one in order, and whether more follow."""
        if self._sorted is None:
            self._sorted = sorted(self._names)
        start = bisect_right(self._sorted, name) if name else 0
        return self._sorted[start : start + most], start + most < len(self._sorted)

    def names(self) -> Iterable[str]:
        """All names, unordered."""
        return self._names


def _unified(name: str) -> str | None:
    """The name with `_` for `.`; None if it has neither, and so collides with no other name."""
    return name.replace(".", "_") if "." in name or "_" in name else None
