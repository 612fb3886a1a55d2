"""Power cuts under every `wal.fsync`: a consumer can detect which of its records are gone.

A consumer keeps the leader epoch of the last record that it has read, and requests the end of that
epoch (KIP-320). If the end is below its position, its records are not in the log any more.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from tests.crash.fates import KINDS, Fate, after_power_cut
from tests.crash.recorded_disk import Moment, RecordedDisk, moments
from tests.support.no_threads import no_threads
from tests.support.suites import more
from tests.unit.broker.tools import append, open_log, topic_id, values_of

NAMES = "ab"
TURNS = 6
SEGMENT_BYTES, CHECKPOINT_BYTES = 700, 600
POLICIES = {"commit": FsyncPolicy(), "never": FsyncPolicy(0.0), "interval": FsyncPolicy(3_600.0)}


class Seen(NamedTuple):
    """A record that a consumer could read after a number of disk operations."""

    operations: int
    name: str
    offset: int
    epoch: int
    value: bytes


async def run(disk: RecordedDisk, fsync: FsyncPolicy, label: str) -> list[Seen]:
    """A broker's log from start to end, and the records that consumers could read."""
    seen: list[Seen] = []
    async with open_log(disk, fsync, SEGMENT_BYTES, CHECKPOINT_BYTES) as log:
        for turn in range(TURNS):
            for name in NAMES:
                value = f"{label} {name} {turn}".encode() * 3
                offset = await append(log, name, value)
                epoch = log.epochs.epoch_at(log.partitions.get(topic_id(name)), offset)
                seen.append(Seen(len(disk.operations), name, offset, epoch, value))
            if turn == TURNS // 2:
                await log.checkpoint()
    return seen


async def check(log: Log, seen: list[Seen]) -> int:
    """A consumer of these records can tell which still exist; returns the number of lost ones."""
    there = {name: await values_of(log, name) for name in NAMES}
    lost = 0
    for record in seen:
        partition = log.partitions.get(topic_id(record.name))
        values = there[record.name]
        same = record.offset < len(values) and values[record.offset] == record.value
        end = log.epochs.end_of(partition, record.epoch)
        noticed = end.end_offset < record.offset + 1
        assert noticed is not same, (record, end, log.epochs.dump())
        lost += noticed
    return lost


def cuts(disk: RecordedDisk, rng: random.Random, share: float) -> list[tuple[int, RecordedDisk]]:
    """Disks after power cuts, with the number of operations before each."""
    some = (moment for moment in moments(disk) if rng.random() < share)
    return [(moment.operations, _cut(moment, rng)) for moment in some]


def _cut(moment: Moment, rng: random.Random) -> RecordedDisk:
    return after_power_cut(moment, Fate(rng.choice(KINDS), rng), rng)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, *more([1])])
async def test_a_consumer_can_tell_which_records_a_power_cut_has_taken(
    policy: str, seed: int
) -> None:
    fsync, rng = POLICIES[policy], random.Random(seed)
    lost = 0
    with no_threads():
        first = RecordedDisk()
        seen_first = await run(first, fsync, "first")
        for at, disk in cuts(first, rng, 0.5):
            seen = [record for record in seen_first if record.operations <= at]
            seen_second = await run(disk, fsync, "second")
            async with open_log(RecordedDisk(disk.files()), fsync) as log:
                lost += await check(log, seen)
                assert await check(log, seen_second) == 0, "it was closed"
                if policy == "commit":
                    assert log.epochs.current == 0
            for at_second, left in cuts(disk, rng, 0.04):
                await run(left, fsync, "third")
                # A third run's records are longer in one topic than what they take the place of.
                async with open_log(left, fsync) as log:
                    also = [record for record in seen_second if record.operations <= at_second]
                    lost += await check(log, [*seen, *also])
    assert (lost > 0) == (policy != "commit")
