"""Programs with transactions: one that writes, and one that copies with its group's offsets."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from tests.sim.clients import batches
from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.batches import Values
from tests.sim.clients.fetching import COMMITTED, Fetcher, Found, list_offset
from tests.sim.clients.job import Job, Place, TopicPlan
from tests.sim.clients.topics import Topics
from tests.sim.clients.transaction import AbortableError, Output, OverError, Session
from tests.sim.clients.wire import Link, LostError

_COMMITS = 0.85
_CRASHES = 0.01
"""How often it begins a new session with a transaction open, like a program that has crashed."""
_FENCED_S = 5.0
_MOST_COPIES = 10
_MOST_BATCHES = 3


class TransactionalProgram(ABC):
    """Transaction after transaction, with one transactional id."""

    def __init__(self, job: Job, txn_id: str) -> None:
        self.job = job
        self.link = Link(job)
        self.topics = Topics(self.link)
        version = job.random.choice((1, 2, 2))
        self.session = Session(job, self.link, self.topics, txn_id, version=version)
        self._has_session = False

    async def run(self) -> None:
        """Work until cancelled; what is open then stays open."""
        self.job.note("client", phase="start")
        try:
            while True:
                await asyncio.sleep(self.job.pause())
                try:
                    await self._step()
                except LostError:
                    await self.link.back_off()
        finally:
            self.job.note("client", phase="stop")
            self.close()

    def close(self) -> None:
        """Disconnect."""
        self.link.leave()

    async def _step(self) -> None:
        if not self._has_session:
            await self.session.begin()
            await self.begun()
            self._has_session = True
        try:
            await self._transaction()
        except OverError:
            self._has_session = False
            await asyncio.sleep(self.job.random.uniform(0.5, 1.5) * _FENCED_S)

    async def _transaction(self) -> None:
        """One transaction. Raises OverError, LostError (only before it begins)."""
        outputs = await self.outputs()
        if not outputs:
            return
        self.session.begin_transaction()
        commits = self.job.random.random() < _COMMITS
        try:
            for some in outputs:
                await self.session.write(some)
            await self.add_offsets()
            if self.job.random.random() < _CRASHES:
                self._has_session = False
                return
            await self.session.end(commit=commits)
        except AbortableError:
            commits = False
            self._has_session = False  # the next one begins with a new epoch
            await self.session.end(commit=False)
        if not commits:
            self.aborted()

    async def begun(self) -> None:  # noqa: B027 - a hook
        """A session has begun. Raises LostError."""

    @abstractmethod
    async def outputs(self) -> list[list[Output]]:
        """What to write in the next transaction, request by request. Raises LostError."""

    async def add_offsets(self) -> None:  # noqa: B027 - a hook
        """Add offsets of a group. Raises AbortableError, OverError."""

    def aborted(self) -> None:  # noqa: B027 - a hook
        """The last transaction was aborted."""


class TransactionalProducer(TransactionalProgram):
    """Writes to several partitions at once."""

    def __init__(self, job: Job, txn_id: str, topics: list[TopicPlan]) -> None:
        super().__init__(job, txn_id)
        self._plans = topics

    async def outputs(self) -> list[list[Output]]:
        requests = [await self._some() for _ in range(self.job.random.randint(1, _MOST_BATCHES))]
        return list(filter(None, requests))

    async def _some(self) -> list[Output]:
        random = self.job.random
        known = await self.topics.find(*(plan.name for plan in self._plans))
        found: dict[Place, Output] = {}
        for _ in range(random.randint(1, _MOST_BATCHES)):
            plan = random.choice(self._plans)
            topic = known.get(plan.name)
            if topic is not None:
                place = plan.name, random.randrange(topic.partitions)
                values = batches.some_values(self.job, plan, random.randint(1, 3))
                found.setdefault(place, Output(place, topic, values))
        return list(found.values())


class Copier(TransactionalProgram):
    """Copies what a read_committed reader gets, and commits its offsets in the transaction."""

    def __init__(
        self, job: Job, txn_id: str, group: str, sources: list[Place], target: TopicPlan
    ) -> None:
        super().__init__(job, txn_id)
        self._group = group
        self._sources = sources
        self._target = target
        self._reading = Link(job)
        self._of_sources = Topics(self._reading)
        self._calls = Calls(job, self._reading)
        self._fetcher = Fetcher(job, self._reading, self._of_sources, COMMITTED)
        self._before: dict[Place, int] = {}
        """The positions before the transaction."""
        self._copied: dict[Place, int] = {}
        """The positions after it."""

    def close(self) -> None:
        super().close()
        self._reading.leave()

    async def begun(self) -> None:
        """Read on from the committed offsets."""
        found = await self._calls.fetch_offsets(self._group, self._sources)
        while isinstance(found, int):
            await self._reading.back_off()
            found = await self._calls.fetch_offsets(self._group, self._sources)
        wire = await self._reading.ready()
        self._fetcher.positions.clear()
        for place, offset in found.items():
            start = offset if offset >= 0 else await list_offset(self.job, wire, place, "earliest")
            if start is not None:
                self._fetcher.positions[place] = start

    async def outputs(self) -> list[list[Output]]:
        positions = self._fetcher.positions
        if len(positions) < len(self._sources):
            await self.begun()
        self._before = dict(positions)
        found = await self._fetcher.poll()
        topic = (await self.topics.find(self._target.name)).get(self._target.name)
        self._copied = {}
        if topic is None or not found:
            positions.update(self._before)
            return []
        outputs: list[list[Output]] = []
        for place, records in found.items():
            some = records[:_MOST_COPIES]
            self._copied[place] = some[-1][0] + 1
            if len(some) < len(records):
                positions[place] = self._copied[place]
            target = self._target.name, place[1] % topic.partitions
            values = Values([self.job.plan.value() for _ in some], None)
            outputs.append([Output(target, topic, values, _inputs(place, some))])
        return outputs

    async def add_offsets(self) -> None:
        await self.session.add_offsets(self._group, self._copied)

    def aborted(self) -> None:
        """Begin again at the committed offsets, as copy jobs do."""
        self._fetcher.positions.clear()


def _inputs(place: Place, records: Found) -> list[tuple[str, int, int]]:
    return [(*place, offset) for offset, _ in records]
