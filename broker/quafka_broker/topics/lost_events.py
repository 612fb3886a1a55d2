"""Finds topics that the log has but the registry has lost, and restores them.

Nothing is deleted because an event is missing: the partitions of a topic are dropped only if the
registry explains why the topic is not live.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from quafka_broker.journals.internal_topics import INTERNAL_NAMES
from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.topics import events
from quafka_broker.topics.events import Event
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.replay import Replay
from quafka_broker.topics.topic import Topic, TopicIdentity, Unnamed
from quafka_broker.wal.log import Log

log = logging.getLogger("quafka.broker.registry")

NewIdentity = Callable[[], TopicIdentity]


class Unexplained(NamedTuple):
    """Topics with partitions in the log that are missing in the registry without a deletion.

    Attributes:
        grown: topics with more partitions than in the registry, with the right number.
        restored: topics whose creation is lost, but which a later event names.
        unnamed: the others, with their number of partitions.
    """

    grown: list[Topic]
    restored: list[Topic]
    unnamed: dict[Unnamed, int]


def repair_events(
    wal: Log, registry: Registry, found: Replay, new_identity: NewIdentity
) -> list[Event]:
    """Restore lost topics in the registry; returns the events that make this durable."""
    missing = unexplained(wal, registry, found, new_identity)
    repairs = [events.topic_changed(topic) for topic in missing.grown]
    repairs += [events.topic_created(topic) for topic in missing.restored]
    for event in repairs:
        log.error(
            "topic %r: an event of the registry is lost; its records show %d partitions",
            event["name"], event["partitions"],
        )  # fmt: skip
    for unnamed, partitions in missing.unnamed.items():
        log.error(
            "a topic of org %d with %d partitions has lost its name; the broker keeps its records "
            "(hash %s), and serves them once a client asks for the topic by name, or `quafka wal "
            "repair --name` gives the name",
            unnamed.org, partitions, unnamed.hash.hex(),
        )  # fmt: skip
        if found.pin is None:  # otherwise the lost events may come back
            repairs.append(events.unnamed_kept(unnamed, partitions))
        registry.unnamed[unnamed] = partitions
    for event in repairs:
        registry.apply(event)
    return repairs


def unexplained(
    wal: Log, registry: Registry, found: Replay, new_identity: NewIdentity
) -> Unexplained:
    """Compare the log with the registry."""
    live = {(t.org, topic_hash(t.org, t.name)): t for t in registry.every_topic()}
    grown: dict[Topic, int] = {}
    others: dict[Unnamed, list[PartitionId]] = {}
    for id_ in wal.partitions.ids():
        topic = live.get((id_.org_id, id_.topic_hash))
        same = topic is not None and topic.generation == id_.generation
        if topic is not None and same and topic.has(id_.partition):
            continue
        if id_ in INTERNAL_NAMES or wal.partitions.get(id_).first_id is None:
            continue
        if topic is not None and same:
            grown[topic] = max(grown.get(topic, 0), id_.partition + 1)
        else:
            key = Unnamed(id_.org_id, id_.topic_hash, id_.generation)
            others.setdefault(key, []).append(id_)
    larger = [replace(topic, partitions=count) for topic, count in grown.items()]
    result = Unexplained(larger, [], {})
    for key, ids in others.items():
        first_id = min(wal.partitions.get(id_).first_id or 0 for id_ in ids)
        topic = live.get((key.org, key.hash))
        if key in registry.unnamed or _is_gone(key, first_id, topic, found):
            continue
        partitions = max(id_.partition for id_ in ids) + 1
        if topic is None and key in found.changed:
            result.restored.append(_named_again(registry, key, partitions, found, new_identity))
        else:
            result.unnamed[key] = partitions
    return result


def _is_gone(key: Unnamed, first_id: int, topic: Topic | None, found: Replay) -> bool:
    """Whether the topic was deleted: its records are older than a registry without it, than its
    deletion, or than the topic that now has its name."""
    if topic is not None and topic.generation > key.generation:
        return True
    return first_id < max(found.global_id, found.gone.get((key.org, key.hash), 0))


def _named_again(
    registry: Registry, key: Unnamed, partitions: int, found: Replay, new_identity: NewIdentity
) -> Topic:
    event = found.changed[key]
    partitions = max(partitions, event.get("partitions", 0))
    return restored(registry, key, event["name"], partitions, new_identity(), event.get("configs"))


def restored(
    registry: Registry,
    key: Unnamed,
    name: str,
    partitions: int,
    identity: TopicIdentity,
    configs: dict[str, str] | None = None,
) -> Topic:
    """A topic whose name is known again, with a new id: the old one is lost."""
    topic = registry.plan_topic(key.org, name, partitions, identity, configs)
    return replace(topic, generation=key.generation)
