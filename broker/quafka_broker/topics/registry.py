"""The topic registry: the topics of all orgs, built by applying events. Pure: no I/O, no clock.

Events may be lost to damage. So a replay accepts the deletion of an unknown topic and the creation
of a known one: the later event wins. A topic whose creation is lost, but not its records, is
*unnamed*: the registry keeps it until its name is known again, or an operator drops it.

journal.py makes changes durable; events.py has the events.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from quafka_broker.partitions.partition import topic_hash
from quafka_broker.topics import events
from quafka_broker.topics.events import Event
from quafka_broker.topics.org_topics import OrgTopics
from quafka_broker.topics.slugs import Slugs, slug_of
from quafka_broker.topics.topic import ADOPTED, Topic, TopicIdentity, Unnamed


class Registry:
    """The state built from the events."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.changes = 0
        """Events since the start, including staged ones."""
        self.producer_ids_up_to = 0
        self.restored_ids_below = 0
        """Producers with lower ids may have written to a log that this one is a copy of."""
        self.journal_starts: dict[str, int] = {}
        """The log starts of internal topics, by name."""
        self.unnamed: dict[Unnamed, int] = {}
        """The known number of partitions of each unnamed topic."""
        self.broker_configs: dict[str, dict[str, str]] = {"cluster": {}, "own": {}}
        """The broker configs that clients have set, by scope; see broker_configs.py."""
        self.group_configs: dict[int, dict[str, dict[str, str]]] = {}
        """The configs that groups set, by org and group; see groups/configs.py."""
        self._by_name: dict[tuple[int, str], Topic] = {}
        self._by_id: dict[tuple[int, bytes], Topic] = {}
        self._run = os.urandom(8)
        self._no_topics = OrgTopics(self._run)
        self._orgs: dict[int, OrgTopics] = {}
        self._slugs = Slugs()
        self._log_starts: dict[tuple[int, str], dict[int, int]] = {}
        self._next_generation: dict[tuple[int, str], int] = {}
        self._least_generation = 0
        self._staged: list[Event] = []
        self._adopted: set[tuple[int, str]] = set()
        self.watcher: Callable[[int, str], None] | None = None
        """Called with the org and name of each topic that is created, changed or deleted."""

    # --- look-ups ---------------------------------------------------------------------------

    def find(self, org: int, name: str, uuid: bytes) -> Topic | None:
        """The topic addressed by name or, if the name is empty, by id."""
        if uuid and not name:
            return self._by_id.get((org, uuid))
        return self._by_name.get((org, name))

    def by_name(self, org: int, name: str) -> Topic | None:
        """The topic of that name."""
        return self._by_name.get((org, name))

    def by_id(self, org: int, uuid: bytes) -> Topic | None:
        """The topic of that id."""
        return self._by_id.get((org, uuid))

    def topics(self, org: int) -> list[Topic]:
        """An org's topics, by name."""
        return [self._by_name[org, name] for name in sorted(self.org(org).names())]

    def org(self, org: int) -> OrgTopics:
        """An org's topic names and number of partitions."""
        return self._orgs.get(org, self._no_topics)

    def highest_org(self) -> int:
        """The highest id of an org that has, or had, topics."""
        return max((org for org, _ in self._next_generation), default=0)

    def every_topic(self) -> list[Topic]:
        """All topics of all orgs."""
        return list(self._by_name.values())

    def is_live(self, org: int, name: str, generation: int) -> bool:
        """Whether this topic exists, or may exist: unnamed topics count."""
        topic = self._by_name.get((org, name))
        if topic is not None:
            return topic.generation == generation
        if generation & ADOPTED:
            return True  # its folder may exist again at the next start
        found = self.unnamed_of(org, name)
        return found is not None and found.generation == generation

    def unnamed_of(self, org: int, name: str) -> Unnamed | None:
        """The newest unnamed topic, if this is its name."""
        if not self.unnamed:
            return None
        key = org, topic_hash(org, name)
        return max((found for found in self.unnamed if found[:2] == key), default=None)

    def log_starts(self, topic: Topic) -> dict[int, int]:
        """The log start of each partition with deleted records."""
        return self._log_starts.get((topic.org, topic.name), {})

    def plan_topic(
        self,
        org: int,
        name: str,
        partitions: int,
        identity: TopicIdentity,
        configs: dict[str, str] | None = None,
    ) -> Topic:
        """The topic that a creation would make now, without creating it."""
        generation = self._next_generation.get((org, name), self._least_generation)
        return Topic(
            org, name, identity.uuid, identity.ulid, self._slugs.free_for(org, slug_of(name)),
            generation, partitions, identity.created_ms, configs or {},
        )  # fmt: skip

    # --- adopted topics ---------------------------------------------------------------------

    def adopt(self, topic: Topic) -> Topic:
        """Add a topic that no event describes, or replace it; it lasts until the broker stops.

        Returns it with a free slug. It is never restated. Its source is not the log.

        Raises:
            ValueError: the log has a topic of that name, or another topic has the id.
        """
        key = topic.org, topic.name
        same_id = self._by_id.get((topic.org, topic.uuid))
        if (key in self._by_name and key not in self._adopted) or (
            same_id is not None and same_id.name != topic.name
        ):
            raise ValueError(f"topic {topic.name!r} of org {topic.org} exists already")
        self.release(topic.org, topic.name)
        topic = replace(topic, slug=self._slugs.free_for(topic.org, topic.slug))
        self._put(topic)
        self._slugs.reserve(topic.org, topic.slug)
        self._adopted.add(key)
        return topic

    def release(self, org: int, name: str) -> None:
        """Remove an adopted topic, if there is one of this name."""
        if (org, name) in self._adopted:
            self._adopted.remove((org, name))
            self._delete(org, name)

    # --- events -----------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Make one event's change.

        Raises:
            ValueError, KeyError, TypeError: this version does not know the event.
        """
        kind = event["event"]
        self.changes += 1
        if kind == "snapshot":
            self._stage(event)
            return
        self._staged = []
        if kind == "cluster":
            self.cluster_id = event["id"]
        elif kind == "producer_ids":
            self.producer_ids_up_to = max(self.producer_ids_up_to, event["up_to"])
            if event.get("restored"):
                self.restored_ids_below = event["up_to"]
        elif kind == "broker_configs":
            self.broker_configs[event["scope"]] = event["configs"]
        elif kind == "group_configs":
            self._set_group_configs(event["org"], event["group"], event["configs"])
        elif kind == "generations":
            self._least_generation = max(self._least_generation, event["from"])
        elif kind == "journal_start":
            self.journal_starts[event["name"]] = event["start"]
        else:
            self._apply_to_topic(kind, event)

    def _set_group_configs(self, org: int, group: str, configs: dict[str, str]) -> None:
        of_org = self.group_configs.setdefault(org, {})
        of_org[group] = configs
        if not configs:
            del of_org[group]
        if not of_org:
            del self.group_configs[org]

    def _apply_to_topic(self, kind: str, event: Event) -> None:
        if kind == "topic_created":
            self._create(event)
        elif kind == "topic_changed":
            self._change(event)
        elif kind == "topic_deleted":
            self._delete(event["org"], event["name"])
        elif kind == "log_start":
            self._move(event)
        elif kind == "unnamed":
            self.unnamed[events.unnamed_of(event)] = event["partitions"]
        elif kind == "unnamed_dropped":
            self.unnamed.pop(events.unnamed_of(event), None)
        else:
            raise ValueError(f"the event {kind!r} is not known")

    def _create(self, event: Event) -> None:
        self._delete(event["org"], event["name"])
        values = {key: value for key, value in event.items() if key != "event"}
        values["uuid"] = bytes.fromhex(event["uuid"])
        values["slug"] = self._slugs.free_for(event["org"], event["slug"])
        topic = Topic(**values)
        self._put(topic)
        self._slugs.reserve(topic.org, topic.slug)
        self._next_generation[topic.org, topic.name] = topic.generation + 1
        if self.unnamed:
            hash_ = topic_hash(topic.org, topic.name)
            self.unnamed.pop(Unnamed(topic.org, hash_, topic.generation), None)

    def _delete(self, org: int, name: str) -> None:
        topic = self._by_name.pop((org, name), None)
        if topic is not None:
            del self._by_id[topic.org, topic.uuid]
            self._orgs[org].remove(topic)
            self._slugs.release(topic.org, topic.slug)
            self._log_starts.pop((topic.org, topic.name), None)
            if self.watcher is not None:
                self.watcher(org, name)

    def _put(self, topic: Topic) -> None:
        before = self._by_name.get((topic.org, topic.name))
        self._orgs.setdefault(topic.org, OrgTopics(self._run)).put(before, topic)
        self._by_name[topic.org, topic.name] = topic
        self._by_id[topic.org, topic.uuid] = topic
        if self.watcher is not None:
            self.watcher(topic.org, topic.name)

    def _change(self, event: Event) -> None:
        topic = self._by_name.get((event["org"], event["name"]))
        if topic is None or topic.generation != event["generation"]:
            return
        self._put(replace(topic, partitions=event["partitions"], configs=event["configs"]))

    def _move(self, event: Event) -> None:
        topic = self._by_name.get((event["org"], event["name"]))
        if topic is None or topic.generation != event["generation"]:
            return
        starts = self._log_starts.setdefault((topic.org, topic.name), {})
        for partition, offset in event["starts"].items():
            starts[int(partition)] = max(offset, starts.get(int(partition), 0))

    # --- snapshots --------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of events that restate this registry."""
        others = len(self.journal_starts) + len(self.unnamed)
        others += sum(map(len, self.group_configs.values()))
        return 4 + len(self._by_name) + len(self._log_starts) + others

    def restate(self) -> Iterator[Event]:
        """Events that rebuild this registry."""
        yield events.cluster_named(self.cluster_id)
        yield events.producer_ids_allocated(self.producer_ids_up_to)
        if self.restored_ids_below:
            yield events.producer_ids_allocated(self.restored_ids_below, restored=True)
        for scope, configs in self.broker_configs.items():
            if configs:
                yield events.broker_configs_changed(scope, configs)
        for org, groups in self.group_configs.items():
            for group, configs in groups.items():
                yield events.group_configs_changed(org, group, configs)
        # The highest generation of all deleted topics stands for all of them.
        ours = self._by_name.keys() - self._adopted
        gone = [g for key, g in self._next_generation.items() if key not in ours]
        yield events.generations_from(max([*gone, self._least_generation]))
        for name, start in self.journal_starts.items():
            yield events.journal_start_moved(name, start)
        for unnamed, partitions in self.unnamed.items():
            yield events.unnamed_kept(unnamed, partitions)
        for topic in self._by_name.values():
            if (topic.org, topic.name) in self._adopted:
                continue
            yield events.topic_created(topic)
            yield from events.log_starts_moved(topic, self.log_starts(topic))

    def _stage(self, part: Event) -> None:
        if part["part"] == 0:
            self._staged = []
        if part["part"] != len(self._staged):
            self._staged = []  # an earlier part is lost: the events before it count
            return
        self._staged.append(part)
        if len(self._staged) < part["of"]:
            return
        fresh = Registry()
        for staged in self._staged:
            for event in staged["events"]:
                fresh.apply(event)
        fresh.watcher = self.watcher
        vars(self).update(vars(fresh))
