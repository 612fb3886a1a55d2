"""A client that copies records in transactions, which commit the offsets: exactly once.

It asks whoever takes itself for the owner, repeats what is not answered, and forgets all but its
name now and then. What it is told is in the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol

from quafka_broker.chain.errors import FencedError
from tests.sim.shards.history import History
from tests.sim.shards.ledger import Entry, Kind

_ANSWER_S = 2.0
_PAUSE_S = 0.2
_TRAVEL_S = 0.001, 0.02


class RefusedError(Exception):
    """The owner has another transaction in mind: somebody was told something old."""


class Position(NamedTuple):
    """Where a job is: its last transaction that has ended, and its committed offset."""

    ended: int
    offset: int


class Owner(Protocol):
    """A broker that takes itself for the owner."""

    async def begin(self, job: int) -> Position:
        """End what an earlier life of the job has left open, and everything that it may send still:
        an aborted transaction does. Where the job is then; durable on return.

        Raises:
            FencedError: this broker is no owner.
        """
        ...

    async def write(self, entries: Sequence[Entry]) -> None:
        """Append entries of one transaction, unless the log has them; durable on return.

        Raises:
            RefusedError: they belong to another transaction than the next one, or it has ended
                otherwise.
            FencedError: this broker is no owner.
        """
        ...


class Copier:
    """One job."""

    def __init__(
        self, job: int, owners: Callable[[], Sequence[Owner]], history: History, random: Random
    ) -> None:
        self._job = job
        self._owners = owners
        self._history = history
        self._random = random

    async def run(self) -> None:
        """Live, and live again, for ever."""
        while True:
            try:
                await self._live()
            except RefusedError:
                await asyncio.sleep(_PAUSE_S)

    async def _live(self) -> None:
        position: Position | None = None
        while position is None:
            position = await self._ask()
        self._history.told(self._job, position)
        while self._random.random() < 0.8:
            position = await self._transaction(position)

    async def _ask(self) -> Position | None:
        owner = await self._owner()
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await owner.begin(self._job)
        except (FencedError, TimeoutError):
            await asyncio.sleep(self._random.uniform(0.01, _PAUSE_S))
            return None

    async def _transaction(self, before: Position) -> Position:
        number, count = before.ended + 1, self._random.choice((1, 2, 3))
        values = range(before.offset, before.offset + count)
        for value in values:
            await self._write([Entry(Kind.COPIED, self._job, number, value)])
        commits = self._random.random() < 0.8
        kind = Kind.COMMITTED if commits else Kind.ABORTED
        end = [Entry(kind, self._job, number)]
        after = Position(number, before.offset + count * commits)
        if commits:
            end.append(Entry(Kind.OFFSET, self._job, number, after.offset))
        await self._write(end)
        self._history.told(self._job, after)
        return after

    async def _write(self, entries: Sequence[Entry]) -> None:
        """Write until it is answered."""
        while True:
            owner = await self._owner()
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await owner.write(entries)
                return
            except (FencedError, TimeoutError):
                await asyncio.sleep(self._random.uniform(0.01, _PAUSE_S))

    async def _owner(self) -> Owner:
        while not (owners := self._owners()):
            await asyncio.sleep(_PAUSE_S)
        owner = self._random.choice(owners)
        await asyncio.sleep(self._random.uniform(*_TRAVEL_S))
        return owner
