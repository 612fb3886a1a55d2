"""A stream on the live log in the object store, as Spark reads it: batch after batch."""

from __future__ import annotations

import asyncio

from pyspark_quafka.errors import SnapshotNotFoundError
from pyspark_quafka.options import READ_COMMITTED, READ_UNCOMMITTED
from pyspark_quafka.stream_planner import StreamPlanner, StreamPosition
from tests.sim.clients.fetching import Found
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.lake import RETRIED, options_of, rows_of

_AGAIN = 0.03
"""How often a new stream begins from the start."""


class LiveReader:
    """Reads all partitions of some topics, without any gateway."""

    def __init__(self, job: Job, topics: list[TopicPlan]) -> None:
        self._job = job
        self._isolation = job.random.choice((READ_UNCOMMITTED, READ_COMMITTED))
        self._options = options_of(
            (topic.name for topic in topics),
            streaming=True,
            startingOffsets="earliest",
            failOnDataLoss="false",
            isolation=self._isolation,
        )
        self._stream: tuple[StreamPlanner, StreamPosition] | None = None
        """What plans batches, and where the next one begins."""

    async def run(self) -> None:
        """Work until cancelled."""
        self._job.note("client", phase="start")
        try:
            while True:
                await asyncio.sleep(self._job.pause())
                await self._step()
        finally:
            self._job.note("client", phase="stop")

    async def _step(self) -> None:
        if self._stream is None:
            try:
                self._stream = await asyncio.to_thread(self._begin)
            except RETRIED:
                return
        await self._batch(*self._stream)

    async def _batch(self, planner: StreamPlanner, start: StreamPosition) -> None:
        calls = {
            (topic, partition): self._call(topic, partition, position)
            for topic, its in start.offsets.items()
            for partition, position in its.items()
        }
        try:
            end, found = await asyncio.to_thread(_read, planner, start)
        except RETRIED as e:
            for call in calls.values():
                self._job.history.unknown(call, type(e).__name__)
            if isinstance(e, SnapshotNotFoundError):
                self._stream = None
            return
        for (topic, partition), call in calls.items():
            after = end.offsets[topic][partition]
            self._job.history.ok(call, records=found.get((topic, partition), []), next=after)
        self._stream = (planner, end) if self._job.random.random() > _AGAIN else None

    def _call(self, topic: str, partition: int, position: int) -> int:
        return self._job.call(
            "read",
            topic=topic,
            partition=partition,
            position=position,
            isolation=self._isolation,
            reader="live",
        )

    def _begin(self) -> tuple[StreamPlanner, StreamPosition]:
        planner = StreamPlanner(self._options)
        return planner, planner.initial()


def _read(
    planner: StreamPlanner, start: StreamPosition
) -> tuple[StreamPosition, dict[Place, Found]]:
    end = planner.latest(start)
    return end, rows_of(planner.plan(start, end))
