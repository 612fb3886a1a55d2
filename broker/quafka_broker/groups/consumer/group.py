"""The state machine of one consumer group (KIP-848). Pure.

Each member moves to the epoch of the target (assigning.py) by its own heartbeats, one step each
(reconciliation.py).

| state | |
| --- | --- |
| Empty | no members |
| Assigning | the target of the latest epoch has yet to be computed |
| Reconciling | members have yet to reach their targets |
| Stable | every member has its target |
"""

from __future__ import annotations

from quafka_broker.groups.consumer.assigning import AssigningGroup
from quafka_broker.groups.consumer.beat import (
    JOIN,
    LEAVE_FOR_NOW,
    BeatAnswer,
    HeartbeatRefusedError,
    MemberHeartbeat,
)
from quafka_broker.groups.consumer.checks import (
    check_epoch,
    check_pattern,
    check_request,
    fenced_instance,
    full_group,
    unknown_instance,
    unknown_member,
    unreleased_instance,
)
from quafka_broker.groups.consumer.member import ClassicSide, ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.reconciliation import advance
from quafka_broker.groups.consumer.topics import Known, Partitions, same
from quafka_broker.groups.deadlines import NEVER
from quafka_proto.errors import ErrorCode

_NOTHING: Known = {}


class ConsumerGroup(AssigningGroup):
    """One group. Every method that takes `now` may leave facts to store: see `take_change`."""

    # --- requests ---------------------------------------------------------------------------

    def heartbeat(self, beat: MemberHeartbeat, now: float, known: Known = _NOTHING) -> BeatAnswer:
        """Serve a heartbeat. `known`: topics of a subscription that the member sends."""
        member = self.members.get(beat.member_id)
        if member is not None and self._changes_nothing(member, beat):
            member.expires = now + self.settings.session_timeout
            return BeatAnswer(
                ErrorCode.NONE, None, member.id, member.epoch, self.settings.heartbeat_interval_ms
            )
        try:
            check_request(beat, self.settings.assignors, self.settings.max_topics)
            if beat.member_epoch < JOIN:
                return self._leave(beat, now)
            return self._serve(beat, now, known)
        except HeartbeatRefusedError as refused:
            return refused.answer()

    def _changes_nothing(self, member: ConsumerGroupMember, beat: MemberHeartbeat) -> bool:
        return (
            beat.member_epoch == member.epoch
            and member.epoch == self.assignment_epoch == self.epoch
            and member.progress is MemberProgress.STABLE
            and not member.recheck
            and beat.owned is None
            and beat.topic_names is None
            and beat.topic_regex is None
            and beat.assignor is None
            and beat.rack_id is None
            and beat.rebalance_timeout_ms == -1
            and (beat.instance_id or "") == member.instance_id
            and beat.client_id == member.client_id
            and beat.client_host == member.client_host
            and member.classic is None
        )

    def _serve(self, beat: MemberHeartbeat, now: float, known: Known) -> BeatAnswer:
        if beat.topic_regex and beat.regex_topics is None and not self.knows(beat.topic_regex):
            check_pattern(beat.topic_regex)
        member = self._find_or_make(beat)
        # A member that sends its previous epoch has lost an answer: it does not know which
        # partitions to give up, so its report does not show that it did.
        lost_answer = beat.member_epoch not in (member.epoch, JOIN)
        owned = None if lost_answer else beat.owned
        changed = self._update(member, beat)
        if beat.topic_regex and beat.regex_topics is not None:
            changed |= self.subscriptions.resolve(beat.topic_regex, beat.regex_topics)
        changed |= self.subscriptions.learn(known)
        if changed:
            self._raise_epoch()
        self._assign_if_small(now)
        epoch, before = member.epoch, member.assigned
        self._advance(member, owned, now)
        if member.epoch != epoch:
            member.previous_epoch = beat.member_epoch  # that it certainly knows
        self._touch(member, now)
        is_full = (
            beat.rebalance_timeout_ms != -1
            and (beat.topic_names is not None or beat.topic_regex is not None)
            and beat.owned is not None
        )
        shown = is_full or lost_answer or not same(before, member.assigned)
        return BeatAnswer(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assignment=member.assigned if shown else None,
        )

    def _find_or_make(self, beat: MemberHeartbeat) -> ConsumerGroupMember:
        """Find or make the member of a heartbeat.

        Raises:
            HeartbeatRefusedError: it is not in the group, or it is fenced, or the group is full.
        """
        joins = beat.member_epoch == JOIN
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None:
                if not joins:
                    raise unknown_member(beat.member_id, self.name)
                return self._make(beat)
            check_epoch(member, beat)
            return member
        owner = self._instances.get(beat.instance_id)
        if owner is None:
            if not joins:
                raise unknown_instance(beat.instance_id)
            return self.members.get(beat.member_id) or self._make(beat)
        member = self.members[owner]
        if owner != beat.member_id:
            if not joins:
                raise fenced_instance(beat, owner)
            if not member.has_left_for_now and member.classic is None:
                raise unreleased_instance(beat, owner)
            return self._replace(member, beat.member_id)
        if joins and member.has_left_for_now:
            member.epoch = member.previous_epoch = JOIN
        check_epoch(member, beat)
        return member

    def _make(self, beat: MemberHeartbeat) -> ConsumerGroupMember:
        if len(self.members) >= self.settings.max_size:
            raise full_group(self.settings.max_size)
        member = self.members[beat.member_id] = ConsumerGroupMember(beat.member_id)
        self._votes[member.assignor] += 1
        self.subscriptions.add(member.names, member.regex)
        self._changes.mark(member.id)
        return member

    def _replace(self, left: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Put a member in the place of a static one that has left; it gets the same partitions."""
        self._ownership.release(left.assigned, left.revoking)
        del self.members[left.id]
        self._sessions.cancel(left.id)
        self._changes.mark_gone(left.id)
        before = self.members.get(member_id)
        if before is not None:
            self._remove(before)
        left.id = self._instances[left.instance_id] = member_id
        left.epoch = left.previous_epoch = JOIN
        left.revoking, left.progress = {}, MemberProgress.STABLE
        left.revoke_by = NEVER
        self.members[member_id] = left
        self._ownership.claim(left)
        self._changes.mark(member_id)
        return left

    def _update(self, member: ConsumerGroupMember, beat: MemberHeartbeat) -> bool:
        """Update a member from its heartbeat; returns whether the group needs another target.

        It does if the member's subscription changes, or the assignor that most members prefer.
        """
        before, instance_id = member.description, member.instance_id
        subscription, assignor = member.subscription, self.assignor
        self._votes[member.assignor] -= 1
        member.take_over(beat)
        self._votes[member.assignor] += 1
        if member.instance_id != instance_id and instance_id:
            del self._instances[instance_id]
        if member.instance_id:
            self._instances[member.instance_id] = member.id
        if member.description == before and member.classic is None:
            return False
        member.classic = None
        self._changes.mark(member.id)
        if member.subscription == subscription:
            return self.assignor != assignor
        names = self.subscriptions.add(member.names, member.regex)
        self.subscriptions.remove(*subscription)
        member.names, member.recheck = names, True
        return True

    # --- members of the classic protocol ----------------------------------------------------

    def instance_owner(self, instance_id: str) -> str:
        """The id of the member with this instance id, or ""."""
        return self._instances.get(instance_id, "")

    @property
    def has_only_classic_members(self) -> bool:
        """Whether there are members, and all of them use the classic protocol."""
        return bool(self.members) and all(m.classic is not None for m in self.members.values())

    def join_classic(
        self, beat: MemberHeartbeat, side: ClassicSide, now: float, known: Known = _NOTHING
    ) -> BeatAnswer:
        """Serve a JoinGroup as the equivalent heartbeat.

        A static member may replace one that uses the other protocol and has not left.
        """
        owner = self.members.get(self._instances.get(beat.instance_id or "", ""))
        if owner is not None and owner.id != beat.member_id:
            owner.classic = side
        answer = self.heartbeat(beat, now, known)
        member = self.members.get(beat.member_id)
        if not answer.error and member is not None:
            member.classic, member.revoke_by = side, NEVER
            self._changes.mark(member.id)
            self._touch(member, now)
        return answer

    def must_rejoin(self, member: ConsumerGroupMember) -> bool:
        """Whether a member of the classic protocol must join again to advance."""
        if member.epoch < self.epoch or member.progress is MemberProgress.UNREVOKED:
            return True
        return member.progress is MemberProgress.UNRELEASED and any(
            self._ownership.is_free(topic_id, number)
            for topic_id, numbers in member.target.items()
            for number in numbers
        )

    def beat_classic(self, member: ConsumerGroupMember, now: float) -> bool:
        """Extend the session of a classic member; returns whether it must join again.

        If so, it must join within its rebalance timeout.
        """
        rejoins = self.must_rejoin(member)
        if not rejoins:
            member.revoke_by = NEVER
        elif member.revoke_by == NEVER:
            member.revoke_by = now + member.rebalance_timeout_ms / 1000
        self._touch(member, now)
        return rejoins

    # --- members that leave -----------------------------------------------------------------

    def _leave(self, beat: MemberHeartbeat, now: float) -> BeatAnswer:
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None:
                raise unknown_member(beat.member_id, self.name)
        else:
            owner = self._instances.get(beat.instance_id)
            if owner is None:
                raise unknown_instance(beat.instance_id)
            if owner != beat.member_id:
                raise fenced_instance(beat, owner)
            member = self.members[owner]
        if beat.member_epoch == LEAVE_FOR_NOW:
            self._leave_for_now(member)
        else:
            self._remove(member)
            self._assign_if_small(now)
        return BeatAnswer(member_id=beat.member_id, member_epoch=beat.member_epoch)

    def _leave_for_now(self, member: ConsumerGroupMember) -> None:
        self._ownership.release({}, member.revoking)
        member.revoking, member.progress = {}, MemberProgress.STABLE
        member.revoke_by = NEVER
        member.epoch = LEAVE_FOR_NOW
        self._changes.mark(member.id)

    # --- steps ------------------------------------------------------------------------------

    def _advance(self, member: ConsumerGroupMember, owned: Partitions | None, now: float) -> None:
        """Take the member's next step towards its target."""
        if member.is_at(self.assignment_epoch) and not member.recheck:
            return
        topics = self.subscriptions.ids(member.names, member.regex)
        target = member.target
        if not topics.issuperset(target):
            target = {topic_id: held for topic_id, held in target.items() if topic_id in topics}
        assigned, revoking = member.assigned, member.revoking
        if advance(member, self.assignment_epoch, target, owned, self._ownership.taken):
            self._ownership.release(assigned, revoking)
            self._ownership.claim(member)
            self._changes.mark(member.id)
            late = member.progress is MemberProgress.UNREVOKED and member.classic is None
            member.revoke_by = now + member.rebalance_timeout_ms / 1000 if late else NEVER
        member.recheck = False

    # --- offsets ----------------------------------------------------------------------------

    def may_commit(
        self, epoch: int, member_id: str, partitions: Partitions | None = None
    ) -> ErrorCode:
        """The error of a commit by this member, or with epoch -1 from outside the group.

        With an earlier epoch, a member may commit for partitions that it has had since then
        (KIP-1251).
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        if member.classic is not None:
            return ErrorCode.ILLEGAL_GENERATION
        if partitions is None or not 0 < epoch < member.epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        for topic_id, numbers in partitions.items():
            since = {**member.revoking.get(topic_id, {}), **member.assigned.get(topic_id, {})}
            if any(since.get(number, epoch + 1) > epoch for number in numbers):
                return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def may_fetch_offsets(self, epoch: int, member_id: str | None) -> ErrorCode:
        """The error of an OffsetFetch by this member; None and -1 from outside the group."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
