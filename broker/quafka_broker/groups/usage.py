"""What the groups of one org hold in memory, and what each thing counts for. Pure.

The bytes are estimates of memory with room to spare, so that a bound in bytes is one of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quafka_mesh_ops.ops.groups import Protocol

_MEMBER_COST, _PROTOCOL_COST, _EXPECTED_COST, _OFFSET_COST = 1_500, 300, 400, 600


@dataclass(slots=True)
class Usage:
    """Of one org: groups, members with the ids that are handed out, and bytes."""

    groups: int = 0
    members: int = 0
    member_bytes: int = 0
    offset_bytes: int = 0


def member_cost(names: Iterable[str], protocols: Iterable[tuple[str, bytes]], assigned: int) -> int:
    """A member's bytes: the texts that name it, what it brings, and what it is assigned."""
    brought = sum(_PROTOCOL_COST + len(name) + len(data) for name, data in protocols)
    return _MEMBER_COST + sum(map(len, names)) + brought + assigned


def joining_cost(names: Iterable[str], protocols: Iterable[Protocol], assigned: int) -> int:
    """The bytes of a member that joins with these."""
    return member_cost(names, ((each.name, each.metadata) for each in protocols), assigned)


def expected_cost(member_id: str) -> int:
    """The bytes of an id that is handed out."""
    return _EXPECTED_COST + len(member_id)


def offset_cost(topic: str, metadata: str) -> int:
    """The bytes of a committed offset. One character may take four."""
    wide = 1 if metadata.isascii() else 4
    return _OFFSET_COST + len(topic) + wide * len(metadata)
