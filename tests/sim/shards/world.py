"""A run: some brokers, a reader, a store, and everything that goes wrong, from one seed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from random import Random
from unittest.mock import patch

from quafka_broker.chain import attempts, chain, takeover
from tests.sim.shards import virtual_time
from tests.sim.shards.broker import Pace, SimulatedBroker, read_log
from tests.sim.shards.copier import Copier
from tests.sim.shards.history import History
from tests.sim.shards.store import LATE_S, Objects, Process, SimulatedStore, Weather

_SECONDS = 12.0


@dataclass(frozen=True)
class Result:
    """What a run has come to.

    Attributes:
        violations: what must not happen, and did.
        acknowledged: records.
        trace: a summary that is the same in each run of a seed.
        transactions: those whose end a job was told of.
    """

    seed: int
    violations: list[str]
    acknowledged: int
    takeovers: int
    trace: tuple[int, int, int]
    transactions: int = 0


def simulate(seed: int) -> Result:
    """Run a world. Small windows are as good as large ones, and quicker."""
    random = Random(seed)
    window = random.choice((1, 2, 3, 3, 4, 16))
    logging.disable()
    try:
        with (
            patch.object(attempts, "jitter", Random(seed)),
            patch.object(chain, "WINDOW", window),
            patch.object(takeover, "WINDOW", window),
        ):
            return virtual_time.run(World(seed, random).run())
    finally:
        logging.disable(logging.NOTSET)


class World:
    """Everything in one run."""

    def __init__(self, seed: int, random: Random) -> None:
        self._seed = seed
        self._random = random
        self._objects = Objects()
        self._history = History()
        self._weather = _weather(random)
        self._pace = Pace(
            append_s=random.choice((0.1, 0.3, 0.8)),
            checkpoint_s=random.choice((0.5, 1.5)),
            collect_s=random.choice((0.3, 1.0)),
        )
        self._brokers: dict[str, SimulatedBroker] = {}
        self._lives: list[asyncio.Task[None]] = []

    async def run(self) -> Result:
        """Let everything go wrong for a while; then read the log in good weather."""
        loop = asyncio.get_running_loop()
        for number in range(self._random.choice((1, 2, 2, 3, 4))):
            self._start(f"broker {number}")
        beside = [self._live(self._read())]
        for job in range(self._random.choice((0, 1, 2, 3))):
            copier = Copier(job, self._owners, self._history, self._random)
            beside.append(self._live(copier.run()))
        while loop.time() < _SECONDS:
            await asyncio.sleep(self._random.expovariate(1 / 0.7))
            self._trouble()
        for broker in self._brokers.values():
            broker.kill()
        for each in beside:
            each.cancel()
        await self._calm()
        log = await self._last_owner()
        violations = self._history.check(log)
        found = (len(log), self._objects.writes, round(loop.time() * 1e6))
        history = self._history
        return Result(
            self._seed, violations, history.count, history.takeovers, found, history.committed
        )

    def _owners(self) -> list[SimulatedBroker]:
        """All that take themselves for the owner; also some that sleep, or are fenced."""
        return [each for each in self._brokers.values() if each.chain is not None]

    def _start(self, name: str) -> None:
        process = Process(name)
        if self._random.random() < 0.3:
            process.steps_left = self._random.randrange(5, 120)
        process.clock_error_s = self._random.choice((0.0, 0.0, -30.0, 30.0))
        store = self._store(process)
        broker = SimulatedBroker(process, store, self._history, self._pace, self._random)
        self._brokers[name] = broker
        self._live(broker.run())

    def _live(self, life: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(life)
        task.add_done_callback(self._history.ended)
        self._lives.append(task)
        return task

    def _store(self, process: Process) -> SimulatedStore:
        return SimulatedStore(self._objects, process, self._weather, self._random)

    def _trouble(self) -> None:
        """One thing that happens to one broker, or to the store."""
        broker = self._random.choice(list(self._brokers.values()))
        match self._random.randrange(8):
            case 0:
                broker.kill()
            case 1 | 2:
                broker.process.pause(self._random.choice((0.3, 2.0, 6.0)))
            case 3:
                broker.is_hasty = True
            case 4:
                broker.process.clock_error_s += self._random.uniform(-60, 60)
            case 5:
                self._weather.outage = not self._weather.outage
                asyncio.get_running_loop().call_later(
                    self._random.choice((0.1, 1.0, 4.0)), self._clear
                )
            case 6:
                self._live(broker.release())
            case _:
                for each in self._brokers.values():
                    each.is_hasty = True
        if broker.process.is_dead:
            self._start(broker.process.name)

    def _clear(self) -> None:
        self._weather.outage = False

    async def _read(self) -> None:
        store = self._store(Process("reader"))
        while True:
            await asyncio.sleep(self._random.expovariate(1 / 1.0))
            log = await read_log(store)
            if log is not None:
                self._history.read(log)

    async def _calm(self) -> None:
        """No more trouble, and nothing is under way any more."""
        for field in fields(Weather):
            setattr(self._weather, field.name, field.default)
        await asyncio.sleep(2 * LATE_S)

    async def _last_owner(self) -> list[int]:
        process = Process("the last one")
        broker = SimulatedBroker(
            process, self._store(process), self._history, self._pace, self._random
        )
        broker.is_hasty = True
        life = self._live(broker.run())
        acknowledged = self._history.count
        until = asyncio.get_running_loop().time() + 30
        while self._history.count == acknowledged and not life.done():
            assert asyncio.get_running_loop().time() < until, "the shard cannot be taken over"
            await asyncio.sleep(0.1)
        if life.done():
            life.result()
        broker.kill()
        await asyncio.sleep(1)
        log = await read_log(self._store(Process("the last reader")))
        assert log is not None
        return log


def _weather(random: Random) -> Weather:
    """From calm to terrible."""
    worst = random.choice((0.0, 0.02, 0.08, 0.15))
    weather = Weather()
    for field in fields(Weather):
        if field.name != "outage":
            setattr(weather, field.name, random.uniform(0, worst))
    if random.random() < 0.3:
        weather.nap = random.uniform(0.05, 0.15)
    return weather
