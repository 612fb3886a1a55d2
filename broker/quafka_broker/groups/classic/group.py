"""One consumer group of the classic protocol: the requests of its members. Pure.

rebalance.py has the states. Static members (KIP-345) keep their place while they are absent, until
their session ends; a member that joins with the same instance id takes the place over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quafka_broker.groups.classic.members import ClassicMember, JoinReply, SyncReply
from quafka_broker.groups.classic.rebalance import RebalancingGroup
from quafka_broker.groups.classic.states import ERRORS, ClassicState
from quafka_broker.groups.classic.subscription import owned_by, subscribed_by
from quafka_broker.groups.group import AnyCommit, GroupType, Place
from quafka_broker.groups.limits import refusal_of_any
from quafka_mesh_ops.ops.groups import JoinGroup, JoinGroupResp, Leaver, SyncGroup, SyncGroupResp
from quafka_proto.consumer_protocol import CONSUMER
from quafka_proto.errors import ErrorCode


@dataclass(slots=True, eq=False)
class ClassicGroup(RebalancingGroup):
    """One group; see `Group`. Every method may call parked replies."""

    # --- what is shown ----------------------------------------------------------------------

    @property
    def kind(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_rebalancing(self) -> bool:
        return self.state is not ClassicState.EMPTY and self.state is not ClassicState.STABLE

    @property
    def keeps_offsets(self) -> bool:
        """A group that only commits has no protocol type."""
        return bool(self.protocol_type)

    @property
    def has_no_reader(self) -> bool:
        return self.protocol_type == CONSUMER and not self.members

    def every_member(self) -> Sequence[ClassicMember]:
        return list(self.members.values())

    def subscribed(self) -> set[str] | None:
        return subscribed_by(self.members, self.protocol_type)

    def owners(self) -> Mapping[Place, str]:
        """Empty during a rebalance."""
        if self.state is not ClassicState.STABLE or self.protocol_type != CONSUMER:
            return {}
        return owned_by(self.members)

    # --- JoinGroup --------------------------------------------------------------------------

    def join(self, op: JoinGroup, now: float, reply: JoinReply) -> str:
        """Join. Returns the id of the member whose reply is parked, else ""."""
        error, member_id = self._join(op, now, reply)
        if error:
            reply(JoinGroupResp(error, member_id))
            return ""
        member = self.members.get(member_id)
        return member_id if member is not None and member.joining is reply else ""

    def _join(self, op: JoinGroup, now: float, reply: JoinReply) -> tuple[ErrorCode, str]:
        refusal = self._refusal(op)
        if refusal:
            return refusal, op.member_id
        if op.member_id:
            return self._join_known(op, now, reply), op.member_id
        if self._all.static_id(op.instance_id):
            return self._replace_static(op, now, reply)
        if self._is_full():
            return ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        member_id = self.new_id(op.instance_id or op.client_id)
        if op.require_member_id and not op.instance_id:
            self._all.add_pending(member_id)
            self._sessions.schedule(member_id, now + op.session_timeout_ms / 1000)
            return ErrorCode.MEMBER_ID_REQUIRED, member_id
        self._add(op, member_id, now, reply)
        return ErrorCode.NONE, member_id

    def _refusal(self, op: JoinGroup) -> ErrorCode:
        error = refusal_of_any(op, self.limits)
        if error:
            return error
        if self.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        me = self.members.get(op.member_id or self._all.static_id(op.instance_id))
        alone = len(self.members) == (me is not None)
        if not alone and not (op.protocol_type == self.protocol_type and self._all.agrees(op, me)):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        is_known = me is not None or op.member_id in self._all.pending or not op.member_id
        if is_known and not self._all.has_room(op, me, self.limits):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return ErrorCode.NONE

    def _is_full(self) -> bool:
        return len(self.members) + len(self._all.pending) >= self.limits.max_size

    def _join_known(self, op: JoinGroup, now: float, reply: JoinReply) -> ErrorCode:
        """Serve the join of a member, or of a client that uses the member id it was given."""
        if op.member_id in self._all.pending:
            if op.instance_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._add(op, op.member_id, now, reply)
            return ErrorCode.NONE
        error = self._all.check_member(op.member_id, op.instance_id)
        if error:
            return error
        member = self.members[op.member_id]
        changed = member.protocols != {p.name: p.metadata for p in op.protocols}
        settled = self.state is ClassicState.COMPLETING or (
            # A leader that joins again has seen a change that the group does not know.
            self.state is ClassicState.STABLE and member.id != self.leader
        )
        if settled and not changed:
            self._touch(member, now)
            reply(self._joined(member))
            return ErrorCode.NONE
        self._update(member, op)
        self._park_join(member, now, reply)
        self._rebalance(now)
        return ErrorCode.NONE

    def _add(self, op: JoinGroup, member_id: str, now: float, reply: JoinReply) -> None:
        member = self._all.add(op, member_id, self.limits.max_session)
        if len(self.members) == 1:
            self.protocol_type = op.protocol_type
        self._park_join(member, now, reply)
        self._grew = True
        self._rebalance(now)

    def _update(self, member: ClassicMember, op: JoinGroup) -> None:
        self._all.update(member, op, self.limits.max_session)
        if len(self.members) == 1:
            self.protocol_type = op.protocol_type

    # --- static members ---------------------------------------------------------------------

    def _replace_static(self, op: JoinGroup, now: float, reply: JoinReply) -> tuple[ErrorCode, str]:
        """Serve the join of a client that replaces the static member with the same instance id."""
        old_id = self._all.static_id(op.instance_id)
        member = self.members[old_id]
        self._sessions.cancel(old_id)
        self._answer_join(member, JoinGroupResp(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncGroupResp(ErrorCode.FENCED_INSTANCE_ID))
        old_leader = self.leader
        self._all.rename(member, self.new_id(op.instance_id))
        if self.leader == old_id:
            self.leader = member.id
        self._update(member, op)
        self._touch(member, now)
        if self.state is not ClassicState.STABLE or self._all.select() != self.protocol:
            self._park_join(member, now, reply)
            self._rebalance(now)
            return ErrorCode.NONE, member.id
        # The new member takes over place and assignment: no rebalance.
        answer = self._joined(member)
        if member.id == self.leader and op.knows_skip_assignment:
            answer = JoinGroupResp(
                0, member.id, self.generation, self.protocol_type, self.protocol, self.leader,
                True, self._all.for_leader(self.protocol or ""),
            )  # fmt: skip
        elif member.id == self.leader:
            # Given another leader's id, it keeps its old assignment and makes no new ones.
            answer = JoinGroupResp(
                0, member.id, self.generation, self.protocol_type, self.protocol, old_leader
            )

        def saved(ok: bool, _now: float) -> None:
            reply(answer if ok else JoinGroupResp(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        self.save(self, self.stored(), saved)
        return ErrorCode.NONE, member.id

    # --- SyncGroup --------------------------------------------------------------------------

    def sync(self, op: SyncGroup, now: float, reply: SyncReply) -> bool:
        """Ask for an assignment. Returns whether the reply is parked."""
        error = self._check(op.member_id, op.instance_id, op.generation) or ERRORS[self.state].sync
        if not error and (
            (op.protocol_type is not None and op.protocol_type != self.protocol_type)
            or (op.protocol is not None and op.protocol != self.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            reply(SyncGroupResp(error))
            return False
        member = self.members[op.member_id]
        member.awaited = False
        self._touch(member, now)
        if self.state is ClassicState.STABLE:
            reply(self._synced(member))
            return False
        self._answer_sync(member, SyncGroupResp(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        if member.id == self.leader:
            self._assign({each.member_id: each.assignment for each in op.assignments}, now)
        return member.syncing is reply

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        """Make the leader's assignments durable, then send them to the members."""
        if not self._all.has_room_to_assign(assignments, self.limits):
            self._not_assigned(ErrorCode.GROUP_MAX_SIZE_REACHED, now)
            return
        generation = self.generation

        def saved(ok: bool, now: float) -> None:
            if self.state is not ClassicState.COMPLETING or self.generation != generation:
                return
            if not ok:
                self._not_assigned(ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
                return
            self._become(ClassicState.STABLE)
            for member in self.members.values():
                self._all.assign(member, assignments.get(member.id, b""))
                if member.syncing:
                    self._touch(member, now)
                    self._answer_sync(member, self._synced(member))

        self.save(self, self.stored(ClassicState.STABLE, assignments), saved)

    def _not_assigned(self, error: ErrorCode, now: float) -> None:
        for member in self.members.values():
            self._answer_sync(member, SyncGroupResp(error))
        self._prepare(now)

    # --- Heartbeat, LeaveGroup, OffsetCommit ------------------------------------------------

    def _check(self, member_id: str, instance_id: str, generation: int) -> ErrorCode:
        if self.state is ClassicState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._all.check_member(member_id, instance_id)
        if not error and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str, now: float, /
    ) -> ErrorCode:
        """Extend a member's session."""
        error = self._check(member_id, instance_id, generation)
        if error:
            return error
        self._touch(self.members[member_id], now)
        return ERRORS[self.state].heartbeat

    def may_commit(self, op: AnyCommit, now: float) -> ErrorCode:
        """The error of a commit by this member; extends the member's session.

        A client outside the group, with generation -1, may commit while the group has no members.
        It may have a member id: clients of KIP-848 make their own, also without a subscription.
        """
        if op.generation < 0 and not self.members and self.state is not ClassicState.DEAD:
            return ErrorCode.NONE
        error = self._check(op.member_id, op.instance_id, op.generation)
        if error:
            return error
        self._touch(self.members[op.member_id], now)
        return ERRORS[self.state].commit

    def may_fetch_offsets(self, _member_id: str | None, _epoch: int, /) -> ErrorCode:
        """Every client may."""
        return ErrorCode.NONE

    def leave(self, leavers: Iterable[Leaver], now: float) -> list[ErrorCode]:
        """Remove members, all in one rebalance. Returns the error of each."""
        answers: list[ErrorCode] = []
        gone = False
        for leaver in leavers:
            member_id = leaver.member_id
            if not member_id and leaver.instance_id:
                member_id = self._all.static_id(leaver.instance_id)
            if self._all.remove_pending(member_id):
                self._sessions.cancel(member_id)
                answers.append(ErrorCode.NONE)
                gone = True
                continue
            error = self._all.check_member(member_id, leaver.instance_id)
            if not error:
                self._remove(self.members[member_id])
                gone = True
            answers.append(error)
        if gone:
            self._gone(now)
        return answers

    def topics_changed(self, _names: Collection[str], _now: float, /) -> None:
        """The members find out themselves."""

    def expel(self, now: float) -> None:
        self.leave([Leaver(member_id) for member_id in self.every_id()], now)

    # --- deletion ---------------------------------------------------------------------------

    def begin_deletion(self) -> ErrorCode:
        """Begin to delete the group: it refuses members from now on."""
        if self.state is ClassicState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not ClassicState.EMPTY or self._all.pending:
            return ErrorCode.NON_EMPTY_GROUP
        self._become(ClassicState.DEAD)
        return ErrorCode.NONE

    def undo_deletion(self) -> None:
        """Accept members again: the deletion failed."""
        self._become(ClassicState.EMPTY)
