"""What the members of a group are subscribed to, and what is known of these topics. Pure.

Each name and each pattern is counted, not searched for: a group may have thousands of names, and
hundreds of patterns that match most of them. What a pattern matches is a bitmap over numbered names
(numbered_names.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyroaring import BitMap

from quafka_broker.groups.consumer.numbered_names import NumberedNames
from quafka_broker.groups.consumer.topics import Known, TopicMetadata

_NAME_COST, _ID_COST = 90, 110
"""Bytes of a name in a set, and of a topic's id in another."""


class Subscriptions:
    """The subscribed names and patterns, each with its number of members, and their topics.

    Attributes:
        topics: the subscribed topics that exist, by name.
        topics_by_id: the same, by id.
        matches: what matches each pattern, as a caller resolved it, by the numbers of `matched`.
        matched: the names that match a pattern.
        has_changed: whether topics or matches have changed since a caller cleared it.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_by_id: dict[bytes, TopicMetadata] = {}
        self.matches: dict[str, BitMap] = {}
        self.matched = NumberedNames()
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
        """Count one more member; returns the names, one object for all members with equal ones."""
        names, count = self._sets.get(names, (names, 0))
        self._sets[names] = (names, count + 1)
        if not count:
            self._listed += len(names)
            self._names.update(names)
        if regex:
            self._regexes[regex] += 1
        return names

    def remove(self, names: frozenset[str], regex: str) -> None:
        """Count one member less. Topics that nobody is subscribed to are forgotten."""
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
        """Whether a member is subscribed to the topic of this name."""
        return name in self._names or name in self.matched

    @property
    def listed(self) -> int:
        """The names of all different subscriptions: the work of looking at all of them."""
        return self._listed + sum(map(len, self.matches.values()))

    @property
    def cost(self) -> int:
        """The bytes of subscriptions. Members with equal ones share them."""
        listed = (_NAME_COST + _ID_COST) * self._listed + 200 * len(self.topics)
        patterns = sum(_ID_COST * len(found) for found in self.matches.values())
        return listed + patterns + self.matched.cost

    # --- topics -----------------------------------------------------------------------------

    def learn(self, known: Known) -> bool:
        """Take over what is known of topics; whether a subscribed one has changed."""
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
        """Set what matches a pattern of a member; whether that changes."""
        if regex not in self._regexes:
            return False
        before = self.matches.get(regex)
        found = self.matched.claim(names)
        unused = self.matched.release(before) if before is not None else []
        if before == found:
            return False
        self.matches[regex] = found
        self._forget(unused)
        self._topics_changed()
        return True

    def ids(self, names: frozenset[str], regex: str) -> frozenset[bytes]:
        """The ids of the topics of a member's subscription, of those that exist."""
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

    def restore(
        self, topics: Mapping[str, TopicMetadata], matches: Mapping[str, frozenset[str]]
    ) -> None:
        """Continue from stored topics and matches, after `add` of every member."""
        for regex, names in matches.items():
            self.resolve(regex, names)
        self.learn(topics)
        self.has_changed = False

    def _forget(self, names: Iterable[str]) -> None:
        """Drop topics that somebody was subscribed to, unless others are."""
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
