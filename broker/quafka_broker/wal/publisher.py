"""Makes the commit groups of a log visible to readers, in order, and answers their appends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Set
from functools import partial

from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.acceptance import Acceptance
from quafka_broker.wal.append_queue import AppendQueue
from quafka_broker.wal.commit_group import CommitGroup, WriterStats
from quafka_broker.wal.contents import Contents


class Publisher:
    """The groups under way: written, but not published, because they are not durable yet.

    Attributes:
        under_way: these groups, in the order of the log.
        ends: the next offset of each partition with batches in them; the next group adds its own.
    """

    def __init__(
        self,
        contents: Contents,
        queue: AppendQueue,
        acceptance: Acceptance,
        stats: WriterStats,
        on_commit: Callable[[Set[PartitionId]], None],
    ) -> None:
        """`on_commit` is called with the partitions that have grown."""
        self._contents = contents
        self._queue = queue
        self._acceptance = acceptance
        self._stats = stats
        self._on_commit = on_commit
        self.under_way: deque[CommitGroup] = deque()
        self.ends: dict[Partition, int] = {}
        self._settled: asyncio.Event | None = None  # someone waits for the end of all groups

    async def settled(self) -> None:
        """Wait until no group is under way."""
        if self.under_way:
            self._settled = self._settled or asyncio.Event()
            await self._settled.wait()

    def taken_back(self) -> None:
        """Forget the ends in a group that was not written."""
        self.ends.clear()
        for group in self.under_way:
            placed = (partition for append in group.appends for partition in append.partitions())
            for partition, row in zip(placed, group.rows, strict=True):
                self.ends[partition] = row.base_offset + row.record_count

    def doubt(self) -> None:
        """Fail the appends under way, which may or may not be in the log."""
        appends = [append for group in self.under_way for append in group.appends]
        self.under_way.clear()
        self._check_settled()
        self._queue.written(appends)
        self._queue.doubt(appends)

    def publish(self) -> None:
        """Publish the first group under way, which is durable.

        First all state is updated: an answered caller may look at any of it. Parked fetches are
        woken last: no consumer is answered before the producers of its records.
        """
        group = self.under_way.popleft()
        queue, contents = self._queue, self._contents
        segment = contents.segments[-1]
        segment.add_rows(group.rows)
        first_id = contents.next_id
        contents.live.added(segment.number, first_id, group.next_id - first_id)
        contents.next_id = group.next_id
        queue.written(group.appends)
        self._stats.count(group)
        group.report_times()
        grown: dict[PartitionId, Partition] = {}  # in the order of the log
        rows = iter(group.rows)
        for append, offsets in zip(group.appends, group.offsets, strict=True):
            if append.members:
                for partition, row in zip(append.partitions(), rows, strict=False):
                    partition.add(row)
                    grown[partition.id] = partition
                continue
            for _ in offsets:
                append.partition.add(next(rows))
            grown[append.partition.id] = append.partition
        for partition in grown.values():
            if self.ends.get(partition) == partition.high_watermark:
                del self.ends[partition]
        queue.decide(list(zip(group.appends, group.offsets, strict=True)))
        queue.answers.add_call(partial(self._on_commit, grown.keys()))
        self._acceptance.wrote()
        queue.answers.send()
        self._check_settled()

    def _check_settled(self) -> None:
        if self._settled is not None and not self.under_way:
            self._settled.set()
            self._settled = None
