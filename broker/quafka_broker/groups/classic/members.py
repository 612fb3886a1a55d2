"""The members of one group: their ids, the protocols that they support, and their memory use.

Static members (KIP-345) keep their place by their instance id; a member that joins with the same
instance id takes the place over.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage, joining_cost, member_cost, pending_cost
from quafka_mesh_ops.ops.groups import JoinedMember, JoinGroup, JoinGroupResp, SyncGroupResp
from quafka_proto.errors import ErrorCode

JoinReply = Callable[[JoinGroupResp], None]
SyncReply = Callable[[SyncGroupResp], None]


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member. `expires`: when its session ends, unless a request of it is parked."""

    id: str
    instance_id: str
    client_id: str
    client_host: str
    session: float
    rebalance: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    expires: float = NEVER
    joining: JoinReply | None = None
    syncing: SyncReply | None = None
    awaited: bool = False
    """Whether it has joined the new generation but has not yet fetched its assignment."""
    cost: int = 0
    """The bytes counted for it; `ClassicMembers` keeps this up to date."""

    def cost_now(self) -> int:
        """The bytes of its present state."""
        names = (self.id, self.instance_id, self.client_id, self.client_host)
        return member_cost(names, self.protocols.items(), len(self.assignment))


def new_member_id(prefix: str) -> str:
    """A member id in Kafka's form: a prefix and a UUID."""
    text = os.urandom(16).hex()
    return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(slots=True, eq=False)
class ClassicMembers:
    """All members of one group. `pending`: member ids that were issued and not used yet.

    `held`: the bytes of all of them. Every change updates the org's `usage`.
    """

    usage: OrgUsage = field(default_factory=OrgUsage)
    held: int = 0
    by_id: dict[str, ClassicMember] = field(default_factory=dict[str, ClassicMember])
    pending: set[str] = field(default_factory=set[str])
    _static: dict[str, str] = field(default_factory=dict[str, str])
    _supported: Counter[str] = field(default_factory=Counter[str])  # members by protocol

    # --- ids --------------------------------------------------------------------------------

    def static_id(self, instance_id: str) -> str:
        """The id of the member with this instance id, or ""."""
        return self._static.get(instance_id, "")

    def check_member(self, member_id: str, instance_id: str) -> ErrorCode:
        """The error of a request with these ids, unless they name a member."""
        if instance_id:
            known = self._static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # --- joining and leaving ----------------------------------------------------------------

    def add(self, op: JoinGroup, member_id: str, longest: float) -> ClassicMember:
        """Add a member. Its rebalance timeout is at most `longest`."""
        self.remove_pending(member_id)
        member = ClassicMember(member_id, op.instance_id, op.client_id, op.client_host, 0, 0, {})
        self._put(member)
        self._count(1, 0)
        self.update(member, op, longest)
        return member

    def _put(self, member: ClassicMember) -> None:
        self.by_id[member.id] = member
        if member.instance_id:
            self._static[member.instance_id] = member.id

    def add_pending(self, member_id: str) -> None:
        """Add a pending member id."""
        self.pending.add(member_id)
        self._count(1, pending_cost(member_id))

    def remove_pending(self, member_id: str) -> bool:
        """Remove a pending member id; returns whether it was pending."""
        if member_id not in self.pending:
            return False
        self.pending.discard(member_id)
        self._count(-1, -pending_cost(member_id))
        return True

    def assign(self, member: ClassicMember, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self._weigh(member)

    def release(self) -> None:
        """Subtract all members from the org's usage, since the group is dropped."""
        self._count(-len(self.by_id) - len(self.pending), -self.held)

    def _weigh(self, member: ClassicMember) -> None:
        before, member.cost = member.cost, member.cost_now()
        self._count(0, member.cost - before)

    def _count(self, members: int, held: int) -> None:
        self.held += held
        self.usage.members += members
        self.usage.member_bytes += held

    def update(self, member: ClassicMember, op: JoinGroup, longest: float) -> None:
        """Update a member from a join; its rebalance timeout is at most `longest`."""
        self._supported.subtract(member.protocols.keys())
        member.protocols = {p.name: p.metadata for p in op.protocols}
        self._supported.update(member.protocols.keys())
        self._supported += Counter()  # drops the protocols without members
        member.session = op.session_timeout_ms / 1000
        asked = op.rebalance_timeout_ms if op.rebalance_timeout_ms > 0 else op.session_timeout_ms
        member.rebalance = min(asked / 1000, longest)
        member.client_id, member.client_host = op.client_id, op.client_host
        self._weigh(member)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """Give a static member's place to its successor's member id."""
        del self.by_id[member.id]
        member.id = new_id
        self._put(member)

    def remove(self, member: ClassicMember) -> None:
        """Remove a member."""
        del self.by_id[member.id]
        self._count(-1, -member.cost)
        self._supported.subtract(member.protocols.keys())
        self._supported += Counter()
        if member.instance_id:
            del self._static[member.instance_id]

    # --- limits -----------------------------------------------------------------------------

    def has_room(self, op: JoinGroup, me: ClassicMember | None, limits: GroupLimits) -> bool:
        """Whether the limits of bytes and of the org's members allow a join."""
        names = (op.member_id or op.client_id, op.instance_id, op.client_id, op.client_host)
        if me is None:
            known = op.member_id in self.pending
            if not known and self.usage.members >= limits.org_members:
                return False
            more = joining_cost(names, op.protocols, 0)
        else:
            more = joining_cost(names, op.protocols, len(me.assignment)) - me.cost
        return self._may_add(more, limits)

    def has_room_to_assign(self, assignments: Mapping[str, bytes], limits: GroupLimits) -> bool:
        """Whether the limits allow these assignments in place of the present ones."""
        assigned = sum(len(member.assignment) for member in self.by_id.values())
        return self._may_add(sum(map(len, assignments.values())) - assigned, limits)

    def _may_add(self, more: int, limits: GroupLimits) -> bool:
        return more <= 0 or (
            self.held + more <= limits.max_bytes
            and self.usage.member_bytes + more <= limits.org_bytes
        )

    # --- protocols --------------------------------------------------------------------------

    def agrees(self, op: JoinGroup, me: ClassicMember | None) -> bool:
        """Whether all other members support one of the join's protocols."""
        known = me.protocols if me is not None else {}
        others = len(self.by_id) - (me is not None)
        return any(self._supported[p.name] - (p.name in known) == others for p in op.protocols)

    def select(self) -> str:
        """The protocol that most members prefer, of those that all members support."""
        common = {name for name, count in self._supported.items() if count == len(self.by_id)}
        votes = Counter(
            next(name for name in member.protocols if name in common)
            for member in self.by_id.values()
        )
        return votes.most_common(1)[0][0]

    def for_leader(self, protocol: str) -> list[JoinedMember]:
        """All members with their metadata, for the leader."""
        return [
            JoinedMember(member.id, member.instance_id, member.protocols.get(protocol, b""))
            for member in self.by_id.values()
        ]

    # --- stored state -----------------------------------------------------------------------

    def stored(self, assignments: Mapping[str, bytes] | None) -> list[dict[str, Any]]:
        """The state of each member for a restart, with these assignments or, if None, their own."""
        return [
            {
                "id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "session": member.session,
                "rebalance": member.rebalance,
                "protocols": member.protocols,
                "assignment": (
                    member.assignment if assignments is None else assignments.get(member.id, b"")
                ),
            }
            for member in self.by_id.values()
        ]

    def restore(self, stored: Iterable[Mapping[str, Any]]) -> None:
        """Add the members of a stored state.

        Raises:
            ValueError, KeyError, TypeError: it is not a result of `stored`.
        """
        for kept in stored:
            member = ClassicMember(
                kept["id"],
                kept["instance_id"],
                kept["client_id"],
                kept["client_host"],
                kept["session"],
                kept["rebalance"],
                dict(kept["protocols"]),
                kept["assignment"],
            )
            self._put(member)
            self._count(1, 0)
            self._weigh(member)
            self._supported.update(member.protocols.keys())
