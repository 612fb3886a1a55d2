"""The state machine of one consumer group: members, sessions and rebalances. Pure.

| state | what it waits for | then |
| --- | --- | --- |
| Empty | a member that joins | PreparingRebalance, for the initial delay |
| PreparingRebalance | every member to join again, or the rebalance timeout | CompletingRebalance; Empty without members |
| CompletingRebalance | the leader's assignments to be durable, or the rebalance timeout | Stable; PreparingRebalance if members do not fetch them |
| Stable | a member that joins, leaves or changes | PreparingRebalance |
| Dead | nothing: the group was deleted | |

A group hands out a generation's assignments only once they are saved. So after a crash the group
never repeats a generation in which members own partitions. Answers that must wait are parked as
functions; each is called once, when the state allows it or when the member is removed.

The session of a parked member does not expire. The caller passes `now`; group.py has the requests.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quafka_broker.groups.classic.members import (
    ClassicMember,
    ClassicMembers,
    JoinReply,
    SyncReply,
    new_member_id,
)
from quafka_broker.groups.classic.states import NEXT, ClassicState
from quafka_broker.groups.deadlines import NEVER, DeadlineHeap
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage
from quafka_mesh_ops.ops.groups import JoinGroupResp, SyncGroupResp
from quafka_proto.errors import ErrorCode

Saved = Callable[[bool, float], None]
"""Called with whether a saved state is durable, and the time."""
Save = Callable[["RebalancingGroup", dict[str, Any], Saved], None]
"""Makes a result of `RebalancingGroup.stored` durable."""


@dataclass(slots=True, eq=False)
class RebalancingGroup:
    """One group. Every method may call parked replies."""

    name: str
    limits: GroupLimits
    save: Save
    new_id: Callable[[str], str] = new_member_id
    usage: OrgUsage = field(default_factory=OrgUsage)
    """The usage of its org; the group keeps its own part in it up to date."""
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str = ""
    since_ms: int = -1
    """Wall clock time at which the group became empty or stable; the caller sets it."""
    born_ms: int = -1
    _all: ClassicMembers = field(init=False)
    _parked: int = 0  # joins
    _phase_ends: float = NEVER
    _initial_left: float | None = None  # how much longer the initial delay may still become
    _grew: bool = False
    _sessions: DeadlineHeap[str] = field(default_factory=DeadlineHeap[str])

    def __post_init__(self) -> None:
        self._all = ClassicMembers(self.usage)

    @property
    def members(self) -> dict[str, ClassicMember]:
        """The members, by id."""
        return self._all.by_id

    def every_id(self) -> list[str]:
        """The ids of all members, and those that were issued and not used yet."""
        return [*self.members, *self._all.pending]

    def has_pending_members(self) -> bool:
        """Whether a member id was issued that may still be used."""
        return bool(self._all.pending)

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """The earliest time at which `tick` has something to do."""
        return min(self._phase_ends, self._sessions.earliest)

    def tick(self, now: float) -> None:
        """End the sessions and phases whose time has passed."""
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

    def _touch(self, member: ClassicMember, now: float) -> None:
        member.expires = now + member.session
        # A heartbeat does not move the deadline; it is set again when it passes.
        self._sessions.schedule(member.id, member.expires)

    def _phase_over(self, now: float) -> None:
        if self.state in (ClassicState.COMPLETING, ClassicState.STABLE):
            self._phase_ends = NEVER
            late = [member for member in self.members.values() if member.awaited]
            for member in late:
                self._remove(member)
            if late or self.state is ClassicState.COMPLETING:
                self._prepare(now)
        elif self._initial_left and self._grew:
            self._delay(now, self._initial_left)
        else:
            self._complete_join(now)

    def _become(self, state: ClassicState) -> None:
        assert state in NEXT[self.state], f"{self.state} to {state}"
        self.state = state

    # --- rebalance --------------------------------------------------------------------------

    def rebalance(self, now: float) -> None:
        """Make all members join again: the group was of another kind."""
        self._rebalance(now)

    def _rebalance(self, now: float) -> None:
        """Rebalance, because the members have changed."""
        if self.state is ClassicState.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        was = self.state
        self._become(ClassicState.PREPARING)
        self._initial_left = None
        for member in self.members.values():
            member.awaited = False
            if was is ClassicState.COMPLETING:
                self._all.assign(member, b"")
            self._answer_sync(member, SyncGroupResp(ErrorCode.REBALANCE_IN_PROGRESS))
        if was is ClassicState.EMPTY and self.limits.initial_delay:
            self._delay(now, self._rebalance_timeout())
        else:
            self._phase_ends = now + self._rebalance_timeout()
            self._complete_if_all_joined(now)

    def _delay(self, now: float, left: float) -> None:
        """Wait for more members, again if some join, but no longer than `left`."""
        delay = min(self.limits.initial_delay, left)
        self._phase_ends = now + delay
        self._initial_left = left - delay
        self._grew = False

    def _rebalance_timeout(self) -> float:
        return max((member.rebalance for member in self.members.values()), default=0.0)

    def _complete_if_all_joined(self, now: float) -> None:
        waits = self.state is not ClassicState.PREPARING or self._initial_left is not None
        if not waits and self._parked == len(self.members) and not self._all.pending:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        for member in [m for m in self.members.values() if not m.joining and not m.instance_id]:
            self._remove(member)
        joined = [member for member in self.members.values() if member.joining]
        if self.members and not joined:
            # All members are static and absent: their sessions decide.
            self._initial_left = None
            self._phase_ends = now + self._rebalance_timeout()
            return
        self.generation += 1
        self._phase_ends, self._initial_left = NEVER, None
        if not joined:
            self.protocol, self.leader = None, ""
            self._become(ClassicState.EMPTY)
            self.save(self, self.stored(), lambda _ok, _now: None)
            return
        if self.leader not in self.members or not self.members[self.leader].joining:
            self.leader = joined[0].id
        self.protocol = self._all.select()
        self._become(ClassicState.COMPLETING)
        self._phase_ends = now + self._rebalance_timeout()
        for member in joined:
            member.awaited = True
            self._touch(member, now)
            self._answer_join(member, self._joined(member))

    # --- parked replies ---------------------------------------------------------------------

    def _park_join(self, member: ClassicMember, now: float, reply: JoinReply) -> None:
        # A member that repeats its request has lost its connection: the first answer is never read.
        self._answer_join(member, JoinGroupResp(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        member.joining = reply
        self._parked += 1
        self._touch(member, now)

    def _answer_join(self, member: ClassicMember, answer: JoinGroupResp) -> None:
        reply, member.joining = member.joining, None
        if reply is not None:
            self._parked -= 1
            reply(answer)

    def _joined(self, member: ClassicMember) -> JoinGroupResp:
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
        """Drop a reply without a waiting client. The member stays until its session ends."""
        member = self.members.get(member_id)
        if member is not None and member.joining is reply:
            member.joining = None
            self._parked -= 1
            self._touch(member, now)

    def _answer_sync(self, member: ClassicMember, answer: SyncGroupResp) -> None:
        reply, member.syncing = member.syncing, None
        if reply is not None:
            reply(answer)

    def _synced(self, member: ClassicMember) -> SyncGroupResp:
        return SyncGroupResp(0, member.assignment, self.protocol_type, self.protocol)

    def abandon_sync(self, member_id: str, reply: SyncReply, now: float) -> None:
        """Drop a reply without a waiting client."""
        member = self.members.get(member_id)
        if member is not None and member.syncing is reply:
            member.syncing = None
            self._touch(member, now)

    def drain(self) -> None:
        """Answer all parked requests: the coordinator stops, and clients look for it again."""
        for member in self.members.values():
            self._answer_join(member, JoinGroupResp(ErrorCode.NOT_COORDINATOR, member.id))
            self._answer_sync(member, SyncGroupResp(ErrorCode.NOT_COORDINATOR))

    # --- members that leave -----------------------------------------------------------------

    def _leave(self, member: ClassicMember, now: float) -> None:
        self._remove(member)
        self._gone(now)

    def _gone(self, now: float) -> None:
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self._prepare(now)
        else:
            self._complete_if_all_joined(now)

    def _remove(self, member: ClassicMember) -> None:
        self._all.remove(member)
        self._sessions.cancel(member.id)
        if self.leader == member.id:
            self.leader = ""
        self._answer_join(member, JoinGroupResp(ErrorCode.UNKNOWN_MEMBER_ID, member.id))
        self._answer_sync(member, SyncGroupResp(ErrorCode.UNKNOWN_MEMBER_ID))

    def release(self) -> None:
        """Release the org's usage, since the group is dropped."""
        self._all.release()

    # --- stored state -----------------------------------------------------------------------

    def stored(
        self, state: ClassicState | None = None, assignments: Mapping[str, bytes] | None = None
    ) -> dict[str, Any]:
        """The state for a restart: Stable with its assignments, or Empty."""
        return {
            "state": str(state or self.state),
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "protocol": self.protocol,
            "leader": self.leader,
            "members": self._all.stored(assignments),
        }

    def restore(
        self, stored: Mapping[str, Any], _members: Mapping[str, bytes], now: float, /
    ) -> None:
        """Continue from a stored state, which includes the members; see `Group.restore`.

        Raises:
            ValueError, KeyError, TypeError: it is not a result of `stored`.
        """
        self.state = ClassicState(stored["state"])
        self.generation = stored["generation"]
        self.protocol_type, self.protocol = stored["protocol_type"], stored["protocol"]
        self.leader = stored["leader"]
        self._all.restore(stored["members"])
        for member in self.members.values():
            self._touch(member, now)
