"""A broker's state with a compacted topic and a clock of its own, for tests of compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from quafka_broker.partitions.partition import Partition
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.disk import Disk
from quafka_broker.wal.rewrite_task import RewritePolicy
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
    iter_records,
)
from quafka_proto.records import CONTROL, BatchHeader, read_header
from tests.unit.broker.tools import EVERYTHING, ORG, running_state

FAST = RewritePolicy(bytes_per_second=1 << 40)
COMPACT = {"cleanup.policy": "compact"}
START_MS = 1_700_000_000_000


class Kept(NamedTuple):
    """A record as a consumer finds it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class Compacting:
    """A running state; `now_ms` is the clock of compaction."""

    state: BrokerState
    now_ms: int = START_MS

    async def topic(
        self, name: str = "t", configs: Mapping[str, str] = COMPACT, partitions: int = 1
    ) -> Topic:
        topic, _ = await self.state.topics.create(ORG, name, partitions, dict(configs))
        return topic

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        return self.state.log.partitions.get(topic.partition_id(number))

    async def put(
        self,
        topic: Topic,
        *pairs: tuple[bytes | None, bytes | None],
        codec: int = 0,
        producer: int = -1,
        transactional: bool = False,
        number: int = 0,
        sequence: int = -1,
    ) -> int:
        """Append one batch of keys and values, with the time of the clock; returns its offset."""
        batch = build_batch(
            [Record(0, self.now_ms, key, value, []) for key, value in pairs],
            codec=codec, producer_id=producer, producer_epoch=0 if producer >= 0 else -1,
            transactional=transactional, base_sequence=sequence,
        )  # fmt: skip
        checked: list[tuple[BatchHeader, memoryview]] = [(read_header(batch), memoryview(batch))]
        return (await self.state.log.queue.append(self.partition(topic, number), checked))[0]

    async def end(self, producer: int, *partitions: Partition, commit: bool) -> None:
        """Write the markers that end a producer's transaction, without an event."""
        kind = MarkerType.COMMIT if commit else MarkerType.ABORT
        for partition in partitions:
            marker = build_marker(TransactionMarker(kind, 0), 0, self.now_ms, producer, 0)
            await self.state.log.queue.append(
                partition, [(read_header(marker), memoryview(marker))]
            )

    async def compact(self, topic: Topic) -> None:
        await self.state.compaction.compact(topic)


@asynccontextmanager
async def compacting(
    disk: Disk, segment_bytes: int = 1 << 20, lease_seconds: float = 0
) -> AsyncIterator[Compacting]:
    async with running_state(
        disk, segment_bytes=segment_bytes, lease_seconds=lease_seconds
    ) as state:
        made = Compacting(state)
        state.compaction._now_ms = lambda: made.now_ms
        rewriter = state.log.rewrite_task(FAST, lambda: state.journal.deletions)
        state.compaction.start(rewriter)
        try:
            yield made
        finally:
            await rewriter.close()


async def batches_of(state: BrokerState, partition: Partition, start: int) -> list[memoryview]:
    """All batches from an offset on; their bounds ascend."""
    reader = state.log.reader
    found = await reader.read(partition, start, EVERYTHING, at_least_one=True)
    end = 0
    for batch in found:
        header = read_header(batch)
        assert header.base_offset >= end
        end = header.last_offset + 1
    if start < partition.high_watermark:
        assert end == partition.high_watermark
    return found


async def kept_in(state: BrokerState, partition: Partition, start: int = 0) -> list[Kept]:
    """All records but markers from an offset on, also those of aborted transactions."""
    found: list[Kept] = []
    start = max(start, partition.log_start)
    for batch in await batches_of(state, partition, start):
        if not read_header(batch).attributes & CONTROL:
            found += [
                Kept(r.offset, r.key, r.value, r.timestamp)
                for r in iter_records(batch)
                if r.offset >= start
            ]
    assert [kept.offset for kept in found] == sorted({kept.offset for kept in found})
    return found
