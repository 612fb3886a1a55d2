"""How the leader of a classic group assigns partitions, and the metadata of its members."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from quafka_proto.consumer_protocol import assignment_of, subscription_of
from tests.sim.clients.job import Place

_VERSION = 2
"""With the partitions that a member has, and the generation that it has them from."""
_GENERATION = struct.Struct(">i")
Claims = tuple[int, list[Place]]
"""A generation, and the partitions that a member has had in it."""


def subscription(topics: Sequence[str], owned: Iterable[Place], generation: int) -> bytes:
    """A member's metadata."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    partitions = assignment_of(_VERSION, by_name(sorted(owned)))[2:-4]
    head = struct.pack(">hi", _VERSION, len(topics))
    return head + names + struct.pack(">i", -1) + partitions + _GENERATION.pack(generation)


def claims(metadata: bytes) -> Claims:
    """What a member of this metadata has."""
    found = subscription_of(bytes(metadata))
    (generation,) = _GENERATION.unpack_from(metadata, len(metadata) - _GENERATION.size)
    return generation, [(name, n) for name, its in found.owned.items() for n in its]


def assign(
    places: Sequence[Place], members: Mapping[str, Claims], *, cooperative: bool
) -> dict[str, list[Place]]:
    """Each member's partitions; all of them are subscribed to the same topics.

    In a cooperative group members keep what they have, as far as that is fair. What a member must
    give up goes to nobody until it has done so.
    """
    owners = _owners(members) if cooperative else {}
    found: dict[str, list[Place]] = {member: [] for member in sorted(members)}
    most = -(-len(places) // len(found))
    free: list[Place] = []
    for place in places:
        owner = owners.get(place)
        if owner is not None and len(found[owner]) < most:
            found[owner].append(place)
        else:
            free.append(place)
    for place in free:
        least = min(found, key=lambda member: len(found[member]))
        found[least].append(place)
    _level(found)
    return {
        member: [place for place in its if owners.get(place, member) == member]
        for member, its in found.items()
    }


def by_name(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions by topic."""
    found: dict[str, list[int]] = {}
    for name, partition in places:
        found.setdefault(name, []).append(partition)
    return found


def _owners(members: Mapping[str, Claims]) -> dict[Place, str]:
    """Who has each partition: who has it from the latest generation, if several say so."""
    found: dict[Place, tuple[int, str]] = {}
    for member, (generation, places) in sorted(members.items()):
        for place in places:
            if place not in found or found[place][0] < generation:
                found[place] = generation, member
    return {place: member for place, (_, member) in found.items()}


def _level(found: dict[str, list[Place]]) -> None:
    """Move partitions until no member has two more than another."""
    while True:
        least = min(found, key=lambda member: len(found[member]))
        most = max(found, key=lambda member: len(found[member]))
        if len(found[most]) - len(found[least]) < 2:
            return
        found[least].append(found[most].pop())
