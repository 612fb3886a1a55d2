"""The memory that the groups of one org use, and its cost per item. Pure.

The bytes are generous estimates, so that a bound in bytes bounds memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quafka_proto.schema.groups import JoinGroupRequestProtocol

_MEMBER_COST, _PROTOCOL_COST, _PENDING_COST, _OFFSET_COST = 1_500, 300, 400, 600


@dataclass(slots=True)
class OrgUsage:
    """One org's groups, members (including pending ids), and bytes."""

    groups: int = 0
    members: int = 0
    member_bytes: int = 0
    offset_bytes: int = 0


def member_cost(names: Iterable[str], protocols: Iterable[tuple[str, bytes]], assigned: int) -> int:
    """A member's bytes: its names, protocols with metadata, and assignment."""
    brought = sum(_PROTOCOL_COST + len(name) + len(data) for name, data in protocols)
    return _MEMBER_COST + sum(map(len, names)) + brought + assigned


def joining_cost(
    names: Iterable[str], protocols: Iterable[JoinGroupRequestProtocol], assigned: int
) -> int:
    """The bytes of a member that joins with these protocols."""
    return member_cost(names, ((each.name, each.metadata) for each in protocols), assigned)


def pending_cost(member_id: str) -> int:
    """The bytes of a member id that was issued and not used yet."""
    return _PENDING_COST + len(member_id)


def offset_cost(topic: str, metadata: str) -> int:
    """The bytes of a committed offset. One character may take four."""
    wide = 1 if metadata.isascii() else 4
    return _OFFSET_COST + len(topic) + wide * len(metadata)
