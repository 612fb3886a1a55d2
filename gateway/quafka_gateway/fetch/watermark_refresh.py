"""The age of the watermarks in answers from memory, and their refresh.

Under a lease, cached records stay true; but partitions grow, and only the broker knows how far.
An answer from memory shows every record that this gateway had acknowledged before the fetch
arrived, and every record older than `MAX_AGE_SECONDS`, whichever gateway acknowledged it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quafka_gateway.fetch.aborted import READ_COMMITTED
from quafka_gateway.fetch.broker_fetch import BrokerFetch
from quafka_gateway.fetch.cached_partition import CachedPartition, PartitionKey
from quafka_mesh_ops.ops.records import FetchOp, FetchOps, FetchOpsResp
from quafka_telemetry.tracing import TraceContext

MAX_AGE_SECONDS = 0.2
"""The greatest age of a watermark in an answer from memory."""
_REFRESH_SECONDS = MAX_AGE_SECONDS / 2
"""From this age on, a use refreshes the watermark in the background: readers need not wait."""
_BYTES = 64 << 10  # of records that have arrived since, in an answer about watermarks


class WatermarkRefresh:
    """Decides whether watermarks are fresh, and asks the broker for those that are not."""

    def __init__(self, broker: BrokerFetch) -> None:
        self._broker = broker
        self._acks = broker.acks
        self._running: dict[PartitionKey, asyncio.Task[FetchOpsResp]] = {}

    def is_fresh(self, partition: CachedPartition, arrived: float) -> bool:
        """Whether the watermarks may answer a fetch that arrived at loop time `arrived`."""
        if partition.requested_at >= arrived:
            return True
        now = asyncio.get_running_loop().time()
        if partition.received_at < now - MAX_AGE_SECONDS:
            return False
        if self._acks.any_since(partition.includes_acks, *partition.key):
            return False
        if partition.received_at < now - _REFRESH_SECONDS and partition.key not in self._running:
            self._begin([partition], None)
        return True

    async def refresh(
        self, partitions: Sequence[CachedPartition], trace: TraceContext | None, *, join: bool
    ) -> None:
        """Refresh the watermarks; with `join`, wait for ops in flight instead of sending others."""
        new = [p for p in partitions if not (join and p.key in self._running)]
        tasks = {self._running[p.key] for p in partitions if join and p.key in self._running}
        if new:
            tasks.add(self._begin(new, trace))
        await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel the ops in flight."""
        tasks = list(dict.fromkeys(self._running.values()))
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
        # Under read_committed, as records come with their aborted transactions.
        op = FetchOps(wanted, 0, 0, _BYTES, isolation_level=READ_COMMITTED, at_least_one=False)
        task = asyncio.ensure_future(self._broker.fetch_accounted(op, trace))
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
            task.exception()  # retrieved: waiting fetches ask the broker themselves
