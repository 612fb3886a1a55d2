"""The topic registry: what topics there are, durable as records of the log itself.

Every change is a JSON event in the internal virtual topic `__quafka_registry` of org 0; replaying
them gives the registry. An event is applied, and answered, after its commit.

    {"event": "cluster", "id": …}
    {"event": "topic_created", "org": 1, "name": …, "uuid": hex, "ulid": "top_…", "slug": …,
     "generation": 0, "partitions": 3, "created_ms": …}
    {"event": "topic_deleted", "org": 1, "name": …}
    {"event": "producer_ids", "up_to": …}        ids below have been, or will be, handed out
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, cast

from quafka_broker.virtual_topics import VirtualTopicId, topic_hash

REGISTRY_ORG = 0
REGISTRY_NAME = "__quafka_registry"
REGISTRY = VirtualTopicId(REGISTRY_ORG, topic_hash(REGISTRY_ORG, REGISTRY_NAME), 0, 0)
MAX_PARTITIONS = 100_000
PRODUCER_ID_BLOCK = 1_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Event = dict[str, Any]


def legal_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `uuid` is what Kafka calls its id; `ulid` is ours, sortable by creation."""

    org: int
    name: str
    uuid: bytes
    ulid: str
    slug: str
    generation: int
    partitions: int
    created_ms: int

    def virtual(self, partition: int) -> VirtualTopicId:
        """The virtual topic of one partition."""
        return VirtualTopicId(self.org, topic_hash(self.org, self.name), partition, self.generation)


class Registry:
    """The state that the events make. Pure; `BrokerState.record` makes changes durable."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.producer_ids_up_to = 0
        self._by_name: dict[tuple[int, str], Topic] = {}
        self._by_id: dict[tuple[int, bytes], Topic] = {}
        self._generations: dict[tuple[int, str], int] = {}

    def by_name(self, org: int, name: str) -> Topic | None:
        """The topic of that name."""
        return self._by_name.get((org, name))

    def by_id(self, org: int, uuid: bytes) -> Topic | None:
        """The topic of that id."""
        return self._by_id.get((org, uuid))

    def topics(self, org: int) -> list[Topic]:
        """An org's topics, by name."""
        mine = [topic for (owner, _), topic in self._by_name.items() if owner == org]
        return sorted(mine, key=lambda topic: topic.name)

    def every_topic(self) -> list[Topic]:
        """All topics of all orgs."""
        return list(self._by_name.values())

    def plan_topic(self, org: int, name: str, partitions: int) -> Topic:
        """A topic as it would be created now."""
        now = time.time_ns() // 1_000_000
        uuid = bytearray(os.urandom(16))
        uuid[6], uuid[8] = uuid[6] & 0x0F | 0x40, uuid[8] & 0x3F | 0x80  # RFC 9562 version 4
        generation = self._generations.get((org, name), -1) + 1
        slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "topic"
        return Topic(org, name, bytes(uuid), f"top_{ulid(now)}", slug, generation, partitions, now)

    def apply(self, event: Event) -> None:
        """Make one event's change.

        Raises:
            ValueError, KeyError, TypeError: it is not an event that this version knows.
        """
        kind = event["event"]
        if kind == "cluster":
            self.cluster_id = event["id"]
        elif kind == "producer_ids":
            self.producer_ids_up_to = event["up_to"]
        elif kind == "topic_created":
            values = {key: value for key, value in event.items() if key != "event"}
            values["uuid"] = bytes.fromhex(event["uuid"])
            topic = Topic(**values)
            self._by_name[topic.org, topic.name] = topic
            self._by_id[topic.org, topic.uuid] = topic
            self._generations[topic.org, topic.name] = topic.generation
        elif kind == "topic_deleted":
            topic = self._by_name.pop((event["org"], event["name"]))
            del self._by_id[topic.org, topic.uuid]
        else:
            raise ValueError(f"the event {kind!r} is not known")


def created(topic: Topic) -> Event:
    """The event that creates a topic."""
    return {"event": "topic_created", **asdict(topic), "uuid": topic.uuid.hex()}


def deleted(topic: Topic) -> Event:
    """The event that deletes a topic."""
    return {"event": "topic_deleted", "org": topic.org, "name": topic.name}


def new_cluster() -> Event:
    """The event that names a new cluster, as Kafka writes such ids."""
    return {"event": "cluster", "id": base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]}


def encode_event(event: Event) -> bytes:
    """An event as a record's value."""
    return json.dumps(event, separators=(",", ":")).encode()


def decode_event(value: bytes) -> Event:
    """Read what `encode_event` wrote."""
    return cast(Event, json.loads(value))


def ulid(now_ms: int, random: Callable[[int], bytes] = os.urandom) -> str:
    """A ULID: 48 bits of time, 80 random bits, in Crockford's base 32."""
    value = now_ms << 80 | int.from_bytes(random(10), "big")
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))
