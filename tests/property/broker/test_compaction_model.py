"""Compaction against a model: what a consumer reads makes the same table as the whole history."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.time_search import Stamp, first_from, latest
from quafka_broker.topics.topic import Topic
from quafka_proto.record_codec import iter_records
from quafka_proto.records import CONTROL, TRANSACTIONAL, read_header
from tests.support.suites import examples
from tests.unit.broker.compacting import (
    COMPACT,
    START_MS,
    Compacting,
    Kept,
    batches_of,
    compacting,
    kept_in,
)
from tests.unit.broker.memory_disk import MemoryDisk

_SEGMENT = 900
_PRODUCERS = (7, 8)

_KEY = st.sampled_from([b"a", b"b", b"c", b"d", None])
_PAIR = st.tuples(_KEY, st.one_of(st.none(), st.binary(min_size=1, max_size=40)))
_STEP = st.one_of(
    st.tuples(
        st.just("put"), st.integers(0, 1), st.lists(_PAIR, min_size=1, max_size=5),
        st.integers(0, 4), st.sampled_from([-1, -1, *_PRODUCERS]),
    ),
    st.tuples(st.just("other"), st.integers(1, 300)),
    st.tuples(st.just("end"), st.sampled_from(_PRODUCERS), st.booleans()),
    st.tuples(st.just("compact")),
    st.tuples(st.just("due")),
    st.tuples(st.just("wait"), st.sampled_from([1, 40, 400])),
    st.tuples(st.just("rewrite")),
    st.tuples(st.just("delete"), st.integers(0, 1), st.integers(1, 6)),
    st.tuples(st.just("restart"), st.sampled_from(["", "checkpoint", "oidx"])),
)  # fmt: skip
_CONFIGS = st.fixed_dictionaries(
    {
        "delete.retention.ms": st.sampled_from(["0", "100"]),
        "min.compaction.lag.ms": st.sampled_from(["0", "0", "50"]),
        "min.cleanable.dirty.ratio": st.sampled_from(["0", "0.5"]),
    }
)


@dataclass
class History:
    """All records of a partition, and the transactions that have written them."""

    records: list[Kept] = field(default_factory=list[Kept])
    aborted: set[int] = field(default_factory=set[int])
    """Offsets of aborted records."""
    open: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Offsets of open transactions, by producer."""
    first_dirty: int = 0
    """The greatest one ever: a start without a checkpoint begins anew."""


def _apply(table: dict[bytes, bytes], kept: Kept) -> None:
    if kept.key is not None and kept.value is not None:
        table[kept.key] = kept.value
    elif kept.key is not None:
        table.pop(kept.key, None)


async def _read_committed(broker: Compacting, partition: Partition) -> list[Kept]:
    """As a consumer does it: producers of aborted transactions are skipped up to a marker."""
    start, end = partition.log_start, partition.last_stable_offset
    to_come = sorted(partition.aborted(start, end), key=lambda one: one.first_offset)
    aborted: set[int] = set()
    found: list[Kept] = []
    for batch in await batches_of(broker.state, partition, start):
        header = read_header(batch)
        if header.base_offset >= end:
            break
        while to_come and to_come[0].first_offset <= header.last_offset:
            aborted.add(to_come.pop(0).producer_id)
        if header.attributes & CONTROL:
            aborted.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted):
            found += [
                Kept(record.offset, record.key, record.value, record.timestamp)
                for record in iter_records(batch)
                if record.offset >= start
            ]
    return found


class _Run:
    def __init__(self, broker: Compacting, histories: list[History]) -> None:
        self.broker = broker
        self.histories = histories
        self.topic: Topic | None = None
        self.other: Topic | None = None

    async def begin(self, configs: dict[str, str]) -> None:
        self.topic = await self.broker.topic(configs=COMPACT | configs, partitions=2)
        self.other = await self.broker.topic("other", {})

    async def step(self, what: str, *how: object) -> None:
        assert self.topic is not None
        assert self.other is not None
        broker = self.broker
        match (what, *how):
            case ("put", int(number), list(pairs), int(codec), int(producer)):
                await self._put(number, pairs, codec, producer)
            case ("other", int(size)):
                await broker.put(self.other, (None, b"x" * size))
            case ("end", int(producer), bool(commit)):
                await self._end(producer, commit)
            case ("compact",):
                await broker.compact(self.topic)
            case ("due",):
                await broker.state.compaction.compact_due()
            case ("wait", int(ms)):
                broker.now_ms += ms
            case ("rewrite",):
                rewriter = broker.state.compaction._rewriter
                assert rewriter is not None
                await rewriter.run_once()
            case ("delete", int(number), int(count)):
                partition = broker.partition(self.topic, number)
                start = min(partition.last_stable_offset, partition.log_start + count)
                await broker.state.topics.delete_records({self.topic: {number: start}})
            case _:
                raise AssertionError(what)

    async def _put(
        self, number: int, pairs: list[tuple[bytes | None, bytes | None]], codec: int, producer: int
    ) -> None:
        assert self.topic is not None
        history = self.histories[number]
        offset = await self.broker.put(
            self.topic, *pairs, codec=codec, producer=producer, transactional=producer >= 0,
            number=number,
        )  # fmt: skip
        for at, (key, value) in enumerate(pairs, offset):
            history.records.append(Kept(at, key, value, self.broker.now_ms))
            if producer >= 0:
                history.open.setdefault(producer, []).append(at)

    async def _end(self, producer: int, commit: bool) -> None:
        assert self.topic is not None
        numbers = [n for n, history in enumerate(self.histories) if producer in history.open]
        partitions = [self.broker.partition(self.topic, number) for number in numbers]
        if partitions:
            await self.broker.end(producer, *partitions, commit=commit)
        for number in numbers:
            offsets = self.histories[number].open.pop(producer)
            if not commit:
                self.histories[number].aborted.update(offsets)

    async def check(self) -> None:
        assert self.topic is not None
        assert not self.broker.state.log.damages
        for number, history in enumerate(self.histories):
            partition = self.broker.partition(self.topic, number)
            kept = await kept_in(self.broker.state, partition)
            known = {each.offset: each for each in history.records}
            assert all(known[each.offset] == each for each in kept)
            status = self.broker.state.compaction.status(self.topic, number)
            assert status is not None
            there = {each.offset for each in kept}
            history.first_dirty = max(history.first_dirty, status.first_dirty)
            first = max(history.first_dirty, partition.log_start)
            assert not [offset for offset in known if offset >= first and offset not in there]
            block = partition.batches.block_of(partition.log_start)
            if block is not None and block.start == partition.log_start:
                batches = await batches_of(self.broker.state, partition, partition.log_start)
                assert partition.batches.size == sum(map(len, batches))
            table: dict[bytes, bytes] = {}
            for each in await _read_committed(self.broker, partition):
                _apply(table, each)
            stable = partition.last_stable_offset
            expected: dict[bytes, bytes] = {}
            for each in history.records:
                if (
                    partition.log_start <= each.offset < stable
                    and each.offset not in history.aborted
                ):
                    _apply(expected, each)
            assert table == expected
            await self._check_times(partition)
            for offset in range(partition.log_start, partition.high_watermark):
                await batches_of(self.broker.state, partition, offset)

    async def _check_times(self, partition: Partition) -> None:
        reader = self.broker.state.log.reader
        stamps = [
            Stamp(record.offset, record.timestamp)
            for batch in await batches_of(self.broker.state, partition, partition.log_start)
            for record in iter_records(batch)
            if record.offset >= partition.log_start
        ]
        for time in {stamp.timestamp for stamp in stamps}:
            first = next(stamp for stamp in stamps if stamp.timestamp >= time)
            assert await first_from(reader, partition, time) == first
        greatest = max(stamps, key=lambda stamp: stamp.timestamp, default=None)
        assert await latest(reader, partition) == greatest


async def _run(configs: dict[str, str], steps: list[tuple[object, ...]]) -> None:
    disk = MemoryDisk()
    histories = [History(), History()]
    now_ms = 0
    left = list(steps)
    first = True
    while left or first:
        async with compacting(disk, segment_bytes=_SEGMENT) as broker:
            broker.now_ms += now_ms
            run = _Run(broker, histories)
            await run.begin(configs)
            await run.check()
            first = False
            lost = None
            while left and lost is None:
                what, *how = left.pop(0)
                if what == "restart":
                    lost = how[0]
                    continue
                await run.step(str(what), *how)
                if what in ("compact", "due", "rewrite"):
                    await run.check()
            await run.check()
            now_ms = broker.now_ms - START_MS
        for history in histories:  # the start aborts what no transactional id knows
            history.aborted.update(*history.open.values())
            history.open.clear()
        disk = disk.copy()
        if lost == "checkpoint":
            disk = disk.crashed()
        elif lost == "oidx":
            for name in [name for name in disk.files if name.endswith(".oidx")]:
                del disk.files[name]


@examples(80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_CONFIGS, st.lists(_STEP, min_size=1, max_size=40))
def test_a_compacted_partition_has_the_table_of_its_history(
    configs: dict[str, str], steps: list[tuple[object, ...]]
) -> None:
    asyncio.run(_run(configs, steps))
