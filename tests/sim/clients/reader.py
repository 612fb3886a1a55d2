"""A consumer with assigned partitions: in both isolations, now and then from the start again."""

from __future__ import annotations

import asyncio

from tests.sim.clients.fetching import ISOLATIONS, Fetcher, list_offset
from tests.sim.clients.job import Job, TopicPlan
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError

_AGAIN, _LATEST = 0.01, 0.05
"""How often it reads from the start again, and asks for an end."""


class SimpleReader:
    """Reads all partitions of some topics."""

    def __init__(self, job: Job, topics: list[TopicPlan]) -> None:
        self._job = job
        self._plans = topics
        self._link = Link(job)
        self._topics = Topics(self._link)
        self._fetcher = Fetcher(
            job,
            self._link,
            self._topics,
            job.random.choice(ISOLATIONS),
            sessions=job.random.random() < 0.6,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        self._job.note("client", phase="start")
        try:
            while True:
                try:
                    await self._poll()
                except LostError:
                    await self._link.back_off()
                await asyncio.sleep(self._job.pause())
        finally:
            self._job.note("client", phase="stop")
            self._link.leave()

    async def _poll(self) -> None:
        job, positions = self._job, self._fetcher.positions
        topics = await self._topics.find(*(plan.name for plan in self._plans))
        new = [
            place
            for name, topic in topics.items()
            for partition in range(topic.partitions)
            if (place := (name, partition)) not in positions
        ]
        await self._fetcher.start(new)
        if positions and job.random.random() < _LATEST:
            at = job.random.choice(("earliest", "latest", "latest_committed"))
            wire, place = await self._link.ready(), job.random.choice(list(positions))
            await list_offset(job, wire, place, at)
        if positions and job.random.random() < _AGAIN:
            await self._fetcher.start([job.random.choice(list(positions))])
        if not await self._fetcher.poll():
            self._topics.forget(*topics) if job.random.random() < _AGAIN else None
