"""One consumer group of the classic protocol, as a state machine. Pure: the caller brings `now`.

| state | what it waits for | then |
| --- | --- | --- |
| Empty | a member that joins | PreparingRebalance, for the initial delay |
| PreparingRebalance | every member to join again, or the rebalance timeout | CompletingRebalance; Empty if nobody has |
| CompletingRebalance | the leader's assignments to be durable, or the rebalance timeout | Stable; PreparingRebalance if members do not come for them |
| Stable | a member that comes, goes or changes | PreparingRebalance |
| Dead | nothing: the group was deleted | |

A generation's assignments are handed out only once they are saved, so after a crash no generation
that anybody owns partitions in is ever used again. Answers that have to wait are parked as
functions: each is called once, when the state allows it or when the member is gone.

The session of a member that is parked does not run out. Static members (KIP-345) keep their place
when they are away, until their session ends; who comes with the same instance id takes it over.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quafka_broker.groups.deadlines import NEVER, Deadlines
from quafka_broker.groups.limits import GroupLimits, refusal_of_any
from quafka_broker.groups.members import JoinReply, Member, Members, SyncReply, new_member_id
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.groups.states import ERRORS, NEXT, State
from quafka_mesh_ops.ops.groups import JoinGroup, JoinGroupResp, Leaver, SyncGroup, SyncGroupResp
from quafka_proto.errors import ErrorCode

Saved = Callable[[bool, float], None]
"""StateErrors whether what was to be saved is durable, and the time."""
Save = Callable[["Group", dict[str, Any], Saved], None]
"""Makes what `Group.stored` gives durable."""


@dataclass(slots=True, eq=False)
class Group:
    """One group. Every method may call parked replies."""

    name: str
    limits: GroupLimits
    save: Save
    new_id: Callable[[str], str] = new_member_id
    usage: OrgUsage = field(default_factory=OrgUsage)
    """What its org holds; the group keeps its own part in it true."""
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str = ""
    since_ms: int = -1
    """Wall clock, when it became empty or stable; the caller's to set."""
    _all: Members = field(init=False)
    _parked: int = 0  # joins
    _phase_ends: float = NEVER
    _initial_left: float | None = None  # of the time that the initial delay may yet be made longer
    _grew: bool = False
    _sessions: Deadlines[str] = field(default_factory=Deadlines[str])

    def __post_init__(self) -> None:
        self._all = Members(self.usage)

    @property
    def members(self) -> dict[str, Member]:
        """Those who are in it, by id."""
        return self._all.by_id

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do, at the earliest."""
        return min(self._phase_ends, self._sessions.earliest)

    def tick(self, now: float) -> None:
        """End the sessions and the phases whose time is over."""
        while (member_id := self._sessions.pop(now)) is not None:
            self._session_timer(member_id, now)
        if self._phase_ends <= now:
            self._phase_over(now)

    def _session_timer(self, member_id: str, now: float) -> None:
        if self._all.remove_pending(member_id):
            self._complete_if_all_joined(now)
            return
        member = self.members[member_id]
        if member.joining or member.syncing:
            self._touch(member, now)
        elif member.expires > now:
            self._sessions.schedule(member_id, member.expires)
        else:
            self._leave(member, now)

    def _touch(self, member: Member, now: float) -> None:
        member.expires = now + member.session
        # A heartbeat moves no timer: when it fires, it is set again.
        self._sessions.schedule(member.id, member.expires)

    def _phase_over(self, now: float) -> None:
        if self.state in (State.COMPLETING, State.STABLE):
            self._phase_ends = NEVER
            late = [member for member in self.members.values() if member.awaited]
            for member in late:
                self._remove(member)
            if late or self.state is State.COMPLETING:
                self._prepare(now)
        elif self._initial_left and self._grew:
            self._delay(now, self._initial_left)
        else:
            self._complete_join(now)

    def _become(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} to {state}"
        self.state = state

    # --- JoinGroup --------------------------------------------------------------------------

    def join(self, op: JoinGroup, now: float, reply: JoinReply) -> str:
        """Join; the id of the member for which the reply is parked, "" where it was called."""
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
        if self.state is State.DEAD:
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
        """A member, or one that has been given an id and comes again."""
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
        settled = self.state is State.COMPLETING or (
            # A leader that joins again has seen something change that the group has not.
            self.state is State.STABLE and member.id != self.leader
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

    def _update(self, member: Member, op: JoinGroup) -> None:
        self._all.update(member, op, self.limits.max_session)
        if len(self.members) == 1:
            self.protocol_type = op.protocol_type

    def _park_join(self, member: Member, now: float, reply: JoinReply) -> None:
        # One that asks twice has lost its connection: nobody reads the first answer.
        self._answer_join(member, JoinGroupResp(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        member.joining = reply
        self._parked += 1
        self._touch(member, now)

    def _answer_join(self, member: Member, answer: JoinGroupResp) -> None:
        reply, member.joining = member.joining, None
        if reply is not None:
            self._parked -= 1
            reply(answer)

    def _joined(self, member: Member) -> JoinGroupResp:
        leads = member.id == self.leader
        return JoinGroupResp(
            0,
            member.id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader,
            members=self._all.for_leader(self.protocol or "") if leads else None,
        )

    def abandon_join(self, member_id: str, reply: JoinReply, now: float) -> None:
        """Nobody waits for this reply any more. The session decides what becomes of the member."""
        member = self.members.get(member_id)
        if member is not None and member.joining is reply:
            member.joining = None
            self._parked -= 1
            self._touch(member, now)

    # --- static members ---------------------------------------------------------------------

    def _replace_static(self, op: JoinGroup, now: float, reply: JoinReply) -> tuple[ErrorCode, str]:
        """Somebody comes with the instance id of a member, whom he replaces."""
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
        if self.state is not State.STABLE or self._all.select() != self.protocol:
            self._park_join(member, now, reply)
            self._rebalance(now)
            return ErrorCode.NONE, member.id
        # Its place and its assignment go on: nobody else is disturbed.
        answer = self._joined(member)
        if member.id == self.leader and op.knows_skip_assignment:
            answer = JoinGroupResp(
                0, member.id, self.generation, self.protocol_type, self.protocol, self.leader,
                True, self._all.for_leader(self.protocol or ""),
            )  # fmt: skip
        elif member.id == self.leader:
            # StateErrors that another leads, it takes its old assignment and makes no new ones.
            answer = JoinGroupResp(
                0, member.id, self.generation, self.protocol_type, self.protocol, old_leader
            )

        def saved(ok: bool, _now: float) -> None:
            reply(answer if ok else JoinGroupResp(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        self.save(self, self.stored(), saved)
        return ErrorCode.NONE, member.id

    # --- rebalance --------------------------------------------------------------------------

    def _rebalance(self, now: float) -> None:
        """The members have changed."""
        if self.state is State.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        was = self.state
        self._become(State.PREPARING)
        self._initial_left = None
        for member in self.members.values():
            member.awaited = False
            if was is State.COMPLETING:
                self._all.assign(member, b"")
            self._answer_sync(member, SyncGroupResp(ErrorCode.REBALANCE_IN_PROGRESS))
        if was is State.EMPTY and self.limits.initial_delay:
            self._delay(now, self._rebalance_timeout())
        else:
            self._phase_ends = now + self._rebalance_timeout()
            self._complete_if_all_joined(now)

    def _delay(self, now: float, left: float) -> None:
        """Wait for more members, and once more if some come, but no longer than `left`."""
        delay = min(self.limits.initial_delay, left)
        self._phase_ends = now + delay
        self._initial_left = left - delay
        self._grew = False

    def _rebalance_timeout(self) -> float:
        return max((member.rebalance for member in self.members.values()), default=0.0)

    def _complete_if_all_joined(self, now: float) -> None:
        waits = self.state is not State.PREPARING or self._initial_left is not None
        if not waits and self._parked == len(self.members) and not self._all.pending:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        for member in [m for m in self.members.values() if not m.joining and not m.instance_id]:
            self._remove(member)
        joined = [member for member in self.members.values() if member.joining]
        if self.members and not joined:
            # All are static and away: their sessions decide.
            self._initial_left = None
            self._phase_ends = now + self._rebalance_timeout()
            return
        self.generation += 1
        self._phase_ends, self._initial_left = NEVER, None
        if not joined:
            self.protocol, self.leader = None, ""
            self._become(State.EMPTY)
            self.save(self, self.stored(), lambda _ok, _now: None)
            return
        if self.leader not in self.members or not self.members[self.leader].joining:
            self.leader = joined[0].id
        self.protocol = self._all.select()
        self._become(State.COMPLETING)
        self._phase_ends = now + self._rebalance_timeout()
        for member in joined:
            member.awaited = True
            self._touch(member, now)
            self._answer_join(member, self._joined(member))

    # --- SyncGroup --------------------------------------------------------------------------

    def sync(self, op: SyncGroup, now: float, reply: SyncReply) -> bool:
        """Ask for an assignment; whether the reply is parked."""
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
        if self.state is State.STABLE:
            reply(self._synced(member))
            return False
        self._answer_sync(member, SyncGroupResp(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        if member.id == self.leader:
            self._assign({each.member_id: each.assignment for each in op.assignments}, now)
        return member.syncing is reply

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        """Make the leader's assignments durable, then hand them out."""
        if not self._all.has_room_to_assign(assignments, self.limits):
            self._not_assigned(ErrorCode.GROUP_MAX_SIZE_REACHED, now)
            return
        generation = self.generation

        def saved(ok: bool, now: float) -> None:
            if self.state is not State.COMPLETING or self.generation != generation:
                return
            if not ok:
                self._not_assigned(ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
                return
            self._become(State.STABLE)
            for member in self.members.values():
                self._all.assign(member, assignments.get(member.id, b""))
                if member.syncing:
                    self._touch(member, now)
                    self._answer_sync(member, self._synced(member))

        self.save(self, self.stored(State.STABLE, assignments), saved)

    def _not_assigned(self, error: ErrorCode, now: float) -> None:
        for member in self.members.values():
            self._answer_sync(member, SyncGroupResp(error))
        self._prepare(now)

    def _synced(self, member: Member) -> SyncGroupResp:
        return SyncGroupResp(0, member.assignment, self.protocol_type, self.protocol)

    def _answer_sync(self, member: Member, answer: SyncGroupResp) -> None:
        reply, member.syncing = member.syncing, None
        if reply is not None:
            reply(answer)

    def abandon_sync(self, member_id: str, reply: SyncReply, now: float) -> None:
        """Nobody waits for this reply any more."""
        member = self.members.get(member_id)
        if member is not None and member.syncing is reply:
            member.syncing = None
            self._touch(member, now)

    # --- Heartbeat, LeaveGroup, OffsetCommit ------------------------------------------------

    def _check(self, member_id: str, instance_id: str, generation: int) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._all.check_member(member_id, instance_id)
        if not error and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def heartbeat(self, generation: int, member_id: str, instance_id: str, now: float) -> ErrorCode:
        """A member is alive."""
        error = self._check(member_id, instance_id, generation)
        if error:
            return error
        self._touch(self.members[member_id], now)
        return ERRORS[self.state].heartbeat

    def may_commit(
        self, generation: int, member_id: str, instance_id: str, now: float
    ) -> ErrorCode:
        """Whether offsets are taken from this member; it is alive, then.

        From outside of a group, with generation -1, they are taken while it has no members.
        """
        if generation < 0 and not member_id and not instance_id:
            if self.state is State.DEAD:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.UNKNOWN_MEMBER_ID if self.members else ErrorCode.NONE
        error = self._check(member_id, instance_id, generation)
        if error:
            return error
        self._touch(self.members[member_id], now)
        return ERRORS[self.state].commit

    def leave(self, leavers: Iterable[Leaver], now: float) -> list[ErrorCode]:
        """Let members go, those of a batch in one rebalance; what each is told."""
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

    def _leave(self, member: Member, now: float) -> None:
        self._remove(member)
        self._gone(now)

    def _gone(self, now: float) -> None:
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now)
        else:
            self._complete_if_all_joined(now)

    def _remove(self, member: Member) -> None:
        self._all.remove(member)
        self._sessions.cancel(member.id)
        if self.leader == member.id:
            self.leader = ""
        self._answer_join(member, JoinGroupResp(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        self._answer_sync(member, SyncGroupResp(ErrorCode.UNKNOWN_MEMBER_ID))

    # --- the end of it ----------------------------------------------------------------------

    def drain(self) -> None:
        """Answer all that is parked: the coordinator goes, and another run of it will come."""
        for member in self.members.values():
            self._answer_join(member, JoinGroupResp(ErrorCode.NOT_COORDINATOR, member.id))
            self._answer_sync(member, SyncGroupResp(ErrorCode.NOT_COORDINATOR))

    def has_pending_members(self) -> bool:
        """Whether somebody has been given an id and may yet come."""
        return bool(self._all.pending)

    def release(self) -> None:
        """It is not kept any more."""
        self._all.release()

    def begin_deletion(self) -> ErrorCode:
        """Begin to delete the group: from now on it takes nobody."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not State.EMPTY or self._all.pending:
            return ErrorCode.NON_EMPTY_GROUP
        self._become(State.DEAD)
        return ErrorCode.NONE

    def undo_deletion(self) -> None:
        """It could not be deleted."""
        self._become(State.EMPTY)

    # --- what is kept -----------------------------------------------------------------------

    def stored(
        self, state: State | None = None, assignments: Mapping[str, bytes] | None = None
    ) -> dict[str, Any]:
        """What a restart must know: Stable with its assignments, or Empty."""
        return {
            "state": str(state or self.state),
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "leader": self.leader,
            "members": self._all.stored(assignments),
        }

    def restore(self, stored: Mapping[str, Any], now: float) -> None:
        """Go on with what was stored; every member has a whole session to show itself.

        Raises:
            ValueError, KeyError, TypeError: it is not what `stored` gives.
        """
        self.state = State(stored["state"])
        self.generation = stored["generation"]
        self.protocol_type, self.protocol = stored["protocol_type"], stored["protocol"]
        self.leader = stored["leader"]
        self._all.restore(stored["members"])
        for member in self.members.values():
            self._touch(member, now)
