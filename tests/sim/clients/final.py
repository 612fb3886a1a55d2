"""The end of a run: everything is read once more, in both isolations, and the groups' offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.fetching import ISOLATIONS, Fetcher, list_offset
from tests.sim.clients.job import Job, Place
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError

_STABLE_S = 60.0
"""For so long transactions that nobody ends may stay open."""


class FinalReader:
    """Reads all partitions of a plan's topics from log start to high watermark."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._link = Link(job)
        self._topics = Topics(self._link)
        self._calls = Calls(job, self._link)

    async def run(self) -> None:
        """Read everything; returns when it is done."""
        places: list[Place] = []
        await self._until_done(partial(self._find, places))
        for place in places:
            await self._until_done(partial(self._of_existing, place, self._await_stable))
        for isolation in ISOLATIONS:
            for place in places:
                read = partial(self._read, isolation=isolation)
                await self._until_done(partial(self._of_existing, place, read))
        for group, names in self._job.plan.groups.items():
            its = [place for place in places if place[0] in names]
            if its:
                await self._until_done(partial(self._fetch_offsets, group, its))
        self._link.leave()

    async def _until_done(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Try a step until it works; it begins anew each time."""
        while True:
            try:
                if await step():
                    self._link.works()
                    return
            except LostError:
                self._link.leave()
            await self._link.back_off()

    async def _find(self, places: list[Place]) -> bool:
        names = [topic.name for topic in self._job.plan.topics]
        found = await self._topics.find(*names)
        places[:] = [(name, n) for name, topic in found.items() for n in range(topic.partitions)]
        return all(topic.name in found for topic in self._job.plan.topics if topic.lasts)

    async def _of_existing(self, place: Place, step: Callable[[Place], Awaitable[bool]]) -> bool:
        """Try a step; it is done if the topic has gone: a deletion may take effect late."""
        if await step(place):
            return True
        name = place[0]
        if self._job.plan.topic(name).lasts:
            return False
        self._topics.forget(name)
        return name not in await self._topics.find(name)

    async def _await_stable(self, place: Place) -> bool:
        """Wait until no transaction is open in a partition."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _STABLE_S
        wire = await self._link.ready()
        while loop.time() < give_up:
            end = await list_offset(self._job, wire, place, "latest")
            stable = await list_offset(self._job, wire, place, "latest_committed")
            if end is None or stable is None:
                return False
            if stable == end:
                return True
            await asyncio.sleep(1.0)
        return True

    async def _read(self, place: Place, isolation: str) -> bool:
        fetcher = Fetcher(self._job, self._link, self._topics, isolation)
        fetcher.fields = {"final": True}
        await fetcher.start([place], "earliest")
        while place in fetcher.positions:
            before = fetcher.positions[place]
            await fetcher.poll(wait_ms=0)
            if (last := fetcher.last.get(place)) is None:
                return False
            if fetcher.positions[place] >= last.high_watermark:
                return True
            if fetcher.positions[place] == before:  # the rest is undecided
                return isolation == ISOLATIONS[1] and last.last_stable_offset <= before
        return False

    async def _fetch_offsets(self, group: str, places: list[Place]) -> bool:
        return not isinstance(await self._calls.fetch_offsets(group, places), int)


async def final_reads(job: Job) -> None:
    """Read everything once more; for the end of a run, when nobody else works any more."""
    await FinalReader(job).run()
