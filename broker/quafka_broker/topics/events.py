"""The events of the topic registry, as JSON in the internal topic `__quafka_registry`.

    {"event": "cluster", "id": …}
    {"event": "topic_created", "org": 1, "name": …, "uuid": hex, "ulid": "top_…", "slug": …,
     "generation": 0, "partitions": 3, "created_ms": …, "configs": {"retention.ms": "1000"}}
    {"event": "topic_changed", "org": 1, "name": …, "generation": 0, "partitions": 4, "configs": …}
    {"event": "topic_deleted", "org": 1, "name": …}
    {"event": "log_start", "org": 1, "name": …, "generation": 0, "starts": {"<partition>": 17}}
    {"event": "producer_ids", "up_to": …}        lower ids have been, or will be, allocated
    {"event": "producer_ids", "up_to": …, "restored": true}   … before a snapshot was restored
    {"event": "broker_configs", "scope": "cluster" or "own", "configs": {"message.max.bytes": "9"}}
    {"event": "group_configs", "org": 1, "group": …, "configs": {"share.isolation.level": …}}
    {"event": "generations", "from": 3}          every topic gets a generation at or above
    {"event": "journal_start", "name": "__quafka_groups", "start": 17}   of an internal topic
    {"event": "unnamed", "org": 1, "hash": hex, "generation": 0, "partitions": 3}
    {"event": "unnamed_dropped", "org": 1, "hash": hex, "generation": 0}
    {"event": "snapshot", "part": 0, "of": 2, "events": […]}

The parts of a snapshot are consecutive. The last part replaces everything before the first part,
which the events in the parts restate. A snapshot without its last part, left by a crash, has no
effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from quafka_broker.topics.topic import Topic, Unnamed

_STARTS_PER_EVENT = 10_000
_STARTS_PER_WEIGHT = 20  # as large as one topic

Event = dict[str, Any]


def encode_event(event: Event) -> bytes:
    """Encode an event as a record's value."""
    return json.dumps(event, separators=(",", ":")).encode()


def decode_event(value: bytes) -> Event:
    """Decode a result of `encode_event`."""
    return cast(Event, json.loads(value))


# --- one event each -----------------------------------------------------------------------------


def cluster_named(cluster_id: str) -> Event:
    """The event that gives a new cluster its id."""
    return {"event": "cluster", "id": cluster_id}


def topic_created(topic: Topic) -> Event:
    """The event that creates a topic."""
    return {
        "event": "topic_created", "org": topic.org, "name": topic.name, "uuid": topic.uuid.hex(),
        "ulid": topic.ulid, "slug": topic.slug, "generation": topic.generation,
        "partitions": topic.partitions, "created_ms": topic.created_ms,
        "configs": dict(topic.configs),
    }  # fmt: skip


def topic_changed(topic: Topic) -> Event:
    """The event that sets a topic's partitions and configs."""
    return {
        "event": "topic_changed", "org": topic.org, "name": topic.name,
        "generation": topic.generation, "partitions": topic.partitions, "configs": topic.configs,
    }  # fmt: skip


def topic_deleted(topic: Topic) -> Event:
    """The event that deletes a topic."""
    return {"event": "topic_deleted", "org": topic.org, "name": topic.name}


def log_starts_moved(topic: Topic, starts: Mapping[int, int]) -> Iterator[Event]:
    """Events that delete the records below these offsets, by partition."""
    every = iter(starts.items())
    while some := dict(islice(every, _STARTS_PER_EVENT)):
        yield {
            "event": "log_start", "org": topic.org, "name": topic.name,
            "generation": topic.generation,
            "starts": {str(partition): offset for partition, offset in some.items()},
        }  # fmt: skip


def producer_ids_allocated(up_to: int, *, restored: bool = False) -> Event:
    """The event that allocates producer ids; `restored`: the log is a copy (see events above)."""
    event: Event = {"event": "producer_ids", "up_to": up_to}
    return {**event, "restored": True} if restored else event


def broker_configs_changed(scope: str, configs: Mapping[str, str]) -> Event:
    """The event that replaces the broker configs that clients have set in one scope."""
    return {"event": "broker_configs", "scope": scope, "configs": dict(configs)}


def group_configs_changed(org: int, group: str, configs: Mapping[str, str]) -> Event:
    """The event that replaces the configs of a group."""
    return {"event": "group_configs", "org": org, "group": group, "configs": dict(configs)}


def generations_from(generation: int) -> Event:
    """The event that sets a lower bound for the generations of later topics."""
    return {"event": "generations", "from": generation}


def journal_start_moved(name: str, start: int) -> Event:
    """The event that deletes the beginning of an internal topic."""
    return {"event": "journal_start", "name": name, "start": start}


def unnamed_kept(unnamed: Unnamed, partitions: int) -> Event:
    """The event that keeps a topic whose name is lost."""
    return {"event": "unnamed", **_identity(unnamed), "partitions": partitions}


def unnamed_dropped(unnamed: Unnamed) -> Event:
    """The event that drops a topic whose name is lost."""
    return {"event": "unnamed_dropped", **_identity(unnamed)}


def _identity(unnamed: Unnamed) -> Event:
    return {"org": unnamed.org, "hash": unnamed.hash.hex(), "generation": unnamed.generation}


def unnamed_of(event: Event) -> Unnamed:
    """The topic of an `unnamed` or `unnamed_dropped` event."""
    return Unnamed(event["org"], bytes.fromhex(event["hash"]), event["generation"])


# --- snapshots ----------------------------------------------------------------------------------


def snapshot_parts(events: Iterable[Event], per_part: int = 500) -> list[Event]:
    """A snapshot of these events, ready to be recorded in one append.

    A part is itself an event, so it is bounded in bytes: about the size of `per_part` topics.
    """
    parts: list[list[Event]] = []
    weight = per_part
    for event in events:
        if weight >= per_part:
            parts.append([])
            weight = 0
        parts[-1].append(event)
        weight += 1 + len(event.get("starts", ())) // _STARTS_PER_WEIGHT
    return [
        {"event": "snapshot", "part": number, "of": len(parts), "events": part}
        for number, part in enumerate(parts)
    ]


def last_snapshot(events: Sequence[Event]) -> int | None:
    """The beginning of the last complete snapshot, or None.

    Events before it may be missing: they were dead, and their space was freed.
    """
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        first = at - event["of"] + 1 if event["event"] == "snapshot" else -1
        if first < 0 or event["part"] != event["of"] - 1:
            continue
        if [e.get("part") for e in events[first : at + 1]] == list(range(event["of"])):
            return first
    return None
