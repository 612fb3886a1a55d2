"""What a group and the requests of its members need of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from quafka_broker.groups.answer_queue import AnswerQueue
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.figures import GroupFigures
from quafka_broker.groups.group import Group, GroupChange, Kind, Then
from quafka_broker.groups.known_topics import KnownTopics
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.groups.table import GroupEntry, Key


def now() -> float:
    """The time of the event loop's clock: what a group's methods are given."""
    return asyncio.get_running_loop().time()


class Host(Protocol):
    """The coordinator, as the kinds of groups see it (kinds.py).

    Attributes:
        answers: resolves the answers to parked members, a few in each turn of the loop.
        now_ms: the wall clock.
        figures: what the groups have done, by kind.
        topics: the topics of this broker, and what gateways know of others.
    """

    limits: GroupLimits
    topics: KnownTopics
    now_ms: Callable[[], int]
    answers: AnswerQueue
    figures: GroupFigures

    @property
    def is_running(self) -> bool:
        """Whether requests may be parked."""
        ...

    def usage(self, org: int) -> OrgUsage:
        """The usage of an org's groups."""
        ...

    def consumer_settings(self, org: int, group: str, /) -> ConsumerGroupSettings:
        """The settings of a group of the consumer group protocol."""
        ...

    def share_settings(self, org: int, group: str, /) -> ConsumerGroupSettings:
        """The settings of a share group."""
        ...

    def find(self, org: int, name: str) -> GroupEntry | None:
        """A group; None where it is unknown."""
        ...

    def find_or_make(self, key: Key) -> GroupEntry:
        """A group, created as an empty classic one if it is unknown."""
        ...

    def become(self, key: Key, kind: Kind) -> Group:
        """Put an empty group of this kind in the place of a group; its next event says so."""
        ...

    def downgrade(self, key: Key) -> None:
        """Make a classic group of one whose members all use the classic protocol."""
        ...

    def may_make(self, org: int) -> bool:
        """Whether an org may have one more group."""
        ...

    def store(self, key: Key, group: Group, change: GroupChange, then: Then) -> None:
        """Make a step of a group durable, then call `then`. For kinds but the classic one."""
        ...

    def append(self, key: Key, group: Group, event: dict[str, Any], then: Then) -> None:
        """Make an event of a group durable, then call `then`."""
        ...

    def changed(self, key: Key, group: Group) -> None:
        """Set the timer for the group's next deadline."""
        ...

    def drop_if_empty(self, key: Key) -> None:
        """Drop a group that has no members, no offsets, and nothing in the log."""
        ...

    def only_has_pending(self, key: Key) -> None:
        """Let a group give way to others of its org while it has only pending member ids."""
        ...
