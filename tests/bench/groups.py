"""Consumer groups, beside Apache Kafka: rebalances, commits, a restart with them all.

The clients are `tests.support.raw_group`, one process that is all members; they cost the same for
both servers, and their own CPU is in a column of its own. CPU is what the server's processes used.

A rebalance is from the moment at which all members join again, as if their heartbeats had just
told them to, until all have their assignments: it waits for no heartbeat and for no delay.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench.peers import Server, UnavailableError, kafka, quafka
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.raw_group import Connection, RawMember, find_coordinator, members

SIZES = (2, 50, 1_000)
COMMITTERS = (1, 64)
COMMIT_SECONDS = 5.0
PARTITIONS = 100
"""Of the topic that is committed in, and in one request of the million."""
WRITERS = 32


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench groups", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--commits", type=int, default=1_000_000, help="before the restart")
    parser.add_argument("--only", default="", help="tables whose name contains this")
    parser.add_argument("--servers", default="quafka,kafka")
    options = parser.parse_args(arguments)
    starters: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
        "quafka": quafka,
        "kafka": kafka,
    }
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[Server] = []
        for name in options.servers.split(","):
            try:
                servers.append(stack.enter_context(starters[name](Path(scratch) / name)))
            except UnavailableError as e:
                print(f"without {name}: {e}")
        asyncio.run(_measure(servers, options))


async def _measure(servers: list[Server], options: argparse.Namespace) -> None:
    for server in servers:
        with RawClient(server.address, 60) as client:
            create_topic(client, "groups", PARTITIONS)
        connection = await Connection.open(server.address)
        await find_coordinator(connection, "warm")
        warm = RawMember(connection, "warm")
        await warm.settle()
        await warm.leave()
    for name, measure in TABLES.items():
        if options.only in name:
            await measure(servers, options)


class Cost:
    """What was used since it was made: seconds, and CPU seconds of the server and of ours."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = time.perf_counter(), server.cpu_seconds(), time.process_time()

    def so_far(self) -> tuple[float, float, float]:
        now = time.perf_counter(), self._server.cpu_seconds(), time.process_time()
        wall, cpu, own = (after - before for before, after in zip(self._began, now, strict=True))
        return wall, cpu, own


# --- rebalance ------------------------------------------------------------------------------


async def _rebalances(servers: list[Server], options: argparse.Namespace) -> None:
    print(f"\n{'rebalance, ms':24}{'median':>10}{'CPU':>10}{'of clients':>12}")
    for size in SIZES:
        groups = {server.name: await _group(server, size) for server in servers}
        costs: dict[str, list[tuple[float, float, float]]] = {s.name: [] for s in servers}
        for _ in range(options.rounds):
            for server in servers:
                cost = Cost(server)
                await _rebalance(groups[server.name])
                costs[server.name].append(cost.so_far())
        for name, taken in costs.items():
            wall, cpu, own = (statistics.median(one) * 1000 for one in zip(*taken, strict=True))
            print(f"{f'{size} members, {name}':24}{wall:10.1f}{cpu:10.1f}{own:12.1f}", flush=True)
        for group in groups.values():
            await _dissolve(group)


async def _group(server: Server, size: int) -> list[RawMember]:
    group = await members(server.address, [f"rebalance-{size}"] * size)
    await asyncio.gather(*(member.settle() for member in group))
    return group


async def _rebalance(group: list[RawMember]) -> None:
    # The leader's joining again is what makes the others'.
    group.sort(key=lambda member: not member.others)
    await asyncio.gather(*(member.settle() for member in group))
    assert len({member.generation for member in group}) == 1
    assert len({member.assignment for member in group}) == len(group)


async def _dissolve(group: list[RawMember]) -> None:
    await asyncio.gather(*(member.leave() for member in group))
    for member in group:
        member.connection.close()


# --- commits --------------------------------------------------------------------------------


async def _commits(servers: list[Server], options: argparse.Namespace) -> None:
    print(f"\n{'commits a second':24}{'median':>10}{'CPU us':>10}{'of clients':>12}")
    for count in COMMITTERS:
        rates: dict[str, list[tuple[float, float, float]]] = {s.name: [] for s in servers}
        for turn in range(options.rounds):
            for server in servers:
                rates[server.name].append(await _commit(server, count, turn))
        for name, taken in rates.items():
            rate, cpu, own = (statistics.median(one) for one in zip(*taken, strict=True))
            label = f"{count} at a time, {name}"
            print(f"{label:24}{rate:10,.0f}{cpu:10.0f}{own:12.0f}", flush=True)


async def _commit(server: Server, count: int, turn: int) -> tuple[float, float, float]:
    """Commits a second, each of one offset and answered; CPU microseconds of one."""
    committers = await members(server.address, [f"commit-{turn}-{n}" for n in range(count)])
    cost, done = Cost(server), 0
    ends = time.perf_counter() + COMMIT_SECONDS

    async def commit(member: RawMember) -> None:
        nonlocal done
        offset = 0
        while time.perf_counter() < ends:
            offset += 1
            assert await member.commit("groups", [offset]) == 0
            done += 1

    await asyncio.gather(*map(commit, committers))
    wall, cpu, own = cost.so_far()
    for member in committers:
        member.connection.close()
    return done / wall, cpu / done * 1e6, own / done * 1e6


# --- restart --------------------------------------------------------------------------------


async def _restart(servers: list[Server], options: argparse.Namespace) -> None:
    # From the kill to the first answer.
    print(f"\n{f'{options.commits:,} offsets':24}{'written s':>10}{'restart s':>10}{'CPU s':>10}")
    for server in servers:
        written = await _write(server, options.commits)
        assert server.restart is not None
        began = time.perf_counter()
        pid = await asyncio.to_thread(server.restart)
        again = replace(server, pids=(pid,))
        (member,) = await members(again.address, ["million-0"])
        found = await _until(member.committed)
        took = time.perf_counter() - began
        assert len(found) == PARTITIONS
        print(f"{server.name:24}{written:10.1f}{took:10.2f}{again.cpu_seconds():10.2f}", flush=True)


async def _write(server: Server, commits: int) -> float:
    """Seconds for so many offsets: a hundred in each request, over and over the same groups."""
    writers = await members(server.address, [f"million-{n}" for n in range(WRITERS)])
    left = commits // PARTITIONS

    async def write(member: RawMember) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            while await member.commit("groups", [left] * PARTITIONS):
                pass  # as clients do: a machine that is too busy answers too late

    began = time.perf_counter()
    await asyncio.gather(*map(write, writers))
    for member in writers:
        member.connection.close()
    return time.perf_counter() - began


Offsets = dict[tuple[str, int], int]


async def _until(ask: Callable[[], Awaitable[Offsets]]) -> Offsets:
    """Ask until the group's coordinator has come back."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await ask()
            except AssertionError:
                await asyncio.sleep(0.02)


TABLES: dict[str, Callable[[list[Server], argparse.Namespace], Awaitable[None]]] = {
    "rebalance": _rebalances,
    "commits": _commits,
    "restart": _restart,
}
