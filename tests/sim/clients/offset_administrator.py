"""An administrator of a group without members: sets, reads and deletes its offsets."""

from __future__ import annotations

import asyncio

from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.fetching import list_offset
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.wire import Link, LostError

_SETS, _DELETES = 0.4, 0.1


class OffsetAdministrator:
    """Makes one request after the other."""

    def __init__(self, job: Job, group: str, topics: list[TopicPlan]) -> None:
        self._job = job
        self._group = group
        self._places: list[Place] = [place for topic in topics for place in topic.places]
        self._link = Link(job)
        self._calls = Calls(job, self._link)

    async def run(self) -> None:
        """Work until cancelled."""
        self._job.note("client", phase="start")
        try:
            while True:
                await asyncio.sleep(self._job.pause())
                try:
                    await self._step()
                except LostError:
                    await self._link.back_off()
        finally:
            self._job.note("client", phase="stop")
            self._link.leave()

    async def _step(self) -> None:
        random = self._job.random
        some = random.sample(self._places, random.randint(1, len(self._places)))
        what = random.random()
        if what < _DELETES:
            await self._calls.delete_offsets(self._group, some)
        elif what < _DELETES + _SETS:
            await self._set(some)
        else:
            await self._calls.fetch_offsets(self._group, some)

    async def _set(self, places: list[Place]) -> None:
        wire = await self._link.ready()
        offsets: dict[Place, int] = {}
        for place in places:
            end = await list_offset(self._job, wire, place, "latest")
            if end is not None:
                offsets[place] = self._job.random.randint(0, end)
        if offsets:
            await self._calls.commit_offsets(self._group, offsets)
