"""How old the watermarks in an answer from memory may be, and asking for them again.

Under a lease, what was read stays true; but partitions grow, and only the broker knows how far.
An answer from memory shows every record whose produce this gateway had acknowledged when the
fetch came, and every record that is older than `MAX_AGE_SECONDS`, whoever acknowledged it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quafka_gateway.fetch.acknowledged import Acknowledged
from quafka_gateway.fetch.cache import CachedPartition, PartitionKey
from quafka_gateway.fetch.shared_polls import Ask
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry.tracing import TraceContext

MAX_AGE_SECONDS = 0.2
"""How long ago a watermark was heard at most, when it is in an answer from memory."""
_SOON_SECONDS = MAX_AGE_SECONDS / 2
"""From this age on it is asked for in the background, so that readers need not wait for it."""
_BYTES = 64 << 10  # of records that have come since, in an answer about watermarks


class Watermarks:
    """Whether the watermarks of partitions are fresh, and questions about those that are not."""

    def __init__(self, ask: Ask, acknowledged: Acknowledged) -> None:
        """`ask` puts its answers into the cache, if they may be kept."""
        self._ask = ask
        self._acknowledged = acknowledged
        self._running: dict[PartitionKey, asyncio.Task[FetchOpsResp]] = {}

    def is_fresh(self, partition: CachedPartition, arrived: float) -> bool:
        """Whether a fetch that came at loop time `arrived` may be answered with them."""
        if partition.asked >= arrived:
            return True
        now = asyncio.get_running_loop().time()
        if partition.heard < now - MAX_AGE_SECONDS:
            return False
        if self._acknowledged.since(partition.told, *partition.key):
            return False
        if partition.heard < now - _SOON_SECONDS and partition.key not in self._running:
            self._begin([partition], None)
        return True

    async def ask_again(
        self, partitions: Sequence[CachedPartition], trace: TraceContext | None, *, join: bool
    ) -> None:
        """Ask for these; with `join`, wait for questions that are on their way instead."""
        new = [p for p in partitions if not (join and p.key in self._running)]
        tasks = {self._running[p.key] for p in partitions if join and p.key in self._running}
        if new:
            tasks.add(self._begin(new, trace))
        await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop asking."""
        tasks = set(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(
        self, partitions: Sequence[CachedPartition], trace: TraceContext | None
    ) -> asyncio.Task[FetchOpsResp]:
        wanted = [
            FetchOp("", p.key.partition, p.high_watermark, _BYTES, p.key.topic_id)
            for p in partitions
        ]
        op = FetchOps(wanted, max_wait_ms=0, min_bytes=0, max_bytes=_BYTES, at_least_one=False)
        task = asyncio.ensure_future(self._ask(op, trace))
        for p in partitions:
            self._running[p.key] = task
        task.add_done_callback(lambda task: self._over(task, partitions))
        return task

    def _over(
        self, task: asyncio.Task[FetchOpsResp], partitions: Sequence[CachedPartition]
    ) -> None:
        for p in partitions:
            if self._running.get(p.key) is task:
                del self._running[p.key]
        if not task.cancelled():
            task.exception()  # those who wait ask the broker for themselves
