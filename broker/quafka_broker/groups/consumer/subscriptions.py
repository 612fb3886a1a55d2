"""The subscriptions of a group's members, and the metadata of their topics. Pure.

Names and patterns are counted, not searched for: a group may have thousands of names, and hundreds
of patterns that match most of them. The matches of a pattern are a bitmap over numbered names
(numbered_names.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from pyroaring import BitMap

from quafka_broker.groups.consumer.numbered_names import NumberedNames
from quafka_broker.groups.consumer.topics import Known, TopicMetadata

_NAME_COST, _ID_COST = 90, 110
"""Bytes of a name in one set, and of a topic's id in another."""


class Subscriptions:
    """The subscribed names and patterns, each with its number of members, and their topics.

    Attributes:
        topics: the subscribed topics that exist, by name.
        topics_by_id: the same topics, by id.
        matches: the matches of each pattern as resolved by a caller, by the numbers of `matched`.
        matched: the names that match a pattern.
        first_partitions: the partitions that a topic had when the group learnt it, by id, also of
            topics without a subscriber; see `note_partitions`.
        has_changed: whether topics or matches have changed since a caller cleared it.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_by_id: dict[bytes, TopicMetadata] = {}
        self.matches: dict[str, BitMap] = {}
        self.matched = NumberedNames()
        self.first_partitions: dict[bytes, int] = {}
        self.has_changed = False
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._sets: dict[frozenset[str], tuple[frozenset[str], int]] = {}
        self._listed = 0  # names of all sets
        self._ids: dict[frozenset[str], dict[str, frozenset[bytes]]] = {}
        self._partitions: int | None = 0
        self.changes = 0
        """How often the subscribed topics have changed."""

    # --- members ----------------------------------------------------------------------------

    def add(self, names: frozenset[str], regex: str) -> frozenset[str]:
        """Count another member; returns the names, one object for all members with equal names."""
        names, count = self._sets.get(names, (names, 0))
        self._sets[names] = (names, count + 1)
        if not count:
            self._listed += len(names)
            self._names.update(sorted(names))  # the order of a set differs between processes
        if regex:
            self._regexes[regex] += 1
        return names

    def remove(self, names: frozenset[str], regex: str) -> None:
        """Count one member less. Topics without a subscriber are forgotten."""
        kept, count = self._sets[names]
        if count > 1:
            self._sets[names] = (kept, count - 1)
        else:
            self._remove_set(names)
        if regex:
            self._regexes[regex] -= 1
            if not self._regexes[regex]:
                self._remove_pattern(regex)

    def _remove_set(self, names: frozenset[str]) -> None:
        del self._sets[names]
        self._listed -= len(names)
        self._ids.pop(names, None)
        self._names.subtract(names)
        unused = [name for name in names if not self._names[name]]
        for name in unused:
            del self._names[name]
        self._forget(unused)

    def _remove_pattern(self, regex: str) -> None:
        del self._regexes[regex]
        for by_regex in self._ids.values():
            by_regex.pop(regex, None)
        gone = self.matches.pop(regex, None)
        if gone is not None:
            self.has_changed = True
            self._forget(self.matched.release(gone))

    @property
    def regexes(self) -> list[str]:
        """The patterns of the members."""
        return list(self._regexes)

    def wanted(self) -> set[str]:
        """The names of all subscribed topics, whether they exist or not."""
        return set(self._names).union(self.matched)

    def wants(self, name: str) -> bool:
        """Whether any member is subscribed to the topic of this name."""
        return name in self._names or name in self.matched

    @property
    def listed(self) -> int:
        """The number of names in all distinct subscriptions, which measures the work of a scan."""
        return self._listed + sum(map(len, self.matches.values()))

    @property
    def cost(self) -> int:
        """The bytes of the subscriptions. Members with equal ones share them."""
        listed = (_NAME_COST + _ID_COST) * self._listed + 200 * len(self.topics)
        patterns = sum(_ID_COST * len(found) for found in self.matches.values())
        return listed + patterns + self.matched.cost + _ID_COST * len(self.first_partitions)

    # --- topics -----------------------------------------------------------------------------

    def learn(self, known: Known) -> bool:
        """Take over metadata of topics; returns whether a subscribed one has changed."""
        changed = False
        for name, topic in known.items():
            before = self.topics.get(name)
            if before is topic or not self.wants(name):
                continue
            changed = changed or before != topic
            if before is not None:
                self._drop_topic(before)
            if topic is not None:
                self.topics[name] = self.topics_by_id[topic.id] = topic
        if changed:
            self._topics_changed()
        return changed

    def resolve(self, regex: str, names: frozenset[str]) -> bool:
        """Set the matches of a member's pattern; returns whether they change."""
        if regex not in self._regexes:
            return False
        before = self.matches.get(regex)
        found = self.matched.claim(sorted(names))
        unused = self.matched.release(before) if before is not None else []
        if before == found:
            return False
        self.matches[regex] = found
        self._forget(unused)
        self._topics_changed()
        return True

    def ids(self, names: frozenset[str], regex: str) -> frozenset[bytes]:
        """The ids of the existing topics of a member's subscription."""
        by_regex = self._ids.setdefault(names, {})
        found = by_regex.get(regex)
        if found is None:
            every: Iterable[str] = names
            if regex in self.matches:
                every = {*names, *self.matched.names(self.matches[regex])}
            topics = self.topics
            found = frozenset([topics[name].id for name in every if name in topics])
            by_regex[regex] = found
        return found

    @property
    def partitions(self) -> int:
        """The number of partitions of the subscribed topics."""
        if self._partitions is None:
            self._partitions = sum([topic.partitions for topic in self.topics.values()])
        return self._partitions

    def note_partitions(self, most: int) -> None:
        """Note the partitions of topics that are new to the group.

        `most`: topics without a subscriber that stay noted. Of any more, the first are forgotten.
        """
        noted, present = self.first_partitions, self.topics_by_id
        for topic in present.values():
            noted.setdefault(topic.id, topic.partitions)
        spare = len(noted) - len(present) - most
        if spare > 0:
            for gone in list(islice((each for each in noted if each not in present), spare)):
                del noted[gone]

    def restore(
        self, topics: Mapping[str, TopicMetadata], matches: Mapping[str, frozenset[str]]
    ) -> None:
        """Continue from stored topics and matches, after `add` of every member."""
        for regex, names in matches.items():
            self.resolve(regex, names)
        self.learn(topics)
        self.has_changed = False

    def _forget(self, names: Iterable[str]) -> None:
        """Drop topics of a removed subscription, unless they have other subscribers."""
        gone = [
            topic
            for name in names
            if (topic := self.topics.get(name)) is not None and not self.wants(name)
        ]
        for topic in gone:
            self._drop_topic(topic)
        if gone:
            self._topics_changed()

    def _drop_topic(self, topic: TopicMetadata) -> None:
        del self.topics[topic.name]
        if self.topics_by_id.get(topic.id) is topic:
            del self.topics_by_id[topic.id]

    def _topics_changed(self) -> None:
        self.changes += 1
        self.has_changed = True
        self._ids.clear()
        self._partitions = None
