"""Many transactional ids at one broker's state: memory, checkpoints, restarts, and longest turns.

    python -m tests.bench transactions [--ids 100000]

So many ids with an ended transaction, and so many with an open one; each has one record, and no
fsync. A turn is the time between two looks of a task that only sleeps, less its sleep: what a
request would wait for the loop.

First the CPU of one commit by the number of its partitions, of a broker's state alone: the quarter
of the commits that took less is below the figure, so other work on the machine changes it little.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from quafka_broker.config.settings import BrokerConfig
from quafka_broker.leases import Leases
from quafka_broker.state import BrokerState
from quafka_broker.transactions.figures import figures_of
from quafka_broker.wal.disk import RealDisk
from quafka_broker.wal.fsync import FsyncPolicy
from quafka_broker.wal.log import Log
from quafka_loop.garbage import without_gc
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.ops.transactions import ListTransactions
from tests.bench.recovery import resident
from tests.unit.broker.transactional import Sender, call, create

_SIZES = {1: 2_000, 10: 1_000, 100: 300, 1_000: 40}
"""Partitions of a transaction, and the number of transactions."""
_PARTITIONS = 100
_IN_FLIGHT = 200
_LOOK_SECONDS = 0.001


@asynccontextmanager
async def _state(folder: Path, ids: int) -> AsyncGenerator[BrokerState]:
    log = Log(RealDisk(folder), FsyncPolicy(0.0), 1 << 30)
    config = BrokerConfig(data=folder, transaction_max_ids_per_org=2 * ids)
    state = BrokerState(config, log, leases=Leases(10.0))
    begun = time.perf_counter()
    log.open(state.producers)
    opened = time.perf_counter()
    log.start()
    await state.replay_registry()
    await state.start_groups()
    ended = time.perf_counter()
    print(f"  start: log {opened - begun:.2f} s, registry and coordinators {ended - opened:.2f} s")
    try:
        yield state
    finally:
        state.groups.drain()
        await state.close()


async def _longest_turn(what: str, job: Callable[[], Awaitable[object]]) -> None:
    """Do a job, and print its time and the longest turn meanwhile."""
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_LOOK_SECONDS)
            longest = max(longest, time.perf_counter() - before - _LOOK_SECONDS)

    looking = asyncio.create_task(look())
    await asyncio.sleep(_LOOK_SECONDS)
    begun = time.perf_counter()
    await job()
    took = time.perf_counter() - begun
    await asyncio.sleep(2 * _LOOK_SECONDS)
    looking.cancel()
    print(f"  {what}: {took:.2f} s, longest turn {longest * 1e3:.1f} ms")


async def _each(names: Iterable[int], job: Callable[[int], Awaitable[None]]) -> None:
    rest = iter(names)
    while some := list(islice(rest, _IN_FLIGHT)):
        await asyncio.gather(*map(job, some))


async def _write(state: BrokerState, ids: int) -> None:
    await create(state, partitions=_PARTITIONS)

    async def transact(number: int) -> None:
        sender = Sender(state, f"ended-{number}", implicit=True, connection=number + 1)
        await sender.init()
        await sender.write("t", number % _PARTITIONS, b"r")
        assert not await sender.end(commit=bool(number % 10))

    async def begin(number: int) -> None:
        sender = Sender(state, f"open-{number}", implicit=True, connection=number + 1)
        await sender.init(timeout_ms=900_000)
        await sender.write("t", number % _PARTITIONS, b"r")

    for job, what in ((transact, "ended"), (begin, "open")):
        gc.collect()
        before, begun = resident(), time.perf_counter()
        await _each(range(ids), job)
        took = time.perf_counter() - begun
        gc.collect()
        each = (resident() - before) * (1 << 20) / ids
        print(f"  {ids:,} {what}: {ids / took:,.0f}/s, {each:,.0f} bytes each")


async def _look(state: BrokerState, folder: Path) -> None:
    transactions = state.transactions

    async def figures() -> None:
        figures_of(transactions)

    await _longest_turn("figures for metrics", figures)
    await _longest_turn("all ids listed", lambda: call(state, ListTransactions([], [])))
    await _longest_turn("ids expired, none", transactions.forget_unused)
    await _longest_turn("checkpoint", state.log.checkpoint)
    size = max(path.stat().st_size for path in folder.glob("checkpoint-*"))
    print(f"  size of the checkpoint: {size / 1e6:.1f} MB")


async def _commits(folder: Path) -> None:
    async with _state(folder, 100) as state:
        for partitions, rounds in _SIZES.items():
            topic = f"commits-{partitions}"
            await create(state, topic, partitions)
            sender = Sender(state, topic, implicit=True, connection=partitions)
            await sender.init()
            taken: list[float] = []
            for _ in range(rounds):
                parts = [
                    ProduceOp(topic, number, sender.batch(topic, number, bytes(100)))
                    for number in range(partitions)
                ]
                producer = sender.producer
                answer = await call(
                    state, ProduceOps(parts, -1, sender.name, True, producer.connection)
                )
                assert not any(part.error_code for part in answer.partitions)
                began = time.process_time()
                assert not await sender.end()
                taken.append(time.process_time() - began)
                await asyncio.sleep(0)
            print(f"  partitions {partitions:,}: {sorted(taken)[rounds // 4] * 1e6:,.0f} µs")


async def _run(ids: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        print("CPU of a commit")
        await _commits(Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        print("written")
        async with _state(folder, ids) as state:
            await _write(state, ids)
            await _look(state, folder)
        print("from a checkpoint")
        async with _state(folder, ids) as state:
            await _longest_turn("journal restated", lambda: _shorten(state))
        for path in folder.glob("checkpoint-*"):
            path.unlink()
        print("from the log alone")
        async with _state(folder, ids) as state:
            assert len(state.transactions.table.open) == ids

            later = state.transactions.now_ms() + 1_000_000
            state.transactions.now_ms = state.transactions.coordinator.now_ms = lambda: later
            await _longest_turn("all open ones time out", state.transactions.abort_overdue)
            assert not state.transactions.table.open


async def _shorten(state: BrokerState) -> None:
    state.transactions.journal.written = 1 << 62
    await state.transactions.shorten()


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench transactions", description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000)
    with without_gc():  # as in a broker, which collects when it is idle
        asyncio.run(_run(parser.parse_args(arguments).ids))
