"""The state machine of one share group (KIP-932): its members and their partitions. Pure.

A share group has the epochs, targets and facts of a consumer group. But a partition may have
several members, so a member gets its whole target at once: no other member has to give up a
partition first.

The group notes how many partitions a topic has when it learns of it. It reads partitions that join
such a topic later from their first record, as in Kafka: there are no records from before the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quafka_broker.groups.consumer.beat import (
    JOIN,
    LEAVE,
    BeatAnswer,
    HeartbeatRefusedError,
    MemberHeartbeat,
)
from quafka_broker.groups.consumer.checks import unknown_member
from quafka_broker.groups.consumer.group import ConsumerGroup
from quafka_broker.groups.consumer.member import ConsumerGroupMember
from quafka_broker.groups.consumer.ownership import Ownership
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.consumer.topics import Held, Known, Partitions, same
from quafka_broker.groups.group import EMPTY, STABLE
from quafka_proto.errors import ErrorCode

_NOTHING: Known = {}


class _Shared(Ownership):
    """Partitions that any number of members may have."""

    def release(self, assigned: Held, revoking: Held) -> None:
        """See Ownership."""

    def claim(self, member: ConsumerGroupMember) -> None:
        """See Ownership."""


class ShareGroup(ConsumerGroup):
    """One group; see `ConsumerGroup` for its contract."""

    def __init__(self, name: str, settings: ConsumerGroupSettings) -> None:
        super().__init__(name, settings)
        self._ownership = _Shared()

    @property
    def state(self) -> str:
        """The state, by Kafka's name: members never wait for one another."""
        return STABLE if self.members else EMPTY

    # --- topics -----------------------------------------------------------------------------

    def first_partitions(self, topic_id: bytes) -> int:
        """The number of partitions that a topic had when the group learnt it; -1: unknown."""
        return self.subscriptions.first_partitions.get(topic_id, -1)

    def learn_first(self, topics: Iterable[tuple[bytes, int]]) -> None:
        """Note the partitions of topics, by id, that are new to the group."""
        noted = self.subscriptions.first_partitions
        for topic_id, partitions in topics:
            if topic_id not in noted:
                noted[topic_id] = partitions
                self._changes.mark_topics()
        self.subscriptions.note_partitions(self.settings.max_topics)

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Forget topics: a later subscription finds them new, with all their partitions."""
        noted = self.subscriptions.first_partitions
        for topic_id in topic_ids:
            if noted.pop(topic_id, None) is not None:
                self._changes.mark_topics()

    def _raise_epoch(self) -> None:
        if self.subscriptions.has_changed:
            self.subscriptions.note_partitions(self.settings.max_topics)
        super()._raise_epoch()

    def restore(self, own: Mapping[str, Any], stored: Mapping[str, bytes], now: float) -> None:
        """See AssigningGroup. Earlier versions have noted no partitions."""
        super().restore(own, stored, now)
        self.subscriptions.note_partitions(self.settings.max_topics)

    # --- requests ---------------------------------------------------------------------------

    def heartbeat(self, beat: MemberHeartbeat, now: float, known: Known = _NOTHING) -> BeatAnswer:
        """Serve a heartbeat. `known`: topics of a subscription that the member sends."""
        try:
            _check(beat)
            if beat.member_epoch == LEAVE:
                return self._leave(beat, now)
            return self._serve(beat, now, known)
        except HeartbeatRefusedError as refused:
            return refused.answer()

    def _serve(self, beat: MemberHeartbeat, now: float, known: Known) -> BeatAnswer:
        member = self._find_or_make(beat)
        # A member that sends its previous epoch has lost the answer with its assignment.
        is_shown = beat.member_epoch != member.epoch or beat.member_epoch == JOIN
        changed = self._update(member, beat)
        changed |= self.subscriptions.learn(known)
        if changed:
            self._raise_epoch()
        self._assign_if_small(now)
        before = member.assigned
        self._advance(member, None, now)
        self._touch(member, now)
        is_shown = is_shown or not same(before, member.assigned)
        return BeatAnswer(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.heartbeat_interval_ms,
            assignment=member.assigned if is_shown else None,
        )

    def _find_or_make(self, beat: MemberHeartbeat) -> ConsumerGroupMember:
        member = self.members.get(beat.member_id)
        if member is None:
            if beat.member_epoch != JOIN:
                raise unknown_member(beat.member_id, self.name)
            most = self.settings.max_size
            if len(self.members) >= most:
                raise HeartbeatRefusedError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {most} members.",
                )
            return self._make(beat)
        if beat.member_epoch not in (member.epoch, member.previous_epoch, JOIN):
            is_above = beat.member_epoch > member.epoch
            raise HeartbeatRefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a {'greater' if is_above else 'smaller'} member epoch "
                f"({beat.member_epoch}) than the one known by the group coordinator "
                f"({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _advance(self, member: ConsumerGroupMember, owned: Partitions | None, now: float) -> None:
        """Give the member its target."""
        epoch = self.assignment_epoch
        if member.epoch == epoch and not member.recheck:
            return
        topics = self.subscriptions.ids(member.names, member.regex)
        before, member.assigned = member.assigned, {}
        for topic_id, numbers in member.target.items():
            if topic_id in topics:
                held = before.get(topic_id, {})
                member.assigned[topic_id] = {number: held.get(number, epoch) for number in numbers}
        if member.epoch != epoch:
            member.previous_epoch, member.epoch = member.epoch, epoch
        member.recheck = False
        self._changes.mark(member.id)


def _check(beat: MemberHeartbeat) -> None:
    """Check for errors that do not depend on the group.

    Raises:
        HeartbeatRefusedError: INVALID_REQUEST.
    """
    fault = ""
    if not beat.member_id.strip():
        fault = "MemberId can't be empty."
    elif beat.rack_id is not None and not beat.rack_id.strip():
        fault = "RackId can't be empty."
    elif beat.member_epoch < LEAVE:
        fault = "MemberEpoch is invalid."
    elif beat.member_epoch == JOIN and not beat.topic_names:
        fault = "SubscribedTopicNames must be set in first request."
    if fault:
        raise HeartbeatRefusedError(ErrorCode.INVALID_REQUEST, fault)
