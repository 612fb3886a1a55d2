"""Cuts the power at every operation of transactions, and checks what read_committed readers see.

Each sender runs one transaction after the other: records in several partitions, and an offset of
its group. A transaction whose end was answered has that outcome; every other one is there in all
partitions and in the group, or nowhere. No last stable offset is below one that a reader saw, and
new sessions leave none behind.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState
from quafka_broker.wal.rewrite_task import RewritePolicy
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Faults, Moment, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.unit.broker.tools import running_state
from tests.unit.broker.transactional import Sender, committed_offset, create, fetch, read

SEGMENT_BYTES = 4_000
CHECKPOINT_BYTES = 3_000
EVENTS_KEPT = 12
PARTITIONS = 3
SENDERS = 3


@dataclass
class Sent:
    """One transaction: its values by partition, its offset, and the operations at its answer."""

    commit: bool
    values: dict[int, list[bytes]] = field(default_factory=dict)
    offset: int = -1
    answered: int | None = None


@dataclass
class History:
    """The transactions of each sender, in order, and the last stable offsets that were seen."""

    sent: list[list[Sent]] = field(default_factory=lambda: [[] for _ in range(SENDERS)])
    stable: list[tuple[int, int, int]] = field(default_factory=list)
    created: int = 1 << 62


@dataclass(frozen=True)
class Recipe:
    """The parameters of one exploration; see `explorer.Recipe`."""

    seed: int
    turns: int = 5
    fates: int = 2
    full: float = 0.0
    sync: float = 0.0


class Workload:
    """One run, drawn from a random source, on a disk that records."""

    def __init__(self, rng: random.Random, disk: RecordedDisk) -> None:
        self._rng = rng
        self._disk = disk
        self.history = History()

    async def run(self, state: BrokerState, turns: int) -> None:
        while await create(state, partitions=PARTITIONS):  # the disk may be full
            if state.log.failure is not None:
                return
        self.history.created = len(self._disk.operations)
        senders = [Sender(state, f"tx{n}", implicit=bool(n % 2)) for n in range(SENDERS)]
        for _ in range(turns):
            if state.log.failure is not None:
                return
            await asyncio.gather(*[self._transact(state, n, s) for n, s in enumerate(senders)])
            if self._rng.random() < 0.4:
                with suppress(StorageError):
                    await state.transactions.shorten()
            if self._rng.random() < 0.4:
                await self._rewrite(state)

    async def _rewrite(self, state: BrokerState) -> None:
        work = state.log.rewrite_task(
            RewritePolicy(bytes_per_second=1 << 40), lambda: state.journal.deletions
        )
        await work.run_once()
        await work.close()

    async def _transact(self, state: BrokerState, number: int, sender: Sender) -> None:
        """One transaction, or as much of it as the disk takes; a new session after a failure."""
        rng, mine = self._rng, self.history.sent[number]
        if sender.id < 0 and await sender.init():
            return
        sent = Sent(commit=rng.random() < 0.6)
        mine.append(sent)
        for partition in rng.sample(range(PARTITIONS), rng.randint(0, PARTITIONS)):
            values = [b"%d/%d/%d" % (number, len(mine), n) for n in range(rng.randint(1, 3))]
            sent.values[partition] = values
            errors = [] if sender.implicit else await sender.add("t", partition)
            if any(errors) or (await sender.send("t", partition, *values)).error_code:
                sender.id = -1
                return
        if rng.random() < 0.6:
            sent.offset = len(mine)
            if await sender.offsets(sent.offset, group=f"g{number}"):
                sender.id = -1
                return
        if rng.random() < 0.1:
            sender.id = -1  # the next session aborts it
            return
        if await sender.end(commit=sent.commit):
            sender.id = -1
            return
        sent.answered = len(self._disk.operations)
        for partition in range(PARTITIONS):
            found = await fetch(state, partition=partition, committed=True)
            self.history.stable.append((sent.answered, partition, found.last_stable_offset))


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
        state.transactions.events_kept = EVENTS_KEPT
        disk.faults = Faults(rng, recipe.full, recipe.sync)
        await workload.run(state, recipe.turns)
    checked = 0
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
            checked += 1
    return checked


async def _cut(moment: Moment, kind: str, rng: random.Random, history: History) -> None:
    left = after_power_cut(moment, Fate(kind, rng), rng)
    async with running_state(left, segment_bytes=SEGMENT_BYTES) as state:
        for when, partition, stable in history.stable:
            if when <= moment.operations:
                found = await fetch(state, partition=partition, committed=True)
                assert found.last_stable_offset >= stable, "a last stable offset has gone back"
        for number in range(SENDERS):  # until then, open transactions hide others behind them
            assert not await Sender(state, f"tx{number}").init()
        for partition in range(PARTITIONS):
            found = await fetch(state, partition=partition, committed=True)
            assert found.last_stable_offset == found.high_watermark
        await _verify(state, history, moment.operations)


async def _verify(state: BrokerState, history: History, operations: int) -> None:
    seen = [await read(state, partition=partition) for partition in range(PARTITIONS)]
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for number, mine in enumerate(history.sent):
        offset = (await committed_offset(state, group=f"g{number}"))[0]
        committed = [_committed(sent, seen, offset, operations) for sent in mine]
        offsets = [s.offset for s, there in zip(mine, committed, strict=True) if there]
        assert offset == max(offsets, default=-1), "offsets and records differ"
        for sent, there in zip(mine, committed, strict=True):
            for partition, values in sent.values.items() if there else ():
                expected[partition] += values
    for partition, values in enumerate(seen):
        assert sorted(values) == sorted(expected[partition])
        for number in range(SENDERS):
            prefix = b"%d/" % number
            found = [value for value in values if value.startswith(prefix)]
            sent_ = [value for value in expected[partition] if value.startswith(prefix)]
            assert found == sent_, "records are in another order"


def _committed(sent: Sent, seen: list[list[bytes]], offset: int, operations: int) -> bool:
    """Whether a transaction is committed: in all its partitions and its group, or nowhere."""
    there = {
        value in seen[partition] for partition, values in sent.values.items() for value in values
    }
    assert len(there) <= 1, "a transaction is torn"
    if sent.answered is not None and sent.answered <= operations:
        assert there <= {sent.commit}, "an answered end has another outcome"
        return sent.commit
    if not there:  # offsets only
        return sent.commit and offset == sent.offset >= 0
    assert sent.commit or there == {False}
    return there == {True}
