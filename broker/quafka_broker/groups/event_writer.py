"""Writes events of the groups' journal to the log, in order, and tracks unfinished writes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from quafka_broker.groups.event_codec import encode
from quafka_broker.groups.table import Commit, Event, Fact, Key, Part, size_of
from quafka_broker.journals import event_batches
from quafka_broker.journals.internal_topics import GROUPS
from quafka_broker.partitions.outcome import Outcome, Settle
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_proto.records import BatchHeader

_BYTES_AT_ONCE = 256 << 10
"""Bytes of events that are encoded without yielding."""


class Written(NamedTuple):
    """Events on their way to the log.

    Attributes:
        appended: returns the offset of each batch. Cancelling it withdraws nothing.
        places: where each event begins, counted from the first batch's offset.
    """

    appended: asyncio.Future[list[int]]
    places: list[int]


class EventWriter:
    """Appends events in the order of the calls. For one event loop."""

    def __init__(self, wal: Log) -> None:
        self._wal = wal
        self._queue: deque[tuple[list[Event], Written, Settle]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._begun = self._settled = 0  # writes; they are settled in their order
        self._progress = asyncio.Event()

    def write(self, events: list[Event], settle: Settle | None = None) -> Written:
        """Put events into the log, after all earlier ones. `settle`: see `AppendQueue.append`.

        Long events are encoded in slices. Until they are in the log, later events wait for them.
        """
        self._begun += 1
        settle = partial(self._settle, settle)
        if self._task is None and sum(map(size_of, events)) <= _BYTES_AT_ONCE:
            places: list[int] = []
            batches = chain.from_iterable(_encoded(events, places))
            partition = self._wal.partitions.get(GROUPS)
            return Written(self._wal.queue.append(partition, list(batches), settle=settle), places)
        written = Written(asyncio.get_running_loop().create_future(), [])
        self._queue.append((events, written, settle))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_queue())
        return written

    async def encoded(self, event: Event) -> list[tuple[BatchHeader, memoryview]]:
        """Encode an event as batches for the caller to append; long events in slices."""
        found: list[tuple[BatchHeader, memoryview]] = []
        for some in _encoded([event], []):
            found += some
            if size_of(event) > _BYTES_AT_ONCE:
                await asyncio.sleep(0)
        return found

    def _settle(self, settle: Settle | None, outcome: Outcome) -> None:
        self._settled += 1
        self._progress.set()
        self._progress.clear()
        if settle is not None:
            settle(outcome)

    async def all_settled(self) -> None:
        """Wait until the events now on their way are in the log, or refused."""
        begun = self._begun
        while self._settled < begun:
            await self._progress.wait()

    async def _write_queue(self) -> None:
        """Write the queued events, and wait for all of their answers: an event that is written
        directly must not be answered before queued ones that precede it."""
        while self._queue:
            events, (answer, places), settle = self._queue.popleft()
            batches: list[tuple[BatchHeader, memoryview]] = []
            for some in _encoded(events, places):
                batches += some
                await asyncio.sleep(0)
            appended = self._wal.queue.append(
                self._wal.partitions.get(GROUPS), batches, settle=settle
            )
            appended.add_done_callback(partial(_pass_on, answer))
            if not self._queue:
                await asyncio.wait([appended])
        self._task = None

    async def close(self) -> None:
        """Write the queued events."""
        if self._task is not None:
            await self._task


def _encoded(
    events: list[Event], places: list[int]
) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
    """Events as batches, generated lazily. Adds where each event begins to `places`."""

    def values() -> Iterator[bytes]:
        count = 0
        for event in events:
            places.append(count)
            for value in encode(event):
                count += 1
                yield value

    return event_batches.batches(values(), clock.time_ns() // 1_000_000, most=_BYTES_AT_ONCE)


def _pass_on(answer: asyncio.Future[list[int]], appended: asyncio.Future[list[int]]) -> None:
    if answer.done():
        return
    error = None if appended.cancelled() else appended.exception()
    if error is not None:
        answer.set_exception(error)
        answer.exception()  # marks it as seen: its caller may be gone
    elif appended.cancelled():
        answer.cancel()
    else:
        answer.set_result(appended.result())


class QueuedEvents:
    """The events that are on their way to the log, by group."""

    def __init__(self) -> None:
        self._by_group: dict[Key, dict[int, tuple[Event, Container[Part]]]] = {}
        """The events of each group by their identity: a group may have thousands on their way."""

    def add(self, key: Key, event: Event) -> None:
        """Add an event that is on its way."""
        self._by_group.setdefault(key, {})[id(event)] = event, _changes(event)

    def remove(self, key: Key, event: Event) -> None:
        """Remove an event that is in the log, or failed."""
        queued = self._by_group[key]
        del queued[id(event)]
        if not queued:
            del self._by_group[key]

    def has_group(self, key: Key) -> bool:
        """Whether events of a group are on their way."""
        return key in self._by_group

    def has_fact(self, fact: Fact) -> bool:
        """Whether an event that changes this fact is on its way."""
        return any(fact[1] in changed for _, changed in self._by_group.get(fact[0], {}).values())


class _Everything:
    """Contains every fact of a group."""

    def __contains__(self, part: object) -> bool:
        return True


class _StateAndMembers:
    """Contains every fact of a group but its offsets."""

    def __contains__(self, part: object) -> bool:
        return part is None or isinstance(part, str)


_STATE_AND_MEMBERS = _StateAndMembers()


def _changes(event: Event) -> Container[Part]:
    """The facts of its group that an event changes."""
    kind = event["event"]
    if kind == "group_deleted":
        return _Everything()
    if kind == "group":
        return _STATE_AND_MEMBERS
    if kind == "group_members":
        own: set[Part] = set() if event["own"] is None else {None}
        return own | {member_id for member_id, _ in event["members"]} | set(event["gone"])
    if kind == "offsets_deleted":
        return {(topic, partition) for topic, partition in event["partitions"]}
    found: Commit | list[list[Any]] = event["offsets"]
    if isinstance(found, Commit):
        return found.offsets
    return {(topic, partition) for topic, _, partition, *_ in found}
