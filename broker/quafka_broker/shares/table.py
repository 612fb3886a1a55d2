"""All share partitions of a broker by group, and the records in flight of each org. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from quafka_broker.shares import events
from quafka_broker.shares.events import EVERY, Began, Dropped, Event
from quafka_broker.shares.window import Window

GroupKey = tuple[int, str]
"""A group's org and name."""


class PartitionPlace(NamedTuple):
    """A partition of a topic, by the topic's id."""

    topic_id: bytes
    partition: int


class Waiting(Protocol):
    """A member that waits for records; see turns.py."""

    @property
    def has_changes(self) -> bool:
        """Whether there are changes since its last look."""
        ...

    def take_turn(self, share: SharePartition) -> None:
        """Look at a share partition now."""
        ...


@dataclass(slots=True, eq=False)
class SharePartition:
    """A group's window in one partition.

    `most_deliveries`: the group's config when the window was last used.
    """

    group: GroupKey
    place: PartitionPlace
    window: Window
    most_deliveries: int = 0
    is_full: bool = False
    """Whether a member waits for room in the window."""
    counted: int = 0
    """Its share of the org's records in flight."""
    waiting: dict[Waiting, None] = field(default_factory=dict["Waiting", None])
    """The group's members that wait for records, in their order."""
    turn: Waiting | None = None
    """The member that looks at the last change."""

    def began(self, *, settled: bool = True) -> Began:
        """The event that restates the window; see `Window.dump`."""
        changes = events.rows(self.window.dump(settled=settled))
        return Began(*self.group, *self.place, self.window.start, changes)


@dataclass(slots=True)
class ShareUsage:
    """The usage of an org's share groups."""

    partitions: int = 0
    in_flight: int = 0


class SharePartitionTable:
    """Share partitions by group and place."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, dict[PartitionPlace, SharePartition]] = {}
        self._usage: defaultdict[int, ShareUsage] = defaultdict(ShareUsage)

    def __len__(self) -> int:
        """The number of share partitions."""
        return sum(map(len, self.groups.values()))

    def __iter__(self) -> Iterator[SharePartition]:
        for group in list(self.groups.values()):
            yield from list(group.values())

    @property
    def usages(self) -> Collection[ShareUsage]:
        """The usages of all orgs."""
        return self._usage.values()

    def usage(self, org: int) -> ShareUsage:
        """The usage of an org."""
        return self._usage[org]

    def find(self, group: GroupKey, place: PartitionPlace) -> SharePartition | None:
        """A share partition, or None if the group has not begun with the partition."""
        return self.groups.get(group, {}).get(place)

    def of(self, group: GroupKey) -> list[SharePartition]:
        """A group's share partitions."""
        return list(self.groups.get(group, {}).values())

    def recount(self, found: SharePartition) -> None:
        """Update the org's records in flight after a change of a window."""
        now = found.window.in_flight
        self._usage[found.group[0]].in_flight += now - found.counted
        found.counted = now

    def apply(self, event: Event) -> None:
        """Apply an event of the log.

        Raises:
            ValueError, TypeError: it has a state that is unknown to this version.
        """
        key: GroupKey = (event.org, event.group)
        place = PartitionPlace(event.topic_id, event.partition)
        if isinstance(event, Dropped):
            self._drop(key, lambda at: _concerns(event, at))
            return
        found = self.find(key, place)
        if found is None or isinstance(event, Began):
            found = self._begin(key, place, event.start)
        found.window.apply(events.changes_of(event))
        self.recount(found)

    def _begin(self, key: GroupKey, place: PartitionPlace, start: int) -> SharePartition:
        found = self.find(key, place)
        if found is None:
            found = SharePartition(key, place, Window(start))
            self.groups.setdefault(key, {})[place] = found
            self._usage[key[0]].partitions += 1
        else:
            found.window = Window(start)
        return found

    def drop_topic(self, key: GroupKey, topic_id: bytes) -> None:
        """Drop a group's share partitions of a topic."""
        self._drop(key, lambda place: place.topic_id == topic_id)

    def _drop(self, key: GroupKey, concerns: Callable[[PartitionPlace], bool]) -> None:
        its = self.groups.get(key, {})
        gone = [found for place, found in its.items() if concerns(place)]
        usage = self._usage[key[0]]
        for found in gone:
            del its[found.place]
            usage.partitions -= 1
            usage.in_flight -= found.counted
            found.counted = 0
        if not its:
            self.groups.pop(key, None)


def _concerns(event: Dropped, place: PartitionPlace) -> bool:
    return not event.topic_id or (
        event.topic_id == place.topic_id and event.partition in (EVERY, place.partition)
    )
