"""The members of one group: who they are, by which ids they are known, what they can agree on.

Static members (KIP-345) bring an instance id of their own, by which they keep their place; who
comes with the same one takes it over.
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
class Member:
    """One member. `expires`: when its session ends, unless it is parked."""

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
    """Whether it has joined the generation that begins, and not yet asked for its assignment."""
    cost: int = 0
    """The bytes that it counts for; `Members` keeps it true."""

    def cost_now(self) -> int:
        """The bytes that it should count for."""
        names = (self.id, self.instance_id, self.client_id, self.client_host)
        return member_cost(names, self.protocols.items(), len(self.assignment))


def new_member_id(prefix: str) -> str:
    """As Kafka's: who it is, and a UUID."""
    text = os.urandom(16).hex()
    return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(slots=True, eq=False)
class Members:
    """All of one group. `pending`: ids that were handed out, and not yet used.

    `held`: the bytes that all of them count for. `usage`, the org's, follows every change.
    """

    usage: OrgUsage = field(default_factory=OrgUsage)
    held: int = 0
    by_id: dict[str, Member] = field(default_factory=dict[str, Member])
    pending: set[str] = field(default_factory=set[str])
    _static: dict[str, str] = field(default_factory=dict[str, str])
    _supported: Counter[str] = field(default_factory=Counter[str])  # members by protocol

    # --- who it is --------------------------------------------------------------------------

    def static_id(self, instance_id: str) -> str:
        """The id of the member with this instance id; "" where there is none."""
        return self._static.get(instance_id, "")

    def check_member(self, member_id: str, instance_id: str) -> ErrorCode:
        """Whether these name a member."""
        if instance_id:
            known = self._static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    # --- who comes and goes -----------------------------------------------------------------

    def add(self, op: JoinGroup, member_id: str, longest: float) -> Member:
        """Somebody new."""
        self.remove_pending(member_id)
        member = Member(member_id, op.instance_id, op.client_id, op.client_host, 0, 0, {})
        self._put(member)
        self._count(1, 0)
        self.update(member, op, longest)
        return member

    def _put(self, member: Member) -> None:
        self.by_id[member.id] = member
        if member.instance_id:
            self._static[member.instance_id] = member.id

    def add_pending(self, member_id: str) -> None:
        """Hand out an id."""
        self.pending.add(member_id)
        self._count(1, pending_cost(member_id))

    def remove_pending(self, member_id: str) -> bool:
        """An id that was handed out is used, or nobody's any more; whether it was one."""
        if member_id not in self.pending:
            return False
        self.pending.discard(member_id)
        self._count(-1, -pending_cost(member_id))
        return True

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member what the leader has for it."""
        member.assignment = assignment
        self._weigh(member)

    def release(self) -> None:
        """The group is not kept any more: its org holds nothing of it."""
        self._count(-len(self.by_id) - len(self.pending), -self.held)

    def _weigh(self, member: Member) -> None:
        before, member.cost = member.cost, member.cost_now()
        self._count(0, member.cost - before)

    def _count(self, members: int, held: int) -> None:
        self.held += held
        self.usage.members += members
        self.usage.member_bytes += held

    def update(self, member: Member, op: JoinGroup, longest: float) -> None:
        """What it says of itself when it joins; it may take no more than `longest` to."""
        self._supported.subtract(member.protocols.keys())
        member.protocols = {p.name: p.metadata for p in op.protocols}
        self._supported.update(member.protocols.keys())
        self._supported += Counter()  # those that nobody supports are not kept
        member.session = op.session_timeout_ms / 1000
        asked = op.rebalance_timeout_ms if op.rebalance_timeout_ms > 0 else op.session_timeout_ms
        member.rebalance = min(asked / 1000, longest)
        member.client_id, member.client_host = op.client_id, op.client_host
        self._weigh(member)

    def rename(self, member: Member, new_id: str) -> None:
        """Its place is another's, who has the same instance id."""
        del self.by_id[member.id]
        member.id = new_id
        self._put(member)

    def remove(self, member: Member) -> None:
        """It is gone."""
        del self.by_id[member.id]
        self._count(-1, -member.cost)
        self._supported.subtract(member.protocols.keys())
        self._supported += Counter()
        if member.instance_id:
            del self._static[member.instance_id]

    # --- how much they are ------------------------------------------------------------------

    def has_room(self, op: JoinGroup, me: Member | None, limits: GroupLimits) -> bool:
        """Whether a member may join, or be what it brings now, within the limits of bytes and of
        the org's members."""
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
        """Whether these may take the place of the present assignments."""
        assigned = sum(len(member.assignment) for member in self.by_id.values())
        return self._may_add(sum(map(len, assignments.values())) - assigned, limits)

    def _may_add(self, more: int, limits: GroupLimits) -> bool:
        return more <= 0 or (
            self.held + more <= limits.max_bytes
            and self.usage.member_bytes + more <= limits.org_bytes
        )

    # --- what they agree on -----------------------------------------------------------------

    def agrees(self, op: JoinGroup, me: Member | None) -> bool:
        """Whether one of the protocols that are brought is known to everybody else."""
        known = me.protocols if me is not None else {}
        others = len(self.by_id) - (me is not None)
        return any(self._supported[p.name] - (p.name in known) == others for p in op.protocols)

    def select(self) -> str:
        """Of the protocols that all know, the one that most prefer."""
        common = {name for name, count in self._supported.items() if count == len(self.by_id)}
        votes = Counter(
            next(name for name in member.protocols if name in common)
            for member in self.by_id.values()
        )
        return votes.most_common(1)[0][0]

    def for_leader(self, protocol: str) -> list[JoinedMember]:
        """What the group's leader is told of all."""
        return [
            JoinedMember(member.id, member.instance_id, member.protocols.get(protocol, b""))
            for member in self.by_id.values()
        ]

    # --- what is kept -----------------------------------------------------------------------

    def stored(self, assignments: Mapping[str, bytes] | None) -> list[dict[str, Any]]:
        """What a restart must know of each, with these assignments or, None, their own."""
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
        """Take up what `stored` gave.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        for kept in stored:
            member = Member(
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
