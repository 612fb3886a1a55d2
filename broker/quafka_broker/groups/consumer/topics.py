"""Topics and partitions as seen by the members of a group and its assignors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgpack as untyped_msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

msgpack: Any = untyped_msgpack
packer: Any = msgpack.Packer()
"""One packer for all facts, for one event loop: each packer has a buffer of 256 KiB."""

Partitions = Mapping[bytes, Collection[int]]
"""Partitions by topic id (16 bytes)."""
Held = dict[bytes, dict[int, int]]
"""Partitions by topic id, each with the group's epoch at which its member got it (KIP-1251)."""
Target = dict[bytes, frozenset[int]]
"""The target partitions of one member, by topic id. No set is empty."""


@dataclass(frozen=True)
class TopicMetadata:
    """A topic.

    Attributes:
        id: 16 bytes; a topic that is created again has another id.
        partitions: the number of partitions.
        racks: the racks of each partition's replicas; () if unknown.
    """

    id: bytes
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    @cached_property
    def row(self) -> bytes:
        """The topic in the fact of a group's topics (facts.py)."""
        racks = [sorted(racks) for racks in self.racks]
        packed: bytes = packer.pack([self.name, self.id, self.partitions, racks])
        return packed


Known = Mapping[str, TopicMetadata | None]
"""A caller's metadata of topics, by name. None: there is no such topic. Missing: unchanged."""


def count(partitions: Partitions | Held) -> int:
    """The number of partitions."""
    return sum(map(len, partitions.values()))


def each(partitions: Partitions | Held) -> Iterator[tuple[bytes, int]]:
    """The partitions, one by one."""
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield topic_id, number


def within(partitions: Partitions, held: Partitions | Held) -> bool:
    """Whether all of the partitions are among the held ones."""
    for topic_id, numbers in partitions.items():
        of_topic = held.get(topic_id, ())
        if not all(number in of_topic for number in numbers):
            return False
    return True


def overlap(partitions: Partitions, held: Partitions | Held) -> bool:
    """Whether any of the partitions is among the held ones."""
    for topic_id, numbers in partitions.items():
        of_topic = held.get(topic_id)
        if of_topic and any(number in of_topic for number in numbers):
            return True
    return False


def same(one: Partitions, other: Partitions) -> bool:
    """Whether these are the same partitions, regardless of epochs."""
    if one is other:
        return True
    return one.keys() == other.keys() and all(
        numbers is other[topic_id] or set(numbers) == set(other[topic_id])
        for topic_id, numbers in one.items()
    )
