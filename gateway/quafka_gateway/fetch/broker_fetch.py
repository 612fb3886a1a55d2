"""Fetches from one broker into the cache: the bottom of the fetch path.

Shared polls, the backfill and the watermark refresh all read through this. An answer is kept only
if the lease was valid and nothing changed while the op was in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.file_slice import base_offset
from quafka_gateway.fetch.lease import LeaseGrantor, ReadLease
from quafka_gateway.fetch.produce_acks import Moment, ProduceAcks
from quafka_gateway.memory import OrgResponses
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_telemetry.tracing import ProducedBy, TraceContext, parse_traceparent


class ReadableBroker(LeaseGrantor, Protocol):
    """The broker that is read from."""

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Never raises: errors are in the answers."""
        ...


class BrokerFetch:
    """One broker, and what may be kept of its answers."""

    def __init__(
        self,
        broker: ReadableBroker,
        memory: OrgResponses,
        cache: FetchCache,
        lease: ReadLease,
        acks: ProduceAcks,
    ) -> None:
        self.lease = lease
        self.acks = acks
        self._broker = broker
        self._memory = memory
        self._cache = cache
        self._produced_by = ProducedBy()

    async def fetch(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """Send the op, and keep its answer if it may be served again.

        The caller accounts for the memory of the answer. Never raises.
        """
        generation = self.lease.generation
        requested_at, moment = asyncio.get_running_loop().time(), self.acks.now
        answer = await self._broker.fetch(op, trace)
        for wanted, part in zip(op.partitions, answer.partitions, strict=True):
            if part.produced_by:
                self._keep_traces(wanted, part)
        # With `leased` false the broker says that the answer may be old already.
        if answer.leased and generation == self.lease.generation and self.lease.valid:
            self._keep(op, answer, requested_at, moment)
        return answer

    async def fetch_accounted(self, op: FetchOps, trace: TraceContext | None) -> FetchOpsResp:
        """As `fetch`, with `max_bytes` held in the response memory meanwhile."""
        self._memory.hold(op.max_bytes)
        try:
            return await self.fetch(op, trace)
        finally:
            self._memory.release(op.max_bytes)

    def produced_by(self, op: FetchOp, answer: FetchOpResp) -> Iterator[TraceContext]:
        """The traces that wrote the batches of an answer, as far as they are known."""
        cached = None if answer.topic_id or op.topic_id else self._cache.find(op)
        topic_id = answer.topic_id or op.topic_id or (cached.key.topic_id if cached else b"")
        for batch in answer.records:
            trace = self._produced_by.find((topic_id, op.partition), base_offset(batch))
            if trace is not None:
                yield trace

    def _keep(
        self, op: FetchOps, answer: FetchOpsResp, requested_at: float, moment: Moment
    ) -> None:
        now = asyncio.get_running_loop().time()
        alone = sum(bool(part.records) for part in answer.partitions) == 1
        for wanted, part in zip(op.partitions, answer.partitions, strict=True):
            if not part.error_code and part.diverging_epoch is None:
                self._cache.store(
                    wanted,
                    part,
                    now,
                    requested_at=requested_at,
                    includes_acks=moment,
                    alone=alone,
                )

    def _keep_traces(self, op: FetchOp, answer: FetchOpResp) -> None:
        partition = answer.topic_id or op.topic_id, op.partition
        for each in answer.produced_by or ():
            trace = parse_traceparent(each.traceparent)
            if trace is not None:
                self._produced_by.record(partition, each.base_offset, trace)
