"""Retention: deletes the oldest batches of each partition by time and by size.

As in Kafka, whole batches are deleted from the front, and a batch is as old as its newest record.
By time, deletion stops at the first batch that is young enough; by size, it continues while the
rest stays at or above the limit. A batch without timestamps is deleted with the next batch that has
one. The new log starts are durable in the registry before any deletion. The same sweep deletes the
offsets of consumer groups that have long had no members.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from quafka_broker.partitions.errors import OffsetGoneError, StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producers import Producers
from quafka_broker.partitions.sparse_index import Block
from quafka_broker.topics.changes import TopicChanges
from quafka_broker.topics.configs import TopicPolicy
from quafka_broker.topics.effective_configs import EffectiveConfigs
from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.log import Log
from quafka_loop import clock
from quafka_loop.slices import Slices
from quafka_proto.log_format import IndexRow

log = logging.getLogger("quafka.broker.retention")

_PARTITIONS_PER_SLICE = 100
_BURST_SECONDS = 0.2
"""Changes of topics' retention come in bursts: one sweep serves all within this time."""


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return clock.time_ns() // 1_000_000


class Retention:
    """Sweeps all partitions periodically."""

    def __init__(
        self,
        wal: Log,
        registry: Registry,
        configs: EffectiveConfigs,
        topics: TopicChanges,
        producers: Producers,
        expire_offsets: Callable[[int], Awaitable[int]],
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`expire_offsets` deletes the offsets of groups that have been unused for this many ms."""
        self._wal = wal
        self._registry = registry
        self._configs = configs
        self._topics = topics
        self._producers = producers
        self._expire_offsets = expire_offsets
        self._now_ms = now_ms
        # For each examined partition: its log start, and the timestamp that kept the batch there.
        # So a sweep that deletes nothing reads no index.
        self._kept: dict[PartitionId, tuple[int, int]] = {}

    async def run(self) -> None:
        """Sweep at every `log.retention.check.interval.ms`, and when a topic's retention changes,
        until cancelled.
        """
        while True:
            await self._due()
            try:
                moved = await self.sweep()
                await self._expire_offsets(self._configs.broker.offsets_retention_minutes * 60_000)
            except StorageError as e:
                log.warning("old records cannot be deleted: %s", e)
            except Exception:  # a bug must not let the log grow without bound
                log.exception("a sweep for old records failed; the next one tries again")
            else:
                if moved:
                    log.info("old records of %d partitions were deleted", moved)

    async def _due(self) -> None:
        changed = self._configs.retention_changed
        with suppress(TimeoutError):
            async with asyncio.timeout(self._configs.broker.log_retention_check_interval_ms / 1000):
                await changed.wait()
                await asyncio.sleep(_BURST_SECONDS)
        changed.clear()

    async def sweep(self) -> int:
        """Delete records by time and size, once; returns the number of affected partitions.

        Raises:
            StorageError: remaining deletions are left to the next sweep.
        """
        now = self._now_ms()
        self._producers.expire(now - self._configs.broker.producer_id_expiration_ms)
        kept, self._kept = self._kept, {}
        starts: dict[Topic, dict[int, int]] = {}
        slices = Slices(_PARTITIONS_PER_SLICE)
        for topic in self._registry.every_topic():
            if topic.source:
                continue  # the system that stores its records deletes them
            policy = self._configs.policy(topic)
            if policy.retention_ms < 0 and policy.retention_bytes < 0:
                continue
            for number in range(topic.partitions):
                await slices.done()
                partition = self._wal.partitions.get(topic.partition_id(number))
                if partition.id in kept:
                    self._kept[partition.id] = kept[partition.id]
                start = await self._start(partition, policy, now)
                if start > partition.log_start:
                    starts.setdefault(topic, {})[number] = start
        # A topic whose retention was raised during the sweep must keep its records.
        await self._topics.delete_records(starts, if_unchanged=True)
        return sum(map(len, starts.values()))

    async def _start(self, partition: Partition, policy: TopicPolicy, now: int) -> int:
        """The partition's new log start."""
        start = partition.log_start
        try:
            if policy.retention_ms >= 0:
                start = await self._by_time(partition, now - policy.retention_ms)
            if policy.retention_bytes >= 0:
                start = await self._by_size(partition, start, policy.retention_bytes)
        except OffsetGoneError:
            return partition.log_start  # another deletion was first; the next sweep looks again
        except StorageError as e:
            log.warning("partition %s: its old records are kept: %s", partition.id.key, e)
            return partition.log_start
        # Lost records have no timestamp, and are deleted with the preceding records.
        return (
            self._wal.reader.end_of_lost(partition, start) if start > partition.log_start else start
        )

    async def _by_time(self, partition: Partition, oldest: int) -> int:
        start, timestamp = self._kept.get(partition.id, (-1, 0))
        if start == partition.log_start and timestamp >= oldest:
            return start
        start = partition.log_start
        block = partition.batches.block_of(start)
        while block is not None:
            if 0 <= block.max_timestamp < oldest:
                start = block.end
            else:
                for row in await self._rows(partition, block, block.start):
                    if row.max_timestamp >= oldest:
                        self._kept[partition.id] = start, row.max_timestamp
                        return start
                    if row.max_timestamp >= 0:
                        start = row.base_offset + row.record_count
            block = partition.batches.block_of(block.end)
        return start

    async def _by_size(self, partition: Partition, start: int, limit: int) -> int:
        block = partition.batches.block_of(start)
        while block is not None:
            bytes_after = _bytes_after(partition, block)
            if bytes_after >= limit:
                start = block.end
            elif partition.batches.bytes_from(block) <= limit:
                return start
            else:
                rows = await self._rows(partition, block, start)
                left = bytes_after + sum(row.length for row in rows)
                for row in rows:
                    left -= row.length
                    if left < limit:
                        return start
                    start = row.base_offset + row.record_count
                return start
            block = partition.batches.block_of(block.end)
        return start

    async def _rows(self, partition: Partition, block: Block, start: int) -> list[IndexRow]:
        return await self._wal.reader.rows(partition, max(start, partition.log_start), block.end)


def _bytes_after(partition: Partition, block: Block) -> int:
    following = partition.batches.block_of(block.end)
    return 0 if following is None else partition.batches.bytes_from(following)
