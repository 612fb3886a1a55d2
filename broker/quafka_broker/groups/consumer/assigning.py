"""Members, epochs and targets of a group whose partitions the server assigns. Pure.

The group's epoch rises with every change of members, subscriptions and topics. For each epoch, or
the latest of several, a target is computed: the partitions that each member is to get.

A small group computes its target within the step that needs it. For other groups the caller
computes it, in slices or in a thread: `begin_target`, `Computation.steps`, `install`.

Changes are collected as facts: a caller takes and stores them before it sends the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from typing import Any

from quafka_broker.groups.consumer import facts
from quafka_broker.groups.consumer.assignors import ASSIGNORS
from quafka_broker.groups.consumer.assignors.spec import MemberSpec
from quafka_broker.groups.consumer.changes import Changes
from quafka_broker.groups.consumer.member import ConsumerGroupMember, MemberProgress
from quafka_broker.groups.consumer.ownership import Ownership
from quafka_broker.groups.consumer.settings import DEFAULTS, ConsumerGroupSettings
from quafka_broker.groups.consumer.subscriptions import Subscriptions
from quafka_broker.groups.consumer.target import Computation, Copied
from quafka_broker.groups.consumer.topics import Known
from quafka_broker.groups.deadlines import NEVER, DeadlineHeap
from quafka_broker.groups.group import EMPTY, STABLE, GroupChange, Place

ASSIGNING, RECONCILING = "Assigning", "Reconciling"
_NAMES_PER_PARTITION = 10
"""The number of names that is as much work as a partition."""


class AssigningGroup:
    """One group. Every method that takes `now` may leave facts to store: see `take_change`.

    Attributes:
        settings: may be replaced at any time.
        epoch: of the group; 1 for a new group, as in Kafka, since 0 is the epoch of joining.
        assignment_epoch: the epoch of the target.
        members: by id.
        subscriptions: the subscriptions of the members, and their topics.
    """

    def __init__(self, name: str, settings: ConsumerGroupSettings = DEFAULTS) -> None:
        self.name = name
        self.settings = settings
        self.epoch = 1
        self.assignment_epoch = 1
        self.members: dict[str, ConsumerGroupMember] = {}
        self.subscriptions = Subscriptions()
        self._votes: Counter[str] = Counter()  # members by the assignor that they prefer
        self._instances: dict[str, str] = {}
        self._ownership = Ownership()
        self._sessions: DeadlineHeap[str] = DeadlineHeap()
        self._changes = Changes(self.members, self.subscriptions)
        self._computing: Computation | None = None
        self._assigned_at = -NEVER
        self._stored_assignment_epoch = 1  # whose targets are in the log, or in the next change

    # --- what it is -------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state, by Kafka's name."""
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        at = self.assignment_epoch
        return STABLE if all(m.is_at(at) for m in self.members.values()) else RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer, otherwise the group's own."""
        return max(self.settings.assignors, key=lambda name: self._votes[name])

    def knows(self, regex: str) -> bool:
        """Whether the group knows the names that match a pattern."""
        return not regex or regex in self.subscriptions.matches

    def owners(self) -> dict[Place, str]:
        """The member that may read each partition, by the topic's name."""
        topics = self.subscriptions.topics_by_id
        return {
            (topics[topic_id].name, partition): member.id
            for member in self.members.values()
            for topic_id, partitions in member.assigned.items()
            if topic_id in topics
            for partition in partitions
        }

    # --- members ----------------------------------------------------------------------------

    def remove(self, member_id: str, now: float) -> None:
        """Remove a member.

        Raises:
            KeyError: it is not in the group.
        """
        self._remove(self.members[member_id])
        self._assign_if_small(now)

    def remove_all(self) -> None:
        """Remove all members."""
        for member in list(self.members.values()):
            self._remove(member)

    def _remove(self, member: ConsumerGroupMember) -> None:
        del self.members[member.id]
        self._votes[member.assignor] -= 1
        if self._instances.get(member.instance_id) == member.id:
            del self._instances[member.instance_id]
        self._ownership.release(member.assigned, member.revoking)
        self.subscriptions.remove(*member.subscription)
        self._sessions.cancel(member.id)
        self._changes.mark_gone(member.id)
        self._raise_epoch()

    # --- time -------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """The earliest time at which `tick` or `begin_target` has something to do."""
        return min(self._sessions.earliest, self.target_due_at)

    def tick(self, now: float) -> None:
        """Remove members whose session has ended, or which gave up partitions too late."""
        while (member_id := self._sessions.pop(now)) is not None:
            member = self.members[member_id]
            due = min(member.expires, member.revoke_by)
            if due <= now:
                self._remove(member)
            else:
                # A heartbeat does not move the deadline; it is set again when it passes.
                self._sessions.schedule(member_id, due)
        self._assign_if_small(now)

    def _touch(self, member: ConsumerGroupMember, now: float) -> None:
        classic = member.classic
        member.expires = now + (
            self.settings.session_timeout if classic is None else classic.session
        )
        self._sessions.schedule(member.id, min(member.expires, member.revoke_by))

    # --- topics -----------------------------------------------------------------------------

    def learn(self, known: Known) -> None:
        """Take over metadata of topics: a change of a subscribed one raises the epoch."""
        if self.subscriptions.learn(known):
            self._raise_epoch()

    def resolve(self, regex: str, names: frozenset[str]) -> None:
        """Set the topics that match a pattern of the members: a change raises the epoch."""
        if self.subscriptions.resolve(regex, names):
            self._raise_epoch()

    def _raise_epoch(self) -> None:
        self.epoch += 1
        self._changes.mark_own()
        if self.subscriptions.has_changed:
            self.subscriptions.has_changed = False
            self._changes.mark_topics()

    # --- the target -------------------------------------------------------------------------

    @property
    def target_due_at(self) -> float:
        """When a target should be computed; NEVER if none is needed, or one is being computed."""
        if self.epoch == self.assignment_epoch or not self.members or self._computing is not None:
            return NEVER
        return self._assigned_at + self.settings.assignment_interval

    def begin_target(self, now: float) -> Computation | None:
        """Begin to compute a target if one is due; `install` or `abandon` ends this."""
        if self.target_due_at > now:
            return None
        self._computing = self._computation()
        return self._computing

    def abandon(self, computation: Computation, now: float) -> None:
        """Give up a failed computation; the next one is due after the interval."""
        assert self._computing is computation
        self._computing, self._assigned_at = None, now

    def install(self, computation: Computation, now: float) -> Generator[None, None, GroupChange]:
        """Make a computed target the group's, in short steps; returns the change to store.

        The target is in force from the first step on. Heartbeats may be served between the steps.
        """
        assert self._computing is computation
        self._computing = None
        self._put(computation, now)
        yield
        packed = yield from self._changes.take_in_steps()
        self._stored_assignment_epoch = computation.epoch
        change = self.take_change()
        return GroupChange(self._own_fact(), packed | change.members, change.gone)

    def _computation(self) -> Computation:
        return Computation(self.epoch, ASSIGNORS[self.assignor], self._copied())

    def _copied(self) -> Copied:
        ids = self.subscriptions.ids
        specs: list[MemberSpec] = []
        for member in list(self.members.values()):
            if self.members.get(member.id) is member:
                topics = ids(member.names, member.regex)
                place = (member.instance_id, member.rack)
                specs.append(MemberSpec(member.id, topics, *place, member.target))
            yield
        return specs, dict(self.subscriptions.topics_by_id)

    def _assign_if_small(self, now: float) -> None:
        """Compute the target at once if that is fast."""
        if self.epoch == self.assignment_epoch or self._computing is not None or not self.members:
            return
        subscriptions, small = self.subscriptions, self.settings.small
        is_small = len(self.members) + subscriptions.partitions <= small
        if is_small and subscriptions.listed <= _NAMES_PER_PARTITION * small:
            computation = self._computation()
            computation.run()
            self._put(computation, now)
            self._stored_assignment_epoch = computation.epoch

    def _put(self, computation: Computation, now: float) -> None:
        for spec, target in computation.changed:
            # A static member's successor inherits its target.
            member = self.members.get(spec.id) or self.members.get(
                self._instances.get(spec.instance_id, "")
            )
            if member is not None:
                member.target = target
                self._changes.mark(member.id)
        self.assignment_epoch = computation.epoch
        self._assigned_at = now
        self._changes.mark_own()

    # --- stored state -----------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there are changes to store."""
        return bool(self._changes)

    def take_change(self) -> GroupChange:
        """The change to store before the last answers are sent. Store changes in their order."""
        return self._changes.take(self._own_fact())

    def not_stored(self, change: GroupChange) -> None:
        """Put back a change that the log does not have: the next one includes it."""
        self._changes.put_back(change)

    def _own_fact(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "assignment_epoch": self._stored_assignment_epoch}

    def restore(self, own: Mapping[str, Any], stored: Mapping[str, bytes], now: float) -> None:
        """Continue from stored facts, in a new group. Every member has a whole session.

        Facts may be lost to damage. If two members have a partition, the one with the earlier epoch
        is removed; it will join again.

        Raises:
            ValueError, KeyError, TypeError: this version does not know these facts.
        """
        self.epoch, self.assignment_epoch = own["epoch"], own["assignment_epoch"]
        self._stored_assignment_epoch = self.assignment_epoch
        found = [
            facts.to_member(each, fact) for each, fact in stored.items() if each != facts.TOPICS
        ]
        latest = max((member.epoch for member in found), default=0)
        for member in sorted(found, key=lambda member: -member.epoch):
            self._restore_member(member, now)
        if facts.TOPICS in stored:
            topics = facts.to_topics(stored[facts.TOPICS])
            self.subscriptions.restore(topics.by_name, topics.matches)
            self.subscriptions.first_partitions.update(topics.first_partitions)
        if latest > self.assignment_epoch:
            # The log does not have all of the target that it moved to: another one is needed. Until
            # then no member's epoch goes back.
            self.assignment_epoch = self._stored_assignment_epoch = latest
            self.epoch = max(self.epoch, latest + 1)
            self._changes.mark_own()

    def _restore_member(self, member: ConsumerGroupMember, now: float) -> None:
        self.members[member.id] = member
        if self._ownership.overlaps(member) or member.instance_id in self._instances:
            del self.members[member.id]
            self._changes.mark_gone(member.id)
            self._raise_epoch()
            return
        self._votes[member.assignor] += 1
        if member.instance_id:
            self._instances[member.instance_id] = member.id
        member.names = self.subscriptions.add(member.names, member.regex)
        self._ownership.claim(member)
        if member.progress is MemberProgress.UNREVOKED and member.classic is None:
            member.revoke_by = now + member.rebalance_timeout_ms / 1000
        self._touch(member, now)
