"""Cuts the power at every operation of share groups, and checks what is delivered afterwards.

Members take records, accept, reject and release them, and give them back. A record whose accept or
reject was answered is never delivered again. Every other durable record that nobody asked to end is
delivered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from quafka_broker.ops import shares
from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_mesh_ops.ops.shares import (
    EARLIEST,
    AcknowledgedBatch,
    AcknowledgeRecords,
    AcquireRecords,
    PartitionAcknowledgements,
    ReleaseRecords,
    ShareConfigs,
    SharePlace,
)
from quafka_proto.schema.share_fetch import AcquiredRecords
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Faults, Moment, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.unit.broker.tools import ORG, checked, context, running_state

SEGMENT_BYTES = 3_000
CHECKPOINT_BYTES = 2_000
EVENTS_KEPT = 8
MEMBERS = ("a", "b")
GROUP = "g"
CONFIGS = ShareConfigs(reset=EARLIEST, most_deliveries=1_000)
ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass
class History:
    """Operations of the disk at the answers: of the topic, of records and of their ends.

    Attributes:
        asked: operations when it was first asked to end a record.
    """

    created: int = 1 << 62
    produced: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """The parameters of one exploration; see `explorer.Recipe`."""

    seed: int
    turns: int = 8
    fates: int = 1
    full: float = 0.0
    sync: float = 0.0


class Workload:
    """One run, drawn from a random source, on a disk that records."""

    def __init__(self, rng: random.Random, disk: RecordedDisk) -> None:
        self._rng = rng
        self._disk = disk
        self.history = History()
        self._held: dict[str, list[int]] = {member: [] for member in MEMBERS}

    @property
    def _now(self) -> int:
        return len(self._disk.operations)

    async def run(self, state: BrokerState, turns: int) -> None:
        topic = await self._create(state)
        if topic is None:
            return
        self.history.created = self._now
        for _ in range(turns):
            if state.log.failure is not None:
                return
            await self._produce(state, topic)
            await asyncio.gather(*(self._consume(state, member) for member in MEMBERS))
            if self._rng.random() < 0.4:
                with suppress(StorageError):
                    await state.shares.journal.shorten()
            if self._rng.random() < 0.3:
                await self._rewrite(state)

    async def _create(self, state: BrokerState) -> Topic | None:
        while state.log.failure is None:  # the disk may be full
            with suppress(StorageError):
                return (await state.topics.create(ORG, "t", 1))[0]
        return None

    async def _rewrite(self, state: BrokerState) -> None:
        work = state.log.rewrite_task(
            RewritePolicy(bytes_per_second=1 << 40), lambda: state.journal.deletions
        )
        await work.run_once()
        await work.close()

    async def _produce(self, state: BrokerState, topic: Topic) -> None:
        partition = state.log.partitions.get(topic.partition_id(0))
        values = [b"record"] * self._rng.randint(1, 6)
        with suppress(StorageError):
            (first,) = await state.log.queue.append(partition, checked(*values))
            self.history.produced.update(
                dict.fromkeys(range(first, first + len(values)), self._now)
            )

    async def _consume(self, state: BrokerState, member: str) -> None:
        rng, held = self._rng, self._held[member]
        held += _offsets(await acquire(state, member, rng.randint(1, 6)))
        if rng.random() < 0.1:
            await shares.release(state, context(), ReleaseRecords(GROUP, member, []))
            held.clear()
            return
        done = rng.sample(held, rng.randint(0, len(held)))
        kinds = {at: rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for at in sorted(done)}
        ends = [at for at, kind in kinds.items() if kind != RELEASE]
        for at in ends:
            self.history.asked.setdefault(at, self._now)
        if kinds and await acknowledge(state, member, kinds) == 0:
            self.history.ended.update(dict.fromkeys(ends, self._now))
        held[:] = [at for at in held if at not in kinds]


async def acquire(
    state: BrokerState, member: str, most: int, topic: str = "t"
) -> list[AcquiredRecords]:
    """What a member gets."""
    op = AcquireRecords(
        GROUP, member, [SharePlace(topic, 0)], max_records=most, exact=True, configs=CONFIGS
    )
    return (await shares.acquire(state, context(), op)).partitions[0].acquired


def _offsets(ranges: Iterable[AcquiredRecords]) -> list[int]:
    return [at for each in ranges for at in range(each.first_offset, each.last_offset + 1)]


async def acknowledge(
    state: BrokerState, member: str, kinds: dict[int, int], topic: str = "t"
) -> int:
    """The error of acknowledgements, by offset."""
    batches = [AcknowledgedBatch(at, at, bytes([kind])) for at, kind in kinds.items()]
    parts = [PartitionAcknowledgements(topic, 0, batches)]
    op = AcknowledgeRecords(GROUP, member, parts, CONFIGS)
    return (await shares.acknowledge(state, context(), op)).partitions[0]


async def explore(recipe: Recipe) -> int:
    """Run the workload, check the state after every cut; returns the number of states.

    Raises:
        AssertionError: a promise was broken; the notes have the cut.
    """
    rng, disk = random.Random(recipe.seed), RecordedDisk()
    workload = Workload(rng, disk)
    async with running_state(
        disk, segment_bytes=SEGMENT_BYTES, checkpoint_bytes=CHECKPOINT_BYTES
    ) as state:
        state.shares.journal.events_kept = EVENTS_KEPT
        disk.faults = Faults(rng, recipe.full, recipe.sync)
        await workload.run(state, recipe.turns)
    checked_ = 0
    for moment in moments(disk):
        if moment.operations < workload.history.created:
            continue
        for turn in range(recipe.fates):
            kind = KINDS[(moment.operations * recipe.fates + turn) % len(KINDS)]
            try:
                with no_threads():
                    await _cut(moment, kind, rng, workload.history)
            except BaseException as e:
                e.add_note(f"{recipe}, {moment.operations} operations, {kind}")
                raise
            checked_ += 1
    return checked_


async def _cut(moment: Moment, kind: str, rng: random.Random, history: History) -> None:
    left = after_power_cut(moment, Fate(kind, rng), rng)
    async with running_state(left, segment_bytes=SEGMENT_BYTES) as state:
        delivered: set[int] = set()
        while found := _offsets(await acquire(state, "new", 1_000)):
            assert delivered.isdisjoint(found)
            delivered |= set(found)
        for at, when in history.ended.items():
            assert when > moment.operations or at not in delivered, f"{at} is delivered again"
        for at, when in history.produced.items():
            open_ = history.asked.get(at, 1 << 62) > moment.operations
            assert when > moment.operations or not open_ or at in delivered, f"{at} is lost"
