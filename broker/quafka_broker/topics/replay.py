"""Rebuilds the topic registry, even if some of its events are damaged (docs/adr/0029).

The registry is in two places: the log has its events, and each checkpoint has a copy. A replay
begins with the last complete snapshot in the log or with the copy, whichever is newer, and applies
the events after it. Damage before that place has no effect.

Damage after that place loses events; lost_events.py finds the topics concerned.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quafka_broker.journals.event_reader import Gap, read_values, verify
from quafka_broker.journals.internal_topics import INTERNAL_NAMES, REGISTRY
from quafka_broker.partitions.partition import PartitionId, topic_hash
from quafka_broker.topics import events as registry_events
from quafka_broker.topics.events import Event
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Unnamed
from quafka_broker.wal.log import Log

log = logging.getLogger("quafka.broker.registry")

SECTION = "registry/1"
"""Of a checkpoint: a block [offset, global id], then blocks [[event, …]] that restate the registry.

The copy includes the events below `offset`; records below the global id belong to topics in the
copy, or to deleted ones.
"""

OR_LATER = ", or a later version of Quafka wrote it"


class BadRegistryError(Exception):
    """An event of the registry that this version cannot decode."""


class Pin(NamedTuple):
    """The beginning of the next replay: before a gap that a copy of the disk may close."""

    offset: int
    global_id: int


@dataclass(slots=True)
class Replay:
    """The findings of a replay, in addition to the registry.

    Attributes:
        begin: the log start of the registry's events; None: unchanged.
        applied: events below this offset are in the registry.
        superseded: events since the last snapshot.
        lost: number of lost events after the base.
        pin: set while the log has a gap.
        global_id: records below it belong to topics in the base, or to deleted ones.
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
        """Whether the registry had no events."""
        return not self.applied

    def record_name(self, event: Event, global_id: int) -> None:
        """Record the topic name in an event, if it has one."""
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
    copy = wal.sections.kept(SECTION)
    start = copy[0][0] if copy else 0
    await verify(wal, REGISTRY, start)
    events, gaps = await _recorded(wal, start)
    snapshot = registry_events.last_snapshot([event for _, event in events])
    partition = wal.partitions.get(REGISTRY)
    if snapshot is not None:
        found.begin = events[snapshot][0]
        found.global_id = partition.global_id_at(found.begin)
    elif copy:
        found.global_id = copy[0][1]
        _apply_all(registry, start, (event for (some,) in copy[1:] for event in some))
    base = start if found.begin is None else found.begin
    missing = [gap for gap in gaps if gap.end > base]
    found.lost = sum(gap.end - gap.first for gap in missing)
    for offset, event in events:
        global_id = partition.global_id_at(offset)
        with _understood(offset):
            found.record_name(event, global_id)
            if offset >= base:
                registry.apply(event)
    found.superseded = len(events) - (snapshot or 0)
    # The log may have lost its last events without a trace; their offsets are not used again.
    if start > partition.high_watermark:
        wal.partitions.advance_log_start(REGISTRY, start)
    found.applied = partition.high_watermark
    for gap in missing:
        log.error("events %d to %d of the topic registry are lost", gap.first, gap.end - 1)
        if not gap.settled and found.pin is None:
            found.pin = Pin(max(base, gap.first), found.global_id)
    return found


async def _recorded(wal: Log, start: int) -> tuple[list[tuple[int, Event]], list[Gap]]:
    """The registry's events with their offsets, and the gaps between them."""
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
        what = f"event {offset} of the topic registry is bad{OR_LATER}"
        raise BadRegistryError(f"{what}: {e!r}") from e


def live_topics(
    wal: Log, registry: Registry, found: Replay
) -> Iterator[tuple[PartitionId, int | None]]:
    """Every live partition and its log start (None: as in the log).

    Lost events may have moved log starts. So if events are lost, records that are missing at the
    front of a partition count as deleted.
    """
    yield REGISTRY, found.begin
    for id_, name in INTERNAL_NAMES.items():
        if id_ != REGISTRY:
            yield id_, _start(wal, id_, registry.journal_starts.get(name), found)
    for topic in registry.every_topic():
        starts = registry.log_starts(topic)
        for partition in range(topic.partitions):
            id_ = topic.partition_id(partition)
            yield id_, _start(wal, id_, starts.get(partition, 0), found)
    unnamed = registry.unnamed
    for id_ in wal.partitions.ids():
        if Unnamed(id_.org_id, id_.topic_hash, id_.generation) in unnamed:
            yield id_, None


def _start(wal: Log, id_: PartitionId, start: int | None, found: Replay) -> int | None:
    if start is None or (found.lost and wal.partitions.offsets(id_)[0] >= start):
        return None
    return start


def copy_of(events: Iterable[Event], at: Pin, per_block: int) -> Iterator[list[Any]]:
    """The blocks of a copy for a checkpoint."""
    yield list(at)
    some: list[Event] = []
    for event in events:
        some.append(event)
        if len(some) == per_block:
            yield [some]
            some = []
    yield [some]
