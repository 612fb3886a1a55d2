"""Metrics of groups by kind: classic, of the consumer group protocol, and share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from quafka_broker.groups.coordinator import Coordinator
from quafka_broker.groups.group import GroupType
from quafka_telemetry.metrics import Family, FamilyKind

_TYPE = ("type",)


class KindFigures(NamedTuple):
    """The groups of one kind. `epochs`, `heartbeats`: since the start."""

    kind: GroupType
    groups: int
    members: int
    epochs: int
    heartbeats: int


def by_kind(groups: Coordinator) -> list[KindFigures]:
    """The figures of every kind, whether it has groups or not."""
    count: Counter[GroupType] = Counter()
    members: Counter[GroupType] = Counter()
    for _, entry in groups.every_group():
        count[entry.group.kind] += 1
        members[entry.group.kind] += entry.group.member_count
    figures = groups.figures
    return [
        KindFigures(
            kind, count[kind], members[kind], figures.epochs[kind], figures.heartbeats[kind]
        )
        for kind in GroupType
    ]


def group_families(groups: Coordinator) -> Iterator[Family]:
    """The families of all groups, by type."""
    found = by_kind(groups)
    yield Family(
        "quafka_groups", FamilyKind.GAUGE, "Groups by type",
        [((each.kind,), each.groups) for each in found], _TYPE,
    )  # fmt: skip
    yield Family(
        "quafka_group_members", FamilyKind.GAUGE, "Members of groups by the group's type",
        [((each.kind,), each.members) for each in found], _TYPE,
    )  # fmt: skip
    yield Family(
        "quafka_group_epochs", FamilyKind.COUNTER,
        "Rebalances: generations of classic groups, epochs of the others",
        [((each.kind,), each.epochs) for each in found], _TYPE,
    )  # fmt: skip
    yield Family(
        "quafka_group_heartbeats", FamilyKind.COUNTER, "Heartbeats of members by the group's type",
        [((each.kind,), each.heartbeats) for each in found], _TYPE,
    )  # fmt: skip
