"""What members of consumer groups have in common: owned partitions, positions and commits."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from quafka_proto.errors import ErrorCode as E
from quafka_proto.schema.groups import FindCoordinatorRequest, FindCoordinatorResponse
from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.answers import NO_MEMBER
from tests.sim.clients.fetching import ISOLATIONS, Fetcher, list_offset
from tests.sim.clients.job import Job, Place
from tests.sim.clients.topics import Topics
from tests.sim.clients.wire import Link, LostError

REBALANCE_S = 10.0
"""The time that members have to give partitions up (max.poll.interval.ms)."""
_AUTO_COMMIT_S = 5.0
_IDLE_S = 1.0
_LEAVE_S = 5.0
_FRUITLESS = 5


class GroupMember(ABC):
    """A consumer whose partitions are assigned by its group.

    Fetches and the group's requests have a connection each. Only the notes of `gain`, `release` and
    `lose` change what it owns.
    """

    protocol: str

    def __init__(self, job: Job, group: str, topics: list[str]) -> None:
        """Joins when it runs."""
        self.job = job
        self.group = group
        self.subscription = sorted(topics)
        self.member = ""
        self.epoch = -1
        """Generation or member epoch."""
        self.owned: set[Place] = set()
        self.link = Link(job)
        self.coordinator = Link(job)
        self.topics = Topics(self.link)
        self._calls = Calls(job, self.coordinator)
        isolation = job.random.choice(ISOLATIONS)
        sessions = job.random.random() < 0.5
        self._fetcher = Fetcher(job, self.link, self.topics, isolation, sessions=sessions)
        self._commits_itself = job.random.random() < 0.5
        self._committed: dict[Place, int] = {}
        self._commit_due = 0.0
        self._claims = 0
        """Changes with every change of `owned`."""
        self._fruitless = 0

    async def run(self) -> None:
        """Work until cancelled; then leave the group."""
        self.job.note("client", phase="start")
        beats = asyncio.create_task(self._beats())
        try:
            while True:
                if beats.done():
                    beats.result()
                try:
                    await self._step()
                except LostError:
                    await self.link.back_off()
        except asyncio.CancelledError:
            with suppress(LostError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._leave()
            raise
        finally:
            beats.cancel()
            self.job.note("client", phase="stop")
            self.link.leave()
            self.coordinator.leave()

    @abstractmethod
    async def _step(self) -> None:
        """Join if necessary; otherwise take part in rebalances and work. Raises LostError."""

    @abstractmethod
    async def _beats(self) -> None:
        """Heartbeats, for ever."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the group. Raises LostError."""

    # --- what it owns -----------------------------------------------------------------------

    def gain(self, places: Iterable[Place]) -> None:
        """Process these, too, from now on."""
        if new := sorted(places):
            self._note("gained", new)
            self.owned.update(new)

    def release(self, places: Iterable[Place], *, leaving: bool = False) -> None:
        """Do not process these any more; the coordinator does not know yet."""
        if old := sorted(places):
            self._note("released", old, **({"leaving": True} if leaving else {}))
            for place in old:
                self.owned.discard(place)
                self._fetcher.positions.pop(place, None)
                self._committed.pop(place, None)

    def lose(self) -> None:
        """The coordinator says that this is no member."""
        self._claims += 1
        self.job.note("lost", group=self.group, member=self.member)
        self.owned.clear()
        self._fetcher.positions.clear()
        self._committed.clear()

    def _note(self, op: str, places: list[Place], **fields: bool) -> None:
        self._claims += 1
        self.job.note(
            op,
            group=self.group,
            protocol=self.protocol,
            member=self.member,
            epoch=self.epoch,
            partitions=[list(place) for place in places],
            **fields,
        )

    # --- work -------------------------------------------------------------------------------

    async def work(self) -> None:
        """Fetch from the owned partitions, and commit now and then. Raises LostError."""
        if self.owned:
            await self._locate()
            await self._fetcher.poll()
            now = asyncio.get_running_loop().time()
            manual = not self._commits_itself and self.job.random.random() < 0.3
            if manual or (self._commits_itself and now >= self._commit_due):
                self._commit_due = now + _AUTO_COMMIT_S
                await self.commit()
            await asyncio.sleep(self.job.pause())
        else:
            await self._look()
            await asyncio.sleep(_IDLE_S)

    async def commit(self) -> None:
        """Commit the positions that have changed. Raises LostError."""
        positions = self._fetcher.positions
        new = {
            place: positions[place]
            for place in sorted(self.owned)
            if place in positions and self._committed.get(place) != positions[place]
        }
        if not new:
            return
        member = self.member, self.epoch
        code = await self._calls.commit_offsets(self.group, new, member)
        if not code:
            self._committed.update((place, at) for place, at in new.items() if place in self.owned)
        elif member == (self.member, self.epoch):
            self.refused(code)

    def refused(self, code: int) -> None:
        """A request of the member was answered with an error."""
        if code in NO_MEMBER:
            self.lose()

    async def find_coordinator(self) -> bool:
        """Ask for the group's coordinator; false: there is none yet. Raises LostError."""
        request = FindCoordinatorRequest(key=self.group, coordinator_keys=[self.group])
        answer = await self.coordinator.call(request, FindCoordinatorResponse)
        if not answer.coordinators[0].error_code:
            self._fruitless = 0
            return True
        self._fruitless += 1
        if self._fruitless % _FRUITLESS == 0:
            self.coordinator.leave()
        await self.coordinator.back_off()
        return False

    async def _locate(self) -> None:
        """Find out where to read on in partitions that are new."""
        positions = self._fetcher.positions
        for place in [place for place in positions if place not in self.owned]:
            del positions[place]
        new = [place for place in sorted(self.owned) if place not in positions]
        if not new:
            return
        claims = self._claims
        found = await self._calls.fetch_offsets(self.group, new, self._of_member())
        if isinstance(found, int):
            if claims == self._claims:
                self.refused(found)
            await self.coordinator.back_off()
            return
        wire = await self.link.ready()
        for place, offset in found.items():
            at = offset
            if at < 0:
                start = await list_offset(self.job, wire, place, "earliest")
                if start is None:
                    continue
                at = start
            if claims == self._claims:
                positions[place] = at

    def _of_member(self) -> tuple[str, int] | None:
        """What OffsetFetch is checked against."""
        return None

    async def _look(self) -> None:
        """Something to do without partitions."""
        topics = await self.topics.find(*self.subscription)
        places = [(name, n) for name, topic in topics.items() for n in range(topic.partitions)]
        if places:
            await self._calls.fetch_offsets(self.group, places)


STALE = frozenset({E.STALE_MEMBER_EPOCH, E.REBALANCE_IN_PROGRESS})
"""The member is behind, and will hear of it with its next heartbeat."""
