"""Retention: the oldest batches of a partition are deleted by time and by size.

As in Kafka, batches go whole and from the front, and a batch is as old as its newest record: by
time, up to the first that is young enough; by size, while what is left stays at or above the
limit. A batch without timestamps goes with the first that follows it and has one. Nothing is
deleted before the new log starts are durable in the registry. The offsets of consumer groups that
have had no members for long go in the same sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import time_ns

from quafka_broker.partitions.errors import OffsetGoneError, StorageError
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.sparse_index import Block
from quafka_broker.state import BrokerState
from quafka_broker.topics.configs import TopicPolicy
from quafka_broker.topics.topic import Topic
from quafka_proto.log_format import IndexRow
from quafka_telemetry.slices import Slices

log = logging.getLogger("quafka.broker.retention")

_PARTITIONS_PER_SLICE = 100
_BURST_SECONDS = 0.2
"""Changes of topics' retention come in bursts: one sweep for all that come within this."""


def _now_ms() -> int:
    return time_ns() // 1_000_000


class Retention:
    """Sweeps all partitions, again and again."""

    def __init__(self, state: BrokerState, now_ms: Callable[[], int] = _now_ms) -> None:
        self._state = state
        self._now_ms = now_ms
        self._offsets_ms = state.configs.broker.offsets_retention_minutes * 60_000
        # Of partitions that a sweep has looked at: their log start, and the timestamp that kept
        # the batch there. So a sweep that finds nothing to do reads no index.
        self._kept: dict[PartitionId, tuple[int, int]] = {}

    async def run(self) -> None:
        """Sweep at every `log.retention.check.interval.ms`, and when a topic's retention is
        changed; ends only when it is cancelled.
        """
        while True:
            await self._due()
            try:
                moved = await self.sweep()
                await self._state.groups.expire(self._offsets_ms)
            except StorageError as e:
                log.warning("old records cannot be deleted: %s", e)
            except Exception:  # a mistake of ours must not let the log grow for ever
                log.exception("a sweep for old records failed; the next one tries again")
            else:
                if moved:
                    log.info("old records of %d partitions were deleted", moved)

    async def _due(self) -> None:
        changed = self._state.configs.retention_changed
        with suppress(TimeoutError):
            async with asyncio.timeout(
                self._state.configs.broker.log_retention_check_interval_ms / 1000
            ):
                await changed.wait()
                await asyncio.sleep(_BURST_SECONDS)
        changed.clear()

    async def sweep(self) -> int:
        """Delete what is too old or too much, once; returns in how many partitions.

        Raises:
            StorageError: what has not been deleted yet is left to the next sweep.
        """
        now = self._now_ms()
        self._state.producers.expire(now - self._state.configs.broker.producer_id_expiration_ms)
        kept, self._kept = self._kept, {}
        starts: dict[Topic, dict[int, int]] = {}
        slices = Slices(_PARTITIONS_PER_SLICE)
        for topic in self._state.registry.every_topic():
            policy = self._state.configs.policy(topic)
            if policy.retention_ms < 0 and policy.retention_bytes < 0:
                continue
            for number in range(topic.partitions):
                await slices.done()
                partition = self._state.log.partition(topic.partition_id(number))
                if partition.id in kept:
                    self._kept[partition.id] = kept[partition.id]
                start = await self._start(partition, policy, now)
                if start > partition.log_start:
                    starts.setdefault(topic, {})[number] = start
        # Whoever has set a longer retention meanwhile must find what it is to keep.
        await self._state.topics.delete_records(starts, if_unchanged=True)
        return sum(map(len, starts.values()))

    async def _start(self, partition: Partition, policy: TopicPolicy, now: int) -> int:
        """Where the partition is to begin."""
        start = partition.log_start
        try:
            if policy.retention_ms >= 0:
                start = await self._by_time(partition, now - policy.retention_ms)
            if policy.retention_bytes >= 0:
                start = await self._by_size(partition, start, policy.retention_bytes)
        except OffsetGoneError:
            return partition.log_start  # somebody else deletes: the next sweep will do
        except StorageError as e:
            log.warning("virtual topic %s: its old records are kept: %s", partition.id.key, e)
            return partition.log_start
        # Lost records have no timestamp: they go with those before them.
        return (
            self._state.log.end_of_lost(partition, start) if start > partition.log_start else start
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
            behind = _bytes_behind(partition, block)
            if behind >= limit:
                start = block.end
            elif partition.batches.bytes_from(block) <= limit:
                return start
            else:
                rows = await self._rows(partition, block, start)
                left = behind + sum(row.length for row in rows)
                for row in rows:
                    left -= row.length
                    if left < limit:
                        return start
                    start = row.base_offset + row.record_count
                return start
            block = partition.batches.block_of(block.end)
        return start

    async def _rows(self, partition: Partition, block: Block, start: int) -> list[IndexRow]:
        return await self._state.log.rows(partition, max(start, partition.log_start), block.end)


def _bytes_behind(partition: Partition, block: Block) -> int:
    following = partition.batches.block_of(block.end)
    return 0 if following is None else partition.batches.bytes_from(following)
