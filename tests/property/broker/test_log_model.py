"""The log against the simplest model: one list of values per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quafka_broker.partitions.errors import CorruptError, StorageError
from quafka_broker.partitions.producers import Producers
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.segment import log_name
from quafka_proto.record_codec import iter_records
from tests.support.suites import examples
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import EVERYTHING, checked, topic_id

T = TypeVar("T")
names = st.sampled_from("abcd")
values = st.lists(st.binary(max_size=60), min_size=1, max_size=5)


class LogModel(RuleBasedStateMachine):
    """Appends, reads, full disks and restarts in any order."""

    @initialize(
        segment_bytes=st.sampled_from([200, 700, 1 << 20]),
        fsync=st.sampled_from([FsyncPolicy(), FsyncPolicy(0.0)]),
        checkpoint_bytes=st.sampled_from([300, 1 << 20]),
    )
    def begin(self, segment_bytes: int, fsync: FsyncPolicy, checkpoint_bytes: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = MemoryDisk()
        self.segment_bytes = segment_bytes
        self.fsync = fsync
        self.checkpoint_bytes = checkpoint_bytes
        self.model: dict[str, list[bytes]] = {name: [] for name in "abcd"}
        self.lost: dict[str, set[int]] = {name: set() for name in "abcd"}
        self.open()

    def open(self) -> None:
        self.log = Log(self.disk, self.fsync, self.segment_bytes, self.checkpoint_bytes)

        async def start() -> None:
            self.log.open(Producers())
            self.log.settle(dict.fromkeys(self.log.partitions.ids(), 0))
            self.log.start()

        self.run(start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(batches=st.lists(st.tuples(names, values), min_size=1, max_size=6))
    def append(self, batches: list[tuple[str, list[bytes]]]) -> None:
        async def all_at_once() -> list[list[int]]:
            return await asyncio.gather(
                *[
                    self.log.queue.append(self.log.partitions.get(topic_id(n)), checked(*v))
                    for n, v in batches
                ]
            )

        for (name, items), (offset,) in zip(batches, self.run(all_at_once()), strict=True):
            assert offset == len(self.model[name])
            self.model[name] += items

    @rule(name=names, items=values, room=st.integers(0, 150))
    def append_to_a_full_disk(self, name: str, items: list[bytes], room: int) -> None:
        self.disk.room = room

        async def one() -> None:
            await self.log.queue.append(self.log.partitions.get(topic_id(name)), checked(*items))

        try:
            self.run(one())
        except StorageError:
            pass
        else:
            self.model[name] += items
        self.disk.room = None

    @rule(name=names, place=st.floats(0, 1), max_bytes=st.integers(0, 1_000), cached=st.booleans())
    def read(self, name: str, place: float, max_bytes: int, cached: bool) -> None:
        self.disk.cached = cached
        expected = self.model[name]
        offset = round(place * len(expected))
        partition = self.log.partitions.get(topic_id(name))
        try:
            batches = self.run(
                self.log.reader.read(partition, offset, max_bytes, at_least_one=True)
            )
        except CorruptError:
            assert offset in self.lost[name]
            return
        assert sum(map(len, batches)) <= max_bytes or len(batches) == 1
        records = [record for batch in batches for record in iter_records(batch)]
        assert bool(records) == (offset < len(expected))
        if records:
            first = records[0].offset
            assert first <= offset <= records[-1].offset
            assert not self.lost[name].intersection(range(first, records[-1].offset + 1))
            found = [record.value for record in records]
            assert found == expected[first : first + len(found)]

    @rule(name=names, place=st.floats(0, 1, exclude_max=True))
    def damage(self, name: str, place: float) -> None:
        """A byte of a batch rots; a later entry shows that it had been durable."""
        self.restart(checkpoint=True, index=True)
        offset = int(place * len(self.model[name]))
        partition = self.log.partitions.get(topic_id(name))
        rows = self.run(self.log.reader.rows(partition, offset, offset + 1))
        self.append([("d", [b"later"])])
        if not rows or offset in self.lost[name]:
            return  # the partition is empty, or all of it is damaged
        (row,) = rows
        segment = self.log._contents.segment_of(row.global_id)
        assert segment is not None
        self.disk.files[log_name(segment.number)].data[row.end - 1] ^= 1
        self.lost[name].update(range(row.base_offset, row.base_offset + row.record_count))

    @rule(checkpoint=st.booleans(), index=st.booleans())
    def restart(self, checkpoint: bool, index: bool) -> None:
        self.run(self.log.close())
        if not index:
            for name in [name for name in self.disk.files if name.endswith(".oidx")]:
                del self.disk.files[name]
        if not checkpoint:
            for name in [name for name in self.disk.files if name.startswith("checkpoint")]:
                del self.disk.files[name]
        self.open()

    @invariant()
    def watermarks(self) -> None:
        for name, expected in getattr(self, "model", {}).items():
            partition = self.log.partitions.get(topic_id(name))
            assert (partition.log_start, partition.high_watermark) == (0, len(expected))

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        for name, expected in self.model.items():
            self.read_all(name, expected)
        self.run(self.log.close())
        self.loop.close()

    def read_all(self, name: str, expected: list[bytes]) -> None:
        """Read like a consumer that skips lost records."""
        partition = self.log.partitions.get(topic_id(name))
        found: dict[int, bytes | None] = {}
        offset = 0
        while offset < len(expected):
            try:
                batches = self.run(
                    self.log.reader.read(partition, offset, EVERYTHING, at_least_one=True)
                )
            except CorruptError:
                offset += 1
                continue
            records = [record for batch in batches for record in iter_records(batch)]
            found.update((record.offset, record.value) for record in records)
            offset = records[-1].offset + 1
        assert found == {n: value for n, value in enumerate(expected) if n not in self.lost[name]}


TestLogModel = LogModel.TestCase
TestLogModel.settings = examples(40, stateful_step_count=25)
