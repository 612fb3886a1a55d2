"""A random workload on compacted topics, and what a power cut must leave of it.

Keys are put and deleted, transactions end, other topics write between them, and passes run at
random times. A later power cut must not lose the last value of a key, nor bring an older one back.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from quafka_broker.partitions.errors import StorageError
from quafka_broker.topics.topic import Topic
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Faults, Moment, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.unit.broker.compacting import COMPACT, Compacting, Kept, batches_of, compacting, kept_in

SEGMENT_BYTES = 1_500
_KEYS = [b"a", b"b", b"c", b"d"]
_CONFIGS = COMPACT | {"delete.retention.ms": "10", "min.cleanable.dirty.ratio": "0"}


@dataclass(frozen=True)
class Recipe:
    """The parameters of one exploration.

    Attributes:
        turns: the steps of the workload.
        fates: the outcomes tried at each moment.
        full: one in this number of writes finds the disk full.
        second_cuts: one in this number of states is compacted and cut again.
    """

    seed: int
    turns: int = 30
    fates: int = 1
    full: float = 0.0
    second_cuts: float = 0.05


@dataclass
class Put:
    """A record, and the number of disk operations at its answer."""

    kept: Kept
    answered: int


@dataclass
class History:
    """All puts; deletions of records; the partitions' end at each answer."""

    puts: list[Put] = field(default_factory=list[Put])
    asked_start: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Operations, high watermark."""
    created: int = 0


class Workload:
    """One run."""

    def __init__(self, rng: random.Random, disk: RecordedDisk) -> None:
        self._rng = rng
        self._disk = disk
        self.history = History()

    async def run(self, broker: Compacting, turns: int) -> None:
        topic = await _taken(broker, lambda: broker.topic(configs=_CONFIGS))
        other = await _taken(broker, lambda: broker.topic("other", {}))
        self.history.created = len(self._disk.operations)
        for _ in range(turns):
            await self._put(broker, topic)
            broker.now_ms += self._rng.choice((0, 5, 20))
            jobs: list[tuple[Callable[[], Awaitable[Any]], float]] = [
                (lambda: broker.put(other, (None, b"x" * self._rng.randrange(300))), 0.5),
                (lambda: broker.compact(topic), 0.2),
                (broker.state.compaction.compact_due, 0.1),
                (broker.state.log.checkpoint, 0.05),
                (lambda: self._delete(broker, topic), 0.03),
            ]
            for job, chance in jobs:
                if self._rng.random() < chance:
                    try:
                        await job()
                    except (StorageError, OSError):
                        if broker.state.log.failure is not None:
                            return

    async def _put(self, broker: Compacting, topic: Topic) -> None:
        values = [None, *(self._rng.randbytes(size) for size in (1, 40, 200))]
        pairs = [
            (self._rng.choice(_KEYS), self._rng.choice(values))
            for _ in range(self._rng.choice((1, 1, 2, 4)))
        ]
        codec = self._rng.choice((0, 0, 4))
        try:
            offset = await broker.put(topic, *pairs, codec=codec)
        except StorageError:
            return
        answered = len(self._disk.operations)
        for at, (key, value) in enumerate(pairs, offset):
            self.history.puts.append(Put(Kept(at, key, value, broker.now_ms), answered))
        self.history.seen.append((answered, broker.partition(topic).high_watermark))

    async def _delete(self, broker: Compacting, topic: Topic) -> None:
        start = broker.partition(topic).log_start + self._rng.randrange(4)
        start = min(start, broker.partition(topic).high_watermark)
        self.history.asked_start = max(self.history.asked_start, start)
        await broker.state.topics.delete_records({topic: {0: start}})


async def _taken(broker: Compacting, make: Callable[[], Awaitable[Topic]]) -> Topic:
    """The topic, once the disk has room for it."""
    while True:
        try:
            return await make()
        except StorageError:
            if broker.state.log.failure is not None:
                raise


async def verify(broker: Compacting, history: History, operations: int) -> None:
    """Check a cut after a number of operations."""
    topic = next((t for t in broker.state.registry.every_topic() if t.name == "t"), None)
    if topic is None:
        assert history.created > operations
        return
    assert not broker.state.log.damages
    partition = broker.partition(topic)
    assert partition.log_start <= history.asked_start
    for when, high_watermark in history.seen:
        assert when > operations or partition.high_watermark >= high_watermark
    kept = await kept_in(broker.state, partition)
    known = {put.kept.offset: put.kept for put in history.puts}
    there = {each.offset: each for each in kept}
    # The last record may have reached the disk without its answer.
    answered = [p.kept for p in history.puts if p.answered <= operations]
    end = max((each.offset for each in answered), default=-1) + 1
    assert all(known.get(each.offset) == each for each in kept if each.offset < end)
    last = {each.key: each for each in kept}
    first = {each.key: each.offset for each in reversed(kept)}
    for each in answered:
        if each.offset < partition.log_start or each.offset in there:
            continue
        found = last.get(each.key)
        if found is not None and found.offset > each.offset:
            continue  # superseded
        assert each.value is None or any(
            later.key == each.key and later.offset > each.offset for later in answered
        ), f"{each} is lost"
        assert first.get(each.key, end) > each.offset, f"an older value than {each} is back"
    for offset in range(partition.log_start, partition.high_watermark):
        await batches_of(broker.state, partition, offset)


async def explore(recipe: Recipe) -> int:
    """Run the workload, check the state after every cut; returns the number of states.

    Raises:
        AssertionError: a promise was broken; the notes have the cut.
    """
    disk = RecordedDisk()
    rng = random.Random(recipe.seed)
    workload = Workload(rng, disk)
    with no_threads():
        async with compacting(disk, SEGMENT_BYTES) as broker:
            disk.faults = Faults(rng, recipe.full)
            await workload.run(broker, recipe.turns)
    rng = random.Random(recipe.seed + 1)
    checked = 0
    for moment in moments(disk):
        for turn in range(recipe.fates):
            kind = KINDS[(moment.operations * recipe.fates + turn) % len(KINDS)]
            try:
                with no_threads():
                    checked += await _cut(moment, kind, rng, workload.history, recipe)
            except BaseException as e:
                before = disk.operations[max(0, moment.operations - 3) : moment.operations]
                done = [str(operation)[:200] for operation in before]
                e.add_note(f"{recipe}, {moment.operations} operations, {kind}; the last: {done}")
                raise
            await asyncio.sleep(0)
    return checked


async def _cut(
    moment: Moment, kind: str, rng: random.Random, history: History, recipe: Recipe
) -> int:
    left = after_power_cut(moment, Fate(kind, rng), rng)
    again = rng.random() < recipe.second_cuts
    async with compacting(left, SEGMENT_BYTES) as broker:
        await verify(broker, history, moment.operations)
        topic = next((t for t in broker.state.registry.every_topic() if t.name == "t"), None)
        if topic is not None and (again or not rng.randrange(4)):
            await broker.compact(topic)
            await verify(broker, history, moment.operations)
    checked = 1
    for second in moments(left) if again else ():
        twice = after_power_cut(second, Fate(rng.choice(KINDS), rng), rng)
        async with compacting(twice, SEGMENT_BYTES) as broker:
            await verify(broker, history, moment.operations)
        checked += 1
    return checked
