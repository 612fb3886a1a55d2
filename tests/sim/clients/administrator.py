"""An administrator: topics come, grow and go; configs, deleted records, listings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.fetching import ISOLATIONS, Fetcher, list_offset
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError

_MOST_PARTITIONS = 6
_LOOKS = 2
"""What the first fetch has found may be in memory for the second."""
_CONFIGS = {
    "max.message.bytes": ("1000000", "900000", None),
    "min.cleanable.dirty.ratio": ("0.4", "0.6", None),
    "segment.ms": ("600000", "700000", None),
}
"""Those that clients do not notice."""


class Administrator:
    """Makes one request after the other."""

    def __init__(self, job: Job, *, deletes_records: bool = True) -> None:
        self._job = job
        self._link = Link(job)
        self._calls = Calls(job, self._link)
        self._other_link = Link(job)
        self._reader = Fetcher(
            job, self._other_link, Topics(self._other_link), job.random.choice(ISOLATIONS)
        )
        lasting = [topic for topic in job.plan.topics if topic.lasts]
        self._lasting = lasting
        self._passing = [topic for topic in job.plan.topics if not topic.lasts]
        self._deletable = [topic for topic in lasting if deletes_records and not topic.is_compacted]
        self._ops: list[Callable[[], Awaitable[object]]] = [
            self._describe,
            self._describe,
            self._calls.list_topics,
            self._alter_config,
            self._describe_config,
            self._describe_config,
            self._list_offset,
            self._list_offset,
            *([self._create, self._create, self._delete] if self._passing else []),
            *([self._grow] if lasting else []),
            *([self._delete_records] if self._deletable else []),
        ]

    async def run(self) -> None:
        """Work until cancelled."""
        self._job.note("client", phase="start")
        try:
            while True:
                await asyncio.sleep(self._job.pause())
                try:
                    await self._job.random.choice(self._ops)()
                except LostError:
                    await self._link.back_off()
        finally:
            self._job.note("client", phase="stop")
            self._link.leave()
            self._other_link.leave()

    def _any(self, of: list[TopicPlan]) -> TopicPlan:
        return self._job.random.choice(of)

    def _any_place(self, of: list[TopicPlan]) -> Place:
        return self._job.random.choice(self._any(of).places)

    async def _describe(self) -> None:
        await self._calls.describe(self._any([*self._lasting, *self._passing]).name)

    async def _create(self) -> None:
        topic = self._any(self._passing)
        await self._calls.create(topic.name, topic.partitions, topic.configs)

    async def _delete(self) -> None:
        await self._calls.delete(self._any(self._passing).name)

    async def _grow(self) -> None:
        topic = self._any(self._lasting)
        if self._job.random.random() < 0.9:
            return
        now = await self._calls.describe(topic.name)
        if now is not None and now < _MOST_PARTITIONS:
            await self._calls.add_partitions(topic.name, now + 1)

    async def _alter_config(self) -> None:
        name = self._job.random.choice(list(_CONFIGS))
        value = self._job.random.choice(_CONFIGS[name])
        await self._calls.alter_config(f"topic:{self._any(self._lasting).name}", name, value)

    async def _describe_config(self) -> None:
        name = self._job.random.choice(list(_CONFIGS))
        await self._calls.describe_config(f"topic:{self._any(self._lasting).name}", name)

    async def _list_offset(self) -> None:
        at = self._job.random.choice(("earliest", "latest", "latest_committed"))
        await list_offset(self._job, await self._link.ready(), self._any_place(self._lasting), at)

    async def _delete_records(self) -> None:
        if self._job.random.random() < 0.6:
            return
        place = self._any_place(self._deletable)
        wire = await self._link.ready()
        first = await list_offset(self._job, wire, place, "earliest")
        end = await list_offset(self._job, wire, place, "latest_committed")
        if first is not None and end is not None and first < end:
            offset = self._job.random.randint(first, (first + end) // 2)
            await self._look(place, first)
            await self._calls.delete_records(place, offset)
            await self._look(place, first)

    async def _look(self, place: Place, offset: int) -> None:
        """Read on another connection, so that its gateway, too, may have the records in memory."""
        for _ in range(_LOOKS):
            self._reader.positions = {place: offset}
            await self._reader.poll(wait_ms=0)
