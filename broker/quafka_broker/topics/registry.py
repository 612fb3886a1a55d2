"""The topic registry: what topics there are, durable as records of the log itself.

Every change is a JSON event in the internal virtual topic `__quafka_registry` of org 0; replaying
them gives the registry. An event is applied, and answered, after its commit.

    {"event": "cluster", "id": …}
    {"event": "topic_created", "org": 1, "name": …, "uuid": hex, "ulid": "top_…", "slug": …,
     "generation": 0, "partitions": 3, "created_ms": …, "configs": {"retention.ms": "1000"}}
    {"event": "topic_changed", "org": 1, "name": …, "generation": 0, "partitions": 4, "configs": …}
    {"event": "topic_deleted", "org": 1, "name": …}
    {"event": "log_start", "org": 1, "name": …, "generation": 0, "starts": {"<partition>": 17}}
    {"event": "producer_ids", "up_to": …}        ids below have been, or will be, handed out
    {"event": "broker_configs", "scope": "cluster" or "own", "configs": {"message.max.bytes": "9"}}
    {"event": "producer_ids", "up_to": …, "restored": true}   … before a snapshot was restored
    {"event": "generations", "from": 3}          every topic gets a generation at or above
    {"event": "journal_start", "name": "__quafka_groups", "start": 17}   of an internal topic
    {"event": "unnamed", "org": 1, "hash": hex, "generation": 0, "partitions": 3}
    {"event": "unnamed_dropped", "org": 1, "hash": hex, "generation": 0}
    {"event": "snapshot", "part": 0, "of": 2, "events": […]}

Damage may take events. So a replay accepts the deletion of a topic that it does not know and the
creation of one that it does: the later event wins. A topic whose creation is lost, but not its
records, is *unnamed*: it is kept until its name is known again, or an operator drops it.

The parts of a snapshot follow each other. The last of them replaces everything that came before
the first: the events in them restate it. One that a crash left without its last part is nothing.

A slug is the name in the letters of an RRL. No two topics of an org have the same at a time: who
comes second gets a number. Logs of before that rule are read by it, and give the same every time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count, islice
from typing import Any, NamedTuple, cast

from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.topics.org_topics import OrgTopics
from quafka_proto.errors import ErrorCode

REGISTRY_ORG = 0
REGISTRY_NAME = "__quafka_registry"
REGISTRY = PartitionId(REGISTRY_ORG, topic_hash(REGISTRY_ORG, REGISTRY_NAME), 0, 0)
GROUPS_NAME = "__quafka_groups"
GROUPS = PartitionId(REGISTRY_ORG, topic_hash(REGISTRY_ORG, GROUPS_NAME), 0, 0)
INTERNAL_NAMES = {REGISTRY: REGISTRY_NAME, GROUPS: GROUPS_NAME}
"""The broker's own topics."""
MAX_PARTITIONS = 100_000
"""The most that `max.partitions.per.topic` may be."""
PRODUCER_ID_BLOCK = 1_000
_STARTS_PER_EVENT = 10_000
_STARTS_PER_WEIGHT = 20  # they take as many bytes as one topic
_PRODUCER_IDS = 1 << 32

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

_NOTHING = OrgTopics()

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
    configs: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    """What the topic sets itself; see topic_configs.py."""

    def partition_id(self, partition: int) -> PartitionId:
        """The virtual topic of one partition."""
        return PartitionId(self.org, topic_hash(self.org, self.name), partition, self.generation)

    def has(self, partition: int) -> bool:
        """Whether there is such a partition."""
        return 0 <= partition < self.partitions


class Unnamed(NamedTuple):
    """A topic of which only the records are left: damage took the event that named it.

    Its hash tells whether a name is the right one.
    """

    org: int
    hash: bytes
    generation: int

    def partition_id(self, partition: int) -> PartitionId:
        """The virtual topic of one partition."""
        return PartitionId(self.org, self.hash, partition, self.generation)


def unknown_topic(name: str, uuid: bytes) -> ErrorCode:
    """What is said where there is no topic of that name or, where the name is empty, of that id."""
    by_id = uuid and not name
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Registry:
    """The state that the events make. Pure; `BrokerState` makes changes durable."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.producer_ids_up_to = 0
        self.restored_ids_below = 0
        """Producers with ids below may have written to a log that this one is a copy of."""
        self.journal_starts: dict[str, int] = {}
        """Where internal topics begin, by name."""
        self.unnamed: dict[Unnamed, int] = {}
        """How many partitions are known of each."""
        self.broker_configs: dict[str, dict[str, str]] = {"cluster": {}, "own": {}}
        """What clients have set of the broker, by scope; see broker_configs.py."""
        self._by_name: dict[tuple[int, str], Topic] = {}
        self._by_id: dict[tuple[int, bytes], Topic] = {}
        self._orgs: dict[int, OrgTopics] = {}
        self._slugs: set[tuple[int, str]] = set()
        # By org and base: every number from 2 to below this one is taken.
        self._slug_numbers: dict[tuple[int, str], int] = {}
        self._log_starts: dict[tuple[int, str], dict[int, int]] = {}
        self._next_generation: dict[tuple[int, str], int] = {}
        self._least_generation = 0
        self._staged: list[Event] = []

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
        """What an org's topics are in sum."""
        return self._orgs.get(org, _NOTHING)

    def every_topic(self) -> list[Topic]:
        """All topics of all orgs."""
        return list(self._by_name.values())

    def is_live(self, org: int, name: str, generation: int) -> bool:
        """Whether there is such a topic, or may be: one that has lost its name counts."""
        topic = self._by_name.get((org, name))
        if topic is not None:
            return topic.generation == generation
        found = self.unnamed_of(org, name)
        return found is not None and found.generation == generation

    def unnamed_of(self, org: int, name: str) -> Unnamed | None:
        """The newest topic that has lost its name, if this is the name."""
        if not self.unnamed:
            return None
        key = org, topic_hash(org, name)
        return max((found for found in self.unnamed if found[:2] == key), default=None)

    def log_starts(self, topic: Topic) -> dict[int, int]:
        """Where a topic's partitions begin; those that nothing was deleted from are left out."""
        return self._log_starts.get((topic.org, topic.name), {})

    def plan_topic(
        self, org: int, name: str, partitions: int, configs: dict[str, str] | None = None
    ) -> Topic:
        """A topic as it would be created now."""
        now = time.time_ns() // 1_000_000
        uuid = bytearray(os.urandom(16))
        uuid[6], uuid[8] = uuid[6] & 0x0F | 0x40, uuid[8] & 0x3F | 0x80  # RFC 9562 version 4
        generation = self._next_generation.get((org, name), self._least_generation)
        slug = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "topic"
        return Topic(
            org, name, bytes(uuid), f"top_{ulid(now)}", self._free_slug(org, slug), generation,
            partitions, now, configs or {},
        )  # fmt: skip

    def _free_slug(self, org: int, slug: str) -> str:
        if (org, slug) not in self._slugs:
            return slug
        first = self._slug_numbers.get((org, slug), 2)
        free = next(n for n in count(first) if (org, f"{slug}-{n}") not in self._slugs)
        self._slug_numbers[org, slug] = free
        return f"{slug}-{free}"

    def _release_slug(self, org: int, slug: str) -> None:
        self._slugs.discard((org, slug))
        base, _, number = slug.rpartition("-")
        if number.isdecimal() and int(number) < self._slug_numbers.get((org, base), 0):
            self._slug_numbers[org, base] = max(2, int(number))

    def apply(self, event: Event) -> None:
        """Make one event's change.

        Raises:
            ValueError, KeyError, TypeError: it is not an event that this version knows.
        """
        kind = event["event"]
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
        elif kind == "generations":
            self._least_generation = max(self._least_generation, event["from"])
        elif kind == "journal_start":
            self.journal_starts[event["name"]] = event["start"]
        else:
            self._apply_to_topic(kind, event)

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
            self.unnamed[_unnamed_of(event)] = event["partitions"]
        elif kind == "unnamed_dropped":
            self.unnamed.pop(_unnamed_of(event), None)
        else:
            raise ValueError(f"the event {kind!r} is not known")

    def _create(self, event: Event) -> None:
        self._delete(event["org"], event["name"])
        values = {key: value for key, value in event.items() if key != "event"}
        values["uuid"] = bytes.fromhex(event["uuid"])
        values["slug"] = self._free_slug(event["org"], event["slug"])
        topic = Topic(**values)
        self._put(topic)
        self._slugs.add((topic.org, topic.slug))
        self._next_generation[topic.org, topic.name] = topic.generation + 1
        if self.unnamed:
            hash_ = topic_hash(topic.org, topic.name)
            self.unnamed.pop(Unnamed(topic.org, hash_, topic.generation), None)

    def _delete(self, org: int, name: str) -> None:
        topic = self._by_name.pop((org, name), None)
        if topic is not None:
            del self._by_id[topic.org, topic.uuid]
            self._orgs[org].remove(topic)
            self._release_slug(topic.org, topic.slug)
            self._log_starts.pop((topic.org, topic.name), None)

    def _put(self, topic: Topic) -> None:
        before = self._by_name.get((topic.org, topic.name))
        self._orgs.setdefault(topic.org, OrgTopics()).put(before, topic)
        self._by_name[topic.org, topic.name] = topic
        self._by_id[topic.org, topic.uuid] = topic

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
        """How many events it takes to restate this registry."""
        others = len(self.journal_starts) + len(self.unnamed)
        return 4 + len(self._by_name) + len(self._log_starts) + others

    def restate(self) -> Iterator[Event]:
        """Events that make this registry."""
        yield {"event": "cluster", "id": self.cluster_id}
        yield {"event": "producer_ids", "up_to": self.producer_ids_up_to}
        if self.restored_ids_below:
            yield {"event": "producer_ids", "up_to": self.restored_ids_below, "restored": True}
        for scope, configs in self.broker_configs.items():
            if configs:
                yield broker_configs_event(scope, configs)
        # The generations of deleted topics need not be known one by one: the highest will do.
        gone = [g for key, g in self._next_generation.items() if key not in self._by_name]
        yield {"event": "generations", "from": max([*gone, self._least_generation])}
        for name, start in self.journal_starts.items():
            yield {"event": "journal_start", "name": name, "start": start}
        for unnamed, partitions in self.unnamed.items():
            yield kept_unnamed(unnamed, partitions)
        for topic in self._by_name.values():
            yield created(topic)
            yield from log_start_events(topic, self.log_starts(topic))

    def _stage(self, part: Event) -> None:
        if part["part"] == 0:
            self._staged = []
        if part["part"] != len(self._staged):
            self._staged = []  # a part before it is lost: the events before the snapshot count
            return
        self._staged.append(part)
        if len(self._staged) < part["of"]:
            return
        fresh = Registry()
        for staged in self._staged:
            for event in staged["events"]:
                fresh.apply(event)
        vars(self).update(vars(fresh))


def snapshot_parts(events: Iterable[Event], per_part: int = 500) -> list[Event]:
    """A snapshot of those events, ready to be recorded in one append.

    A part is an event itself, so it is bounded in bytes: about as many as `per_part` topics take.
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
    """Where the last whole snapshot begins; None where there is none.

    What lies before may have lost some of its events: they were dead, and their space was freed.
    """
    for at in range(len(events) - 1, -1, -1):
        event = events[at]
        first = at - event["of"] + 1 if event["event"] == "snapshot" else -1
        if first < 0 or event["part"] != event["of"] - 1:
            continue
        if [e.get("part") for e in events[first : at + 1]] == list(range(event["of"])):
            return first
    return None


def created(topic: Topic) -> Event:
    """The event that creates a topic."""
    return {"event": "topic_created", **asdict(topic), "uuid": topic.uuid.hex()}


def changed(topic: Topic) -> Event:
    """The event that gives a topic the partitions and configs that this one has."""
    return {
        "event": "topic_changed", "org": topic.org, "name": topic.name,
        "generation": topic.generation, "partitions": topic.partitions, "configs": topic.configs,
    }  # fmt: skip


def deleted(topic: Topic) -> Event:
    """The event that deletes a topic."""
    return {"event": "topic_deleted", "org": topic.org, "name": topic.name}


def broker_configs_event(scope: str, configs: Mapping[str, str]) -> Event:
    """The event that replaces what clients have set of the broker in one scope."""
    return {"event": "broker_configs", "scope": scope, "configs": dict(configs)}


def log_start_events(topic: Topic, starts: Mapping[int, int]) -> Iterator[Event]:
    """Events that delete the records below these offsets, by partition."""
    every = iter(starts.items())
    while some := dict(islice(every, _STARTS_PER_EVENT)):
        yield {
            "event": "log_start", "org": topic.org, "name": topic.name,
            "generation": topic.generation,
            "starts": {str(partition): offset for partition, offset in some.items()},
        }  # fmt: skip


def kept_unnamed(unnamed: Unnamed, partitions: int) -> Event:
    """The event that keeps a topic whose name is lost."""
    return {"event": "unnamed", **_identity(unnamed), "partitions": partitions}


def dropped_unnamed(unnamed: Unnamed) -> Event:
    """The event that gives up a topic whose name is lost."""
    return {"event": "unnamed_dropped", **_identity(unnamed)}


def _identity(unnamed: Unnamed) -> Event:
    return {"org": unnamed.org, "hash": unnamed.hash.hex(), "generation": unnamed.generation}


def _unnamed_of(event: Event) -> Unnamed:
    return Unnamed(event["org"], bytes.fromhex(event["hash"]), event["generation"])


def producer_id_space(cluster_id: str) -> range:
    """The producer ids that are this broker's to hand out, and no other's.

    A producer may write through one gateway to several brokers with the id that one of them gave:
    were it another producer's as well, the third would take new batches for repeated ones. The
    upper 31 bits are a digest of the cluster's id, which is random and stays with the log.
    """
    digest = hashlib.sha256(f"producer ids of {cluster_id}".encode()).digest()
    first = (int.from_bytes(digest[:4], "big") >> 1) * _PRODUCER_IDS
    return range(first, first + _PRODUCER_IDS)


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
