"""A member of a consumer group: its last heartbeat and its partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import IntEnum

from quafka_broker.groups.consumer.beat import LEAVE_FOR_NOW, MemberHeartbeat
from quafka_broker.groups.consumer.topics import Held, Target, count
from quafka_broker.groups.deadlines import NEVER
from quafka_broker.groups.org_usage import member_cost

_PARTITION_COST = 300
"""Bytes of a partition in the member, in its target, and in the map of owners."""


class MemberProgress(IntEnum):
    """A member's progress towards its target. The numbers are on disk."""

    STABLE = 0
    UNREVOKED = 1
    """It has been asked to give up partitions, and has not confirmed it."""
    UNRELEASED = 2
    """It waits for partitions that other members have not given up yet."""


def names_cost(names: Collection[str]) -> int:
    """The bytes of a member's subscribed names in its fact."""
    return sum(map(len, names)) + 5 * len(names)


@dataclass(slots=True)
class ClassicSide:
    """The data of a member that uses the classic protocol.

    Attributes:
        session: its session timeout in seconds.
        protocols: the assignors that it supports, in its order, with their metadata.
    """

    session: float
    protocols: list[tuple[str, bytes]]


@dataclass(slots=True, eq=False)
class ConsumerGroupMember:
    """A member.

    Attributes:
        names: the topics that it is subscribed to by name.
        regex: its pattern, or "".
        epoch: -2 while a static member has left for now.
        previous_epoch: the epoch that it sent when it got `epoch`.
        assigned: the partitions that it may read.
        revoking: the partitions that it has been asked to give up but still has.
        target: the partitions that it is to have at the end.
        recheck: its topics have changed: the assignment may be wrong at its own epoch.
        expires: when its session ends.
        revoke_by: the deadline to give up the partitions of `revoking`.
    """

    id: str
    instance_id: str = ""
    rack: str = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    names: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    progress: MemberProgress = MemberProgress.STABLE
    assigned: Held = field(default_factory=Held)
    revoking: Held = field(default_factory=Held)
    target: Target = field(default_factory=Target)
    classic: ClassicSide | None = None
    recheck: bool = False
    expires: float = NEVER
    revoke_by: float = NEVER

    @property
    def has_left_for_now(self) -> bool:
        """Whether this static member has left and keeps its partitions for its successor."""
        return self.epoch == LEAVE_FOR_NOW

    def is_at(self, assignment_epoch: int) -> bool:
        """Whether it has reached its target of this epoch."""
        return self.epoch == assignment_epoch and self.progress is MemberProgress.STABLE

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """The names and the pattern."""
        return self.names, self.regex

    @property
    def description(self) -> tuple[object, ...]:
        """The data that its heartbeats carry."""
        return (
            self.instance_id,
            self.rack,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.names,
            self.regex,
            self.assignor,
        )

    def take_over(self, beat: MemberHeartbeat) -> None:
        """Update the member from a heartbeat."""
        self.instance_id = self.instance_id if beat.instance_id is None else beat.instance_id
        self.rack = self.rack if beat.rack_id is None else beat.rack_id
        self.client_id, self.client_host = beat.client_id, beat.client_host
        if beat.rebalance_timeout_ms != -1:
            self.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.topic_names is not None:
            self.names = frozenset(beat.topic_names)
        self.regex = self.regex if beat.topic_regex is None else beat.topic_regex
        self.assignor = self.assignor if beat.assignor is None else beat.assignor

    @property
    def has(self) -> Held:
        """The partitions that it may read, and those that it still has to give up."""
        topics = self.assigned.keys() | self.revoking.keys()
        return {each: self.assigned.get(each, {}) | self.revoking.get(each, {}) for each in topics}

    @property
    def cost(self) -> int:
        """Its bytes in the usage of its org; members with the same names share the set of them."""
        texts = (self.id, self.instance_id, self.rack, self.client_id, self.client_host)
        protocols = self.classic.protocols if self.classic is not None else ()
        held = max(count(self.assigned) + count(self.revoking), count(self.target))
        return member_cost((*texts, self.regex), protocols, _PARTITION_COST * held) + names_cost(
            self.names
        )
