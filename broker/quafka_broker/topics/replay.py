"""Rebuilding the topic registry, also where damage has taken some of its events (docs/adr/0029).

The registry is in two places: its events are in the log, and each checkpoint has a copy. A replay
begins with the last whole snapshot in the log or with the copy, whichever is newer, and applies
the events behind it. Damage before that place costs nothing.

What damage takes behind it is lost. Then nothing is deleted for want of an event: a virtual topic
is dropped only if the registry explains why it is not live.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import GROUPS, GROUPS_NAME, REGISTRY
from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.topics import events as registry_events
from quafka_broker.topics.events import Event
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Unnamed
from quafka_broker.wal.log import Log

log = logging.getLogger("quafka.broker.registry")

SECTION = "registry/1"
"""Of a checkpoint: a block [offset, global id], then blocks [[event, …]] that restate the registry.

Events below `offset` are in it; records below the global id are of topics that are in it, or gone.
"""


class BadRegistryError(Exception):
    """The registry's events are not what this version writes."""


class Pin(NamedTuple):
    """Where the next replay has to begin: before a gap that may yet be closed."""

    offset: int
    global_id: int


@dataclass(slots=True)
class Replay:
    """What a replay found, beside the registry itself.

    Attributes:
        begin: where the events that count begin in the log; None: as the log has it.
        applied: events below this offset are in the registry.
        superseded: events since the last snapshot.
        lost: how many events behind the base are lost.
        pin: set while the log has a gap.
        global_id: records below it are of topics that the base has, or that were deleted.
    """

    begin: int | None = None
    applied: int = 0
    superseded: int = 0
    lost: int = 0
    pin: Pin | None = None
    global_id: int = 0
    names: dict[tuple[int, bytes], str] = field(default_factory=dict[tuple[int, bytes], str])
    changed: dict[Unnamed, Event] = field(default_factory=dict[Unnamed, Event])
    gone: dict[tuple[int, bytes], int] = field(default_factory=dict[tuple[int, bytes], int])

    @property
    def is_new(self) -> bool:
        """Whether there was nothing to replay."""
        return not self.applied

    def note(self, event: Event, global_id: int) -> None:
        """Remember what an event says of a topic's name."""
        if "name" not in event or "org" not in event:
            return
        key = event["org"], topic_hash(event["org"], event["name"])
        self.names[key] = event["name"]
        if event["event"] == "topic_deleted":
            self.gone[key] = global_id
        elif event["event"] == "topic_changed":
            self.changed[Unnamed(*key, event["generation"])] = event
        elif event["event"] == "log_start":
            self.changed.setdefault(Unnamed(*key, event["generation"]), event)


async def replay(wal: Log, registry: Registry) -> Replay:
    """Fill an empty registry from the log and the checkpoint's copy.

    Raises:
        StorageError: the log cannot be read.
        BadRegistryError: an event cannot be understood.
    """
    found = Replay()
    copy = wal.kept_section(SECTION)
    start = copy[0][0] if copy else 0
    await verify(wal, REGISTRY, start)
    events, gaps = await _recorded(wal, start)
    snapshot = registry_events.last_snapshot([event for _, event in events])
    partition = wal.partition(REGISTRY)
    if snapshot is not None:
        found.begin = events[snapshot][0]
        found.global_id = partition.global_id_at(found.begin)
    elif copy:
        found.global_id = copy[0][1]
        _apply_all(registry, start, (event for (some,) in copy[1:] for event in some))
    base = start if found.begin is None else found.begin
    behind = [gap for gap in gaps if gap.end > base]
    found.lost = sum(gap.end - gap.first for gap in behind)
    for offset, event in events:
        global_id = partition.global_id_at(offset)
        with _understood(offset):
            found.note(event, global_id)
            if offset >= base:
                registry.apply(event)
    found.superseded = len(events) - (snapshot or 0)
    # The log may have lost its last events without a trace; their offsets are not used again.
    if start > partition.high_watermark:
        wal.advance_log_start(REGISTRY, start)
    found.applied = partition.high_watermark
    for gap in behind:
        log.error("events %d to %d of the topic registry are lost", gap.first, gap.end - 1)
        if not gap.settled and found.pin is None:
            found.pin = Pin(max(base, gap.first), found.global_id)
    return found


async def _recorded(wal: Log, start: int) -> tuple[list[tuple[int, Event]], list[Gap]]:
    """The registry's events with their offsets, and what is missing between them."""
    events: list[tuple[int, Event]] = []
    gaps: list[Gap] = []
    async for found in read_values(wal, REGISTRY, start):
        if isinstance(found, Gap):
            gaps.append(found)
        else:
            with _understood(found.offset):
                events.append((found.offset, registry_events.decode_event(found.data)))
    return events, gaps


def _apply_all(registry: Registry, offset: int, events: Iterable[Event]) -> None:
    with _understood(offset):
        for event in events:
            registry.apply(event)


@contextmanager
def _understood(offset: int) -> Generator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as e:
        raise BadRegistryError(f"event {offset} of the topic registry is bad: {e!r}") from e


def live_topics(
    wal: Log, registry: Registry, found: Replay
) -> Iterator[tuple[PartitionId, int | None]]:
    """Every virtual topic that is to be kept, and where it begins (None: as the log has it).

    Where events of the registry are lost, so may be some that moved log starts: then records that
    are missing at the front are taken to have been deleted.
    """
    yield REGISTRY, found.begin
    yield (
        GROUPS,
        _start(wal, GROUPS, registry.journal_starts.get(GROUPS_NAME), found),
    )
    for topic in registry.every_topic():
        starts = registry.log_starts(topic)
        for partition in range(topic.partitions):
            id_ = topic.partition_id(partition)
            yield id_, _start(wal, id_, starts.get(partition, 0), found)
    unnamed = registry.unnamed
    for id_ in wal.partition_ids():
        if Unnamed(id_.org_id, id_.topic_hash, id_.generation) in unnamed:
            yield id_, None


def _start(wal: Log, id_: PartitionId, start: int | None, found: Replay) -> int | None:
    if start is None or (found.lost and wal.offsets(id_)[0] >= start):
        return None
    return start


def copy_of(events: Iterable[Event], at: Pin, per_block: int) -> Iterator[list[Any]]:
    """The blocks of a checkpoint's copy."""
    yield list(at)
    some: list[Event] = []
    for event in events:
        some.append(event)
        if len(some) == per_block:
            yield [some]
            some = []
    yield [some]
