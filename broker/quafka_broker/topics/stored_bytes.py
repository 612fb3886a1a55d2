"""Counts the bytes of an org's topics in the log, for orgs with a limit in their record.

Appended bytes count at once. Bytes deleted by retention, compaction or a client are subtracted at
the next recount.
"""

from __future__ import annotations

import asyncio

from quafka_broker.topics.registry import Registry
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.log import Log
from quafka_loop.slices import Slices

NO_LIMIT = (1 << 63) - 1
_RECOUNT_SECONDS = 5.0
_PER_SLICE = 1_000


class StoredBytes:
    """Counts the bytes of the limited orgs only."""

    def __init__(self, wal: Log, registry: Registry) -> None:
        self._wal = wal
        self._registry = registry
        self._limits: dict[int, int] = {}
        self._used: dict[int, int] = {}

    def limit_org(self, org: int, limit: int) -> None:
        """Set an org's limit; NO_LIMIT: none."""
        if limit == NO_LIMIT:
            self._limits.pop(org, None)
            self._used.pop(org, None)
            return
        self._limits[org] = limit
        if org not in self._used:
            self._used[org] = sum(map(self._size, self._registry.topics(org)))

    def limit_reached(self, org: int, more: int) -> bool:
        """Whether an append would exceed an org's limit; if not, its bytes count from now on."""
        limit = self._limits.get(org)
        if limit is None:
            return False
        if self._used[org] + more > limit:
            return True
        self._used[org] += more
        return False

    async def run(self) -> None:
        """Recount periodically."""
        while True:
            await asyncio.sleep(_RECOUNT_SECONDS)
            for org in list(self._limits):
                await self._recount(org)

    async def _recount(self, org: int) -> None:
        before = self._used.get(org)
        slices = Slices(_PER_SLICE)
        found = 0
        for topic in self._registry.topics(org):
            found += self._size(topic)
            await slices.done(topic.partitions)
        now = self._used.get(org)
        if before is not None and now is not None:
            # Bytes appended meanwhile may count twice until the next recount.
            self._used[org] = found + now - before

    def _size(self, topic: Topic) -> int:
        partitions = (
            self._wal.partitions.find(topic.partition_id(n)) for n in range(topic.partitions)
        )
        return sum(found.batches.size for found in partitions if found is not None)
