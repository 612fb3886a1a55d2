"""The entries of an allow-list: the rights that they grant, and their syntax.

    NODE_ID [orgs=ORGS] [may=RIGHTS]

`ORGS` are org ids and ranges of them, separated by commas (`1,7-9`), or `*`. `RIGHTS` are serve,
administer, snapshot and coordinate, separated by commas. A bare node id grants every right in every
org. If only one of the two fields is given, `orgs` defaults to `*`, and `may` to serve and
administer, which is what a gateway needs.

A node may have several entries; each one allows what it grants.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quafka_mesh_ops.node_ids import NodeId, parse_node_id
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.rights import NEEDS, MeshRight, Need
from quafka_mesh_ops.transport.log_limit import LimitedLog

LAST_ORG = 0xFFFFFFFF
"""Org ids are stored in four bytes; org 0 is the broker's own."""

Orgs = tuple[tuple[int, int], ...]
"""Ranges of org ids, both ends included."""

EVERY_ORG: Orgs = ((1, LAST_ORG),)
EVERY_RIGHT = frozenset(MeshRight)
GATEWAY_RIGHTS = frozenset({MeshRight.SERVE, MeshRight.ADMINISTER})

_LOGGED_EVERY = 60.0  # seconds: the node's clients retry
_REMEMBERED = 4_096
"""Decisions. A peer may name any org."""
_NAMES = frozenset(right.value for right in MeshRight)
_ORGS = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)
ALLOWED = (
    "NODE_ID [orgs=1,7-9] [may=serve,administer,snapshot,coordinate]; a node id is 64 hex digits"
)


@dataclass(frozen=True, slots=True)
class AllowListEntry:
    """One line of an allow-list."""

    node_id: NodeId
    orgs: Orgs = EVERY_ORG
    rights: frozenset[MeshRight] = EVERY_RIGHT

    def __str__(self) -> str:
        """Return the text of the entry, which `parse_entry` reads."""
        if self.orgs == EVERY_ORG and self.rights == EVERY_RIGHT:
            return self.node_id
        may = ",".join(right for right in MeshRight if right in self.rights)
        return f"{self.node_id} orgs={show_orgs(self.orgs)} may={may}"

    def covers(self, need: Need, org: int) -> bool:
        """Whether the entry allows an op with this need in this org."""
        if need.right not in self.rights:
            return False
        if need.every_org:
            return self.orgs == EVERY_ORG
        for first, last in self.orgs:  # noqa: SIM110 - any() takes three times as long
            if first <= org <= last:
                return True
        return False


Grant = tuple[AllowListEntry, ...]
"""The entries of a node; without any it may not even connect."""


def permits(grant: Grant, need: Need, org: int) -> bool:
    """Whether a grant allows an op with this need in this org."""
    for entry in grant:  # noqa: SIM110 - as above; called for each op
        if entry.covers(need, org):
            return True
    return False


def everything(node_id: NodeId) -> Grant:
    """Return the grant of a bare node id."""
    return (AllowListEntry(node_id),)


def by_node(entries: Iterable[AllowListEntry]) -> dict[NodeId, Grant]:
    """Group entries by node."""
    found: dict[NodeId, Grant] = {}
    for entry in dict.fromkeys(entries):
        found[entry.node_id] = (*found.get(entry.node_id, ()), entry)
    return found


def parse_entry(text: str) -> AllowListEntry:
    """Parse an entry.

    Raises:
        ValueError: it is invalid; the message gives the reason.
    """
    head, *fields = text.split() or [""]
    node_id = parse_node_id(head)
    found: dict[str, str] = {}
    for field in fields:
        key, equals, value = field.partition("=")
        if key not in ("orgs", "may") or not equals:
            raise ValueError(f"{field!r} is unknown: allowed is {ALLOWED}")
        if key in found:
            raise ValueError(f"{key}= occurs twice")
        found[key] = value
    orgs = parse_orgs(found["orgs"]) if "orgs" in found else EVERY_ORG
    default = GATEWAY_RIGHTS if "orgs" in found else EVERY_RIGHT
    return AllowListEntry(node_id, orgs, parse_rights(found["may"]) if "may" in found else default)


def parse_entries(text: str) -> tuple[AllowListEntry, ...]:
    """Parse entries separated by commas, which also separate the values in an entry.

    Raises:
        ValueError: as `parse_entry`.
    """
    found: list[str] = []
    for part in text.split(","):
        if found and "=" in found[-1] and not _begins_entry(part):
            found[-1] += f",{part.strip()}"
        elif part.strip():
            found.append(part)
    return tuple(map(parse_entry, found))


def _begins_entry(text: str) -> bool:
    words = text.split()
    try:
        return bool(words) and bool(parse_node_id(words[0]))
    except ValueError:
        return False


def parse_orgs(text: str) -> Orgs:
    """Parse `*`, or org ids and ranges. The result is sorted and has no overlaps.

    Raises:
        ValueError: the text is invalid; the message names the allowed forms.
    """
    if text == "*":
        return EVERY_ORG
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        found = _ORGS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last <= LAST_ORG:
            raise ValueError(
                f"orgs={text}: {part!r} is neither an org (1 to {LAST_ORG}) nor a range like 7-9"
            )
        ranges.append((first, last))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def show_orgs(orgs: Orgs) -> str:
    """Return the text that `parse_orgs` reads."""
    if orgs == EVERY_ORG:
        return "*"
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in orgs)


def parse_rights(text: str) -> frozenset[MeshRight]:
    """Parse names of rights. Raises ValueError; the message names the rights."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in _NAMES:
            raise ValueError(
                f"may={text}: {name!r} is no right: allowed are {', '.join(MeshRight)}"
            )
    return frozenset(map(MeshRight, names))


class Gatekeeper:
    """Decides whether a node may send an op, by its current grant."""

    def __init__(self, grants: Callable[[NodeId], Grant], logger: logging.Logger) -> None:
        self._grants = grants
        self._limited = LimitedLog(logger, _LOGGED_EVERY)
        self.refused: Counter[NodeId] = Counter()
        self._permitted: dict[tuple[NodeId, int, int], Grant] = {}
        """The grants that allowed an op in an org. While the node's grant is the same object, so is
        the decision."""

    def refusal(self, node_id: NodeId, op_code: int, org: int) -> int | None:
        """Return the error code for an op that the node may not send; counts and logs it.

        None: the op is allowed, or no op has this code.
        """
        grant, asked = self._grants(node_id), (node_id, op_code, org)
        if self._permitted.get(asked) is grant:
            return None
        need = NEEDS.get(op_code)
        if need is None:
            return None
        if permits(grant, need, org):
            if len(self._permitted) >= _REMEMBERED:
                self._permitted.clear()
            self._permitted[asked] = grant
            return None
        self.refused[node_id] += 1
        whose = "every org" if need.every_org else f"org {org}"
        self._limited.warning(
            f"{node_id} {need.right} {whose}",
            "refused %s of node %s: its entry on the allow-list does not let it %s %s",
            OpCode(op_code).name.lower(),
            node_id[:16],
            need.right,
            whose,
        )
        return need.refusal
