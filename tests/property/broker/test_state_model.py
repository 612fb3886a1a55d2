"""Topics with retention, deletion and re-creation against lists of batches.

Whatever is deleted, restarted or created again: an offset has the record that it always had, or
none; a topic never shows a record of an older one of its name; a time leads to the first record
that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.ops import configs, delete_records, fetch, partitions, produce, topics
from quafka_broker.partitions import time_search
from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_mesh_ops.ops.admin import AlterTopicConfigs, CreatePartitions
from quafka_mesh_ops.ops.records import (
    DeleteRecordsOp,
    DeleteRecordsOps,
    FetchOp,
    FetchOps,
    ProduceOp,
    ProduceOps,
)
from quafka_mesh_ops.ops.topics import CreateTopic, DeleteTopic
from quafka_proto.config_kinds import ConfigOperation
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.schema.configs import IncrementalAlterableConfig
from quafka_proto.schema.topics import CreatableTopicConfig
from tests.support.suites import examples
from tests.unit.broker.memory_disk import MemoryDisk
from tests.unit.broker.tools import ORG, context

T = TypeVar("T")
NAMES = "ab"
names = st.sampled_from(NAMES)
times = st.integers(9_500, 10_500)
NOW = 10_000
SET = ConfigOperation.SET


@dataclass
class Batch:
    base: int
    size: int
    records: list[tuple[bytes, int]]

    @property
    def end(self) -> int:
        return self.base + len(self.records)

    @property
    def newest(self) -> int:
        return max(at for _, at in self.records)


@dataclass
class Model:
    """One topic, with one used partition."""

    retention_ms: int
    retention_bytes: int
    partitions: int = 1
    start: int = 0
    batches: list[Batch] = field(default_factory=list[Batch])

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def records(self) -> list[tuple[int, bytes, int]]:
        """Offset, value and timestamp of the remaining records."""
        every = [
            (batch.base + n, value, at)
            for batch in self.batches
            for n, (value, at) in enumerate(batch.records)
        ]
        return every[self.start :]

    def sweep(self) -> None:
        left = [batch for batch in self.batches if batch.end > self.start]
        while self.retention_ms >= 0 and left and left[0].newest < NOW - self.retention_ms:
            self.start = left.pop(0).end
        size = sum(batch.size for batch in left)
        while self.retention_bytes >= 0 and left and size - left[0].size >= self.retention_bytes:
            size -= left[0].size
            self.start = left.pop(0).end


class StateModel(RuleBasedStateMachine):
    """All kinds of deletion, in any order, with restarts."""

    @initialize(segment_bytes=st.sampled_from([500, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.disk = MemoryDisk()
        self.segment_bytes = segment_bytes
        self.models: dict[str, Model] = {}
        self.values = 0
        self.open()

    def open(self) -> None:
        log = Log(self.disk, FsyncPolicy(), self.segment_bytes)
        config = BrokerConfig(data=Path("unused"), log_message_timestamp_after_max_ms=1 << 62)
        self.state = BrokerState(config, log)
        self.state.journal.events_kept = 5
        self.retention = self.state.retention(lambda: NOW)

        async def start() -> None:
            log.open(self.state.producers)
            log.start()
            await self.state.replay_registry()

        self.run(start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def partition(self, name: str) -> Partition:
        topic = self.state.registry.by_name(ORG, name)
        assert topic is not None
        return self.state.log.partitions.get(topic.partition_id(0))

    @rule(name=names, ms=st.sampled_from([-1, 0, 300]), size=st.sampled_from([-1, 0, 200]))
    def create(self, name: str, ms: int, size: int) -> None:
        configs = [
            CreatableTopicConfig("retention.ms", str(ms)),
            CreatableTopicConfig("retention.bytes", str(size)),
        ]
        op = CreateTopic(name, 1, configs=configs)
        answer = self.run(topics.create(self.state, context(), op))
        if name in self.models:
            assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        else:
            assert answer.error_code == 0
            self.models[name] = Model(ms, size)

    @rule(name=names, ms=st.sampled_from([-1, 0, 300]))
    def change(self, name: str, ms: int) -> None:
        op = AlterTopicConfigs(name, [IncrementalAlterableConfig("retention.ms", SET, str(ms))])
        answer = self.run(configs.alter(self.state, context(), op))
        known = self.models.get(name)
        assert bool(answer.error_code) == (known is None)
        if known is not None:
            known.retention_ms = ms

    @rule(name=names, count=st.sampled_from([2, 3]))
    def grow(self, name: str, count: int) -> None:
        answer = self.run(partitions.create(self.state, context(), CreatePartitions(name, count)))
        known = self.models.get(name)
        assert bool(answer.error_code) == (known is None or count <= known.partitions)
        if known is not None:
            known.partitions = max(count, known.partitions)

    @invariant()
    def partitions_are_as_many(self) -> None:
        counts = {t.name: t.partitions for t in self.state.registry.topics(ORG)}
        assert counts == {name: model.partitions for name, model in self.models.items()}

    @rule(name=names)
    def delete(self, name: str) -> None:
        answer = self.run(topics.delete(self.state, context(), DeleteTopic(name)))
        known = self.models.pop(name, None)
        expected = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.error_code == expected

    @rule(name=names, batches=st.lists(st.lists(times, min_size=1, max_size=3), max_size=80))
    def append(self, name: str, batches: list[list[int]]) -> None:
        model = self.models.get(name)
        if model is None:
            return
        for stamps in batches:
            records = [(b"%d" % (self.values + n), at) for n, at in enumerate(stamps)]
            self.values += len(records)
            data = build_batch([Record(0, at, None, value, []) for value, at in records])
            ops = ProduceOps([ProduceOp(name, 0, data)])
            (answer,) = self.run(produce.handle(self.state, context(), ops)).partitions
            assert (answer.error_code, answer.base_offset) == (0, model.end)
            model.batches.append(Batch(model.end, len(data), records))

    @rule(name=names, place=st.floats(0, 1))
    def delete_up_to(self, name: str, place: float) -> None:
        model = self.models.get(name)
        offset = round(place * model.end) if model else 0
        ops = DeleteRecordsOps([DeleteRecordsOp(name, 0, offset)])
        (answer,) = self.run(delete_records.handle(self.state, context(), ops)).partitions
        if model is None:
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        model.start = max(model.start, offset)
        assert (answer.error_code, answer.low_watermark) == (0, model.start)

    @rule()
    def sweep(self) -> None:
        self.run(self.retention.sweep())
        for model in self.models.values():
            model.sweep()

    @rule(cached=st.booleans())
    def rewrite(self, cached: bool) -> None:
        self.disk.cached = cached

        async def turn() -> None:
            work = self.state.log.rewrite_task(RewritePolicy(bytes_per_second=1 << 40), lambda: 0)
            await work.run_once()
            await work.close()

        self.run(turn())

    @rule(name=names, place=st.floats(-0.1, 1.1))
    def read(self, name: str, place: float) -> None:
        model = self.models.get(name)
        if model is None:
            return
        offset = round(place * model.end)
        ops = FetchOps([FetchOp(name, 0, offset, 1 << 30)])
        (answer,) = self.run(fetch.handle(self.state, context(), ops)).partitions
        inside = model.start <= offset <= model.end
        assert answer.error_code == (0 if inside else ErrorCode.OFFSET_OUT_OF_RANGE)
        found = [
            (record.offset, record.value, record.timestamp)
            for batch in answer.records
            for record in iter_records(batch)
            if record.offset >= offset
        ]
        assert found == [record for record in model.records if inside and record[0] >= offset]

    @rule(name=names, timestamp=times)
    def find(self, name: str, timestamp: int) -> None:
        model = self.models.get(name)
        if model is None:
            return
        partition = self.partition(name)
        first = self.run(time_search.first_from(self.state.log.reader, partition, timestamp))
        matching = ((offset, at) for offset, _, at in model.records if at >= timestamp)
        assert first == next(matching, None)
        latest = self.run(time_search.latest(self.state.log.reader, partition))
        stamps = [(offset, at) for offset, _, at in model.records]
        assert latest == max(stamps, key=lambda stamp: (stamp[1], -stamp[0]), default=None)

    @rule(checkpoint=st.booleans(), index=st.booleans())
    def restart(self, checkpoint: bool, index: bool) -> None:
        self.run(self.state.log.close())
        if not index:
            for name in [name for name in self.disk.files if name.endswith(".oidx")]:
                del self.disk.files[name]
        if not checkpoint:
            for name in [name for name in self.disk.files if name.startswith("checkpoint")]:
                del self.disk.files[name]
        self.open()

    @invariant()
    def watermarks(self) -> None:
        for name, model in getattr(self, "models", {}).items():
            partition = self.partition(name)
            assert (partition.log_start, partition.high_watermark) == (model.start, model.end)

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        for name in self.models:
            self.read(name, 0.0)
        self.run(self.state.log.close())
        self.loop.close()


TestStateModel = StateModel.TestCase
TestStateModel.settings = examples(10, stateful_step_count=25)
