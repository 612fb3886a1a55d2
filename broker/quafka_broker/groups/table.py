"""The table of groups and their committed offsets, made by the journal's events. Pure.

A fact is the unit that one event can replace: a group's own state, its offset in one partition, or
one of its members (the members of a classic group are in its own state).

    {"event": "offsets", "org": 1, "group": …, "offsets":
        [[topic, its incarnation, partition, offset, leader epoch, metadata, committed at ms], …]}
    {"event": "group", "org": 1, "group": …, "since_ms": …, and the fields of `ClassicGroup.stored`}
    {"event": "group_members", "org": 1, "group": …, "kind": …, "born_ms": …, "own": null | {…},
        "members": [[member id, bytes], …], "gone": [member id, …]}
    {"event": "offsets_deleted", "org": 1, "group": …, "partitions": [[topic, partition], …]}
    {"event": "group_deleted", "org": 1, "group": …}

"group" is a classic group. "group_members" is one step of a group of another kind: its own state,
if that changes, with "since_ms", and its members that change or leave. "born_ms" is the time at
which it became a group of this kind: members of an earlier group of the same name do not belong to
it, even if the event that removed them was lost. An event of one form ends a group of the other
form.

A topic's incarnation distinguishes it from earlier topics of its name: the generation of a topic of
this broker, or the id in hex of another broker's topic. The offsets in a deleted topic of this
broker are dropped; no event records this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quafka_broker.groups.group import Group, GroupType, Place
from quafka_broker.groups.org_usage import OrgUsage, offset_cost
from quafka_broker.topics.topic import Topic

G = TypeVar("G", bound=Group)

_BYTES_PER_WEIGHT = 1 << 10
_ROW_BYTES = 64
_COMMIT_ROW_BYTES = 40  # of an offset in the log, without its topic's name and its metadata

Event = dict[str, Any]
Key = tuple[int, str]
"""A group's org and name."""
Part = Place | str | None
"""A fact of its group: the offset in a partition, a member (its id), or (None) its own state."""
Fact = tuple[Key, Part]
"""A group and one of its facts."""


class Committed(NamedTuple):
    """A committed offset. `incarnation`: that of the topic."""

    incarnation: int | str
    offset: int
    leader_epoch: int
    metadata: str
    at_ms: int


@dataclass(slots=True, eq=False)
class Commit:
    """The offsets of one commit: the "offsets" of a new event.

    Attributes:
        topics: their names and incarnations.
        size: their approximate bytes in the log.
        cost: their bytes in the org's usage (org_usage.py).
    """

    offsets: dict[Place, Committed] = field(default_factory=dict[Place, Committed])
    topics: set[tuple[str, int | str]] = field(default_factory=set[tuple[str, int | str]])
    size: int = 0
    cost: int = 0

    @classmethod
    def of(cls, offsets: Mapping[Place, Committed]) -> Commit:
        """Make a commit of these offsets."""
        made = cls()
        for place, offset in offsets.items():
            made.add(place, offset)
        return made

    def add(self, place: Place, offset: Committed) -> None:
        """Add an offset. A second one for the same place replaces the first."""
        before = self.offsets.get(place)
        if before is not None:
            self.cost -= offset_cost(place[0], before.metadata)
        self.offsets[place] = offset
        self.topics.add((place[0], offset.incarnation))
        ascii_ = offset.metadata.isascii()
        metadata = len(offset.metadata) if ascii_ else len(offset.metadata.encode())
        self.size += _COMMIT_ROW_BYTES + len(place[0]) + metadata
        self.cost += offset_cost(place[0], offset.metadata)

    def rows(self) -> Iterator[list[Any]]:
        """The offsets as rows of an event."""
        for place, found in self.offsets.items():
            yield [place[0], found[0], place[1], *found[1:]]

    def add_rows(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add the offsets of an event."""
        for topic, incarnation, partition, *rest in rows:
            self.add((topic, partition), Committed(incarnation, *rest))


@dataclass(slots=True, eq=False)
class GroupEntry:
    """A group, its offsets, and its state in the log.

    Attributes:
        stored: the event that has its own state; for non-classic groups, without members.
        members: its members that are separate facts, as bytes.
        born_ms: of the latest "group_members" event; -1 without any.
        epoch: the generation or epoch of the last event on its way to the log (figures.py); -1
            before the first.
    """

    group: Group
    usage: OrgUsage
    """The org's usage; the methods here keep its offset bytes up to date."""
    offsets: dict[Place, Committed] = field(default_factory=dict[Place, Committed])
    stored: Event | None = None
    members: dict[str, bytes] = field(default_factory=dict[str, bytes])
    born_ms: int = -1
    epoch: int = -1

    @property
    def is_empty(self) -> bool:
        """Whether the group can be dropped: no members, no offsets, nothing in the log."""
        return self.has_only_pending_members and not self.group.has_pending_members()

    @property
    def has_only_pending_members(self) -> bool:
        """Whether the group has only pending member ids."""
        return self.group.is_empty and not self.offsets and self.stored is None

    def is_outdated(self, event: Event) -> bool:
        """Whether a "group_members" event is of a group that a now lost event has replaced."""
        of_another = self.stored is not None and self.stored["event"] != "group_members"
        return event["born_ms"] < self.born_ms or (of_another and event["own"] is None)

    def put_members(self, event: Event) -> None:
        """Apply a "group_members" event."""
        if self.is_outdated(event):
            return
        if event["born_ms"] != self.born_ms:
            self.stored, self.members, self.born_ms = None, {}, event["born_ms"]
        if event["own"] is not None:
            self.stored = {**event, "members": [], "gone": []}
        self.members.update(event["members"])
        for member_id in event["gone"]:
            self.members.pop(member_id, None)

    def put_commit(self, commit: Commit) -> Iterable[Committed | None]:
        """Set all offsets of a commit at once; returns the replaced ones, which still count.

        A reader finds all offsets of a commit or none, however many. So there is no Python step for
        each offset: 100,000 take some 15 ms. `uncount_replaced` does the rest.
        """
        before = list(map(self.offsets.get, commit.offsets))
        self.offsets.update(commit.offsets)
        self.usage.offset_bytes += commit.cost
        return before

    def uncount_replaced(
        self, commit: Commit, before: Iterable[Committed | None]
    ) -> Generator[None, None, None]:
        """Stop counting the offsets that `put_commit` replaced."""
        for place, offset in zip(commit.offsets, before, strict=True):
            if offset is not None:
                self.usage.offset_bytes -= offset_cost(place[0], offset.metadata)
                yield

    def put_offset(self, place: Place, offset: Committed) -> None:
        """Set a committed offset."""
        self.remove_offset(place)
        self.offsets[place] = offset
        self.usage.offset_bytes += offset_cost(place[0], offset.metadata)

    def remove_offset(self, place: Place) -> None:
        """Remove a committed offset, if there is one."""
        offset = self.offsets.pop(place, None)
        if offset is not None:
            self.usage.offset_bytes -= offset_cost(place[0], offset.metadata)

    def places_in(self, topic: str, incarnation: int | str) -> list[Place]:
        """The places of the offsets in a topic."""
        return [
            place
            for place, offset in self.offsets.items()
            if place[0] == topic and offset.incarnation == incarnation
        ]


class GroupTable:
    """Groups by org and name."""

    def __init__(
        self,
        new_group: Callable[[Key, GroupType], Group],
        is_live: Callable[[int, str, int], bool],
        now: Callable[[], float],
    ) -> None:
        """`is_live`: whether a topic of this org, name and generation exists."""
        self._new_group = new_group
        self._is_live = is_live
        self._now = now
        self.entries: dict[Key, GroupEntry] = {}
        self._usage: defaultdict[int, OrgUsage] = defaultdict(OrgUsage)

    def usage(self, org: int) -> OrgUsage:
        """The usage of an org's groups."""
        return self._usage[org]

    def find_or_make(self, key: Key) -> GroupEntry:
        """The group, created as an empty classic one if it is unknown."""
        entry = self.entries.get(key)
        if entry is None:
            usage = self.usage(key[0])
            usage.groups += 1
            entry = self.entries[key] = GroupEntry(self._new_group(key, GroupType.CLASSIC), usage)
        return entry

    def drop(self, key: Key) -> None:
        """Drop a group and its offsets."""
        entry = self.entries.pop(key, None)
        if entry is None:
            return
        entry.usage.groups -= 1
        entry.group.release()
        held = sum([offset_cost(place[0], at.metadata) for place, at in entry.offsets.items()])
        entry.usage.offset_bytes -= held
        entry.offsets = {}
        entry.members = {}

    def replace_group(self, key: Key, make: Callable[[], G], born_ms: int) -> G:
        """Release a group, and replace it by a new one."""
        entry = self.find_or_make(key)
        entry.group.release()
        entry.group = made = make()
        made.born_ms = born_ms
        return made

    def restore_groups(self) -> Generator[None, None, list[Fact]]:
        """Make every group from its facts, after a replay; one step for each.

        Returns the members whose group was lost to damage; the table drops them.

        Raises:
            ValueError, KeyError, TypeError: this version does not know these facts.
        """
        now = self._now()
        orphans: list[Fact] = []
        for key, entry in self.entries.items():
            if entry.stored is None:
                orphans += [(key, member_id) for member_id in entry.members]
                entry.members = {}
            else:
                own = entry.stored.get("own", entry.stored)
                kind = GroupType(entry.stored.get("kind", GroupType.CLASSIC))
                born_ms = entry.stored.get("born_ms", -1)
                group = self.replace_group(key, partial(self._new_group, key, kind), born_ms)
                group.restore(own, entry.members, now)
                group.since_ms = own["since_ms"]
            yield
        return orphans

    # --- events -----------------------------------------------------------------------------

    def facts(self, event: Event) -> list[Fact]:
        """The facts that an event changes."""
        key: Key = (event["org"], event["group"])
        return [(key, place) for place in self.places(event)]

    def places(self, event: Event) -> Sequence[Part] | Mapping[Place, Committed]:
        """The facts that an event changes, without the group; for the end of a group, all facts."""
        kind = event["event"]
        if kind == "group":
            entry = self.entries.get((event["org"], event["group"]))
            return (None, *entry.members) if entry is not None and entry.members else (None,)
        if kind == "group_members":
            return self._parts_of_members(event)
        if kind == "offsets":
            found: Commit | list[list[Any]] = event["offsets"]
            if isinstance(found, Commit):
                return found.offsets
            return [(topic, partition) for topic, _, partition, *_ in found]
        if kind == "offsets_deleted":
            return [(topic, partition) for topic, partition in event["partitions"]]
        entry = self.entries.get((event["org"], event["group"]))
        return (None, *entry.members, *entry.offsets) if entry is not None else (None,)

    def _parts_of_members(self, event: Event) -> list[Part]:
        """The facts that a "group_members" event changes or ends."""
        entry = self.entries.get((event["org"], event["group"]))
        if entry is not None and entry.is_outdated(event):
            return []
        parts: list[Part] = [] if event["own"] is None else [None]
        stated = dict.fromkeys(member_id for member_id, _ in event["members"])
        parts += [*stated, *event["gone"]]
        if entry is not None and entry.born_ms != event["born_ms"]:
            parts += [member_id for member_id in entry.members if member_id not in stated]
        return parts

    def has(self, fact: Fact) -> bool:
        """Whether the table has the fact."""
        entry = self.entries.get(fact[0])
        if entry is None:
            return False
        part = fact[1]
        if part is None:
            return entry.stored is not None
        return part in entry.members if isinstance(part, str) else part in entry.offsets

    def weight(self, fact: Fact) -> int:
        """The work of restating a fact: 1 for an offset, 1 for a member, and 1 for each KiB."""
        entry, part = self.entries[fact[0]], fact[1]
        if isinstance(part, str):
            return 1 + len(entry.members[part]) // _BYTES_PER_WEIGHT
        if part is not None:
            return 1 + len(entry.offsets[part].metadata) // _BYTES_PER_WEIGHT
        members = entry.stored.get("members", ()) if entry.stored is not None else ()
        return 1 + sum(1 + _bytes_of(member) // _BYTES_PER_WEIGHT for member in members)

    def commit(self, key: Key, commit: Commit) -> Generator[None, None, None]:
        """Apply a commit, all at once; returns the steps of its bookkeeping."""
        entry = self.find_or_make(key)
        gone: set[tuple[str, int | str]] = set()
        for name, incarnation in commit.topics:
            if not isinstance(incarnation, str) and not self._is_live(key[0], name, incarnation):
                gone.add((name, incarnation))
        if gone:  # deleted while the commit was on its way
            commit = _without(commit, gone)
        return entry.uncount_replaced(commit, entry.put_commit(commit))

    def apply(self, event: Event) -> None:
        """Apply an event. A running group already has the state of its own event.

        `commit` applies new commits; after a replay, `restore_groups` makes the groups.

        Raises:
            ValueError, KeyError, TypeError: this version does not know the event.
        """
        kind = event["event"]
        key: Key = (event["org"], event["group"])
        if kind == "group":
            entry = self.find_or_make(key)
            entry.stored, entry.members = event, {}
        elif kind == "group_members":
            self.find_or_make(key).put_members(event)
        elif kind == "offsets":
            entry = self.find_or_make(key)
            for name, incarnation, partition, *rest in event["offsets"]:
                if isinstance(incarnation, str) or self._is_live(key[0], name, incarnation):
                    entry.put_offset((name, partition), Committed(incarnation, *rest))
        elif kind == "offsets_deleted":
            entry = self.find_or_make(key)
            for topic, partition in event["partitions"]:
                entry.remove_offset((topic, partition))
        elif kind == "group_deleted":
            self.drop(key)
        else:
            raise ValueError(f"the event {kind!r} is not known")

    def restated(self, facts: Iterable[Fact]) -> list[Event]:
        """Events that restate these facts."""
        return [self.restated_in_one([fact]) for fact in facts]

    def slices_of(self, key: Key, size: int) -> Iterator[list[Fact]]:
        """A group's facts in slices of up to `size` in weight, each for one event."""
        entry = self.entries.get(key)
        if entry is None:
            return
        if entry.stored is not None:
            yield [(key, None)]
        for parts in (list(entry.members), list(entry.offsets)):
            some: list[Fact] = []
            weight = 0
            for part in parts:
                if self.has((key, part)):
                    some.append((key, part))
                    weight += self.weight((key, part))
                if weight >= size:
                    yield some
                    some, weight = [], 0
            if some:
                yield some

    def restated_in_one(self, facts: Sequence[Fact]) -> Event:
        """One event that restates the facts of one slice; the table must have them."""
        key, first = facts[0]
        entry = self.entries[key]
        if first is None:
            assert entry.stored is not None
            return entry.stored
        if isinstance(first, str):
            assert entry.stored is not None
            some = [part for _, part in facts if isinstance(part, str)]
            rows = [[member_id, entry.members[member_id]] for member_id in some]
            return {**entry.stored, "own": None, "members": rows}
        places = [part for _, part in facts if isinstance(part, tuple)]
        return offsets_event(key, {place: entry.offsets[place] for place in places})

    # --- expiry -----------------------------------------------------------------------------

    def drop_topics(self, topics: Collection[Topic]) -> list[Fact]:
        """Drop the offsets in deleted topics; returns them."""
        deleted = {(topic.org, topic.name, topic.generation) for topic in topics}
        gone: list[Fact] = []
        for key, entry in self.entries.items():
            org = key[0]
            for place in [
                place
                for place, offset in entry.offsets.items()
                if (org, place[0], offset.incarnation) in deleted
            ]:
                entry.remove_offset(place)
                gone.append((key, place))
        return gone

    def expired(self, entry: GroupEntry, before_ms: int) -> list[Place]:
        """A group's expired offsets, unused since `before_ms`.

        As in Kafka (KIP-211), a group with members uses its offsets, except those in topics that no
        member is subscribed to.
        """
        group = entry.group
        old = [place for place, offset in entry.offsets.items() if offset.at_ms < before_ms]
        if group.is_empty:
            return [] if group.keeps_offsets and group.since_ms >= before_ms else old
        if not old or group.is_rebalancing:
            return []
        used = group.subscribed()
        return [] if used is None else [place for place in old if place[0] not in used]


def _without(commit: Commit, gone: set[tuple[str, int | str]]) -> Commit:
    """Copy a commit without its offsets in these topics."""
    found = Commit()
    for place, offset in commit.offsets.items():
        if (place[0], offset.incarnation) not in gone:
            found.add(place, offset)
    return found


def size_of(event: Event) -> int:
    """The approximate bytes of an event."""
    offsets: Commit | list[list[Any]] = event.get("offsets", [])
    if isinstance(offsets, Commit):
        return offsets.size
    if event["event"] == "group_members":
        rows: list[tuple[str, bytes]] = event["members"]
        return sum(_ROW_BYTES + len(row) for _, row in rows) + _ROW_BYTES * len(event["gone"])
    members: list[dict[str, Any]] = event.get("members", [])
    size = _ROW_BYTES * (len(offsets) + len(members) + len(event.get("partitions", ())))
    return size + sum(len(row[5]) for row in offsets) + sum(map(_bytes_of, members))


def _bytes_of(member: Mapping[str, Any]) -> int:
    return len(member["assignment"]) + sum(map(len, member["protocols"].values()))


def stated_by(event: Event) -> list[Fact]:
    """The facts in an event of restated ones, in their order."""
    key: Key = (event["org"], event["group"])
    if event["event"] == "offsets":
        return [(key, (topic, partition)) for topic, _, partition, *_ in event["offsets"]]
    if event["event"] == "group_members" and event["own"] is None:
        return [(key, member_id) for member_id, _ in event["members"]]
    return [(key, None)]


def offsets_event(key: Key, offsets: dict[Place, Committed]) -> Event:
    """The event that commits these offsets."""
    rows = [[place[0], found[0], place[1], *found[1:]] for place, found in offsets.items()]
    return {"event": "offsets", "org": key[0], "group": key[1], "offsets": rows}
