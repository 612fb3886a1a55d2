"""The part of the coordinator that groups and their members' requests need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from quafka_broker.groups.answer_queue import AnswerQueue
from quafka_broker.groups.consumer.settings import ConsumerGroupSettings
from quafka_broker.groups.figures import GroupFigures
from quafka_broker.groups.group import Group, GroupChange, GroupType, Then, Waking
from quafka_broker.groups.known_topics import KnownTopics
from quafka_broker.groups.limits import GroupLimits
from quafka_broker.groups.org_usage import OrgUsage
from quafka_broker.groups.table import GroupEntry, Key

G = TypeVar("G", bound=Group, covariant=True)


def now() -> float:
    """The time by the event loop's clock, for a group's methods."""
    return asyncio.get_running_loop().time()


class Host(Protocol):
    """The coordinator as the kinds of groups see it (kinds.py).

    Attributes:
        answers: resolves the answers to parked members, a few in each turn of the loop.
        now_ms: the wall clock.
        figures: counts of the groups' work, by kind.
        topics: the topics of this broker, and the gateways' metadata of others.
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
        """A group, or None if it is unknown."""
        ...

    def find_or_make(self, key: Key) -> GroupEntry:
        """A group, created as an empty classic one if it is unknown."""
        ...

    def become(self, key: Key, kind: GroupKind[G]) -> G:
        """Replace a group by an empty one of this kind; its next event records this."""
        ...

    def downgrade(self, key: Key) -> None:
        """Convert a group whose members all use the classic protocol to a classic one."""
        ...

    def may_make(self, org: int) -> bool:
        """Whether an org may have another group."""
        ...

    def store(self, key: Key, group: Group, change: GroupChange, then: Then) -> None:
        """Make a step of a group durable, then call `then`. For all kinds but the classic one."""
        ...

    def append(self, key: Key, group: Waking, event: dict[str, Any], then: Then) -> None:
        """Make an event of a group durable, then call `then`."""
        ...

    def changed(self, key: Key, group: Waking) -> None:
        """Set the timer for the group's next deadline."""
        ...

    def drop_if_empty(self, key: Key) -> None:
        """Drop a group that has no members, no offsets, and nothing in the log."""
        ...

    def only_has_pending(self, key: Key) -> None:
        """Let a group make room for others of its org while it has only pending member ids."""
        ...


@dataclass(frozen=True, slots=True)
class GroupKind(Generic[G]):
    """One kind of groups. `make`, the only maker of its groups, makes an empty one."""

    kind: GroupType
    make: Callable[[Host, Key], G]

    def of(self, entry: GroupEntry | None) -> G | None:
        """The group of an entry, if it is of this kind."""
        if entry is None or entry.group.kind is not self.kind:
            return None
        return cast("G", entry.group)
