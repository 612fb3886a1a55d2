"""`python -m tests.bench new_groups`: consumer groups of KIP-848 and share groups, beside Kafka.

The clients are raw connections in one process (`tests.support.raw_new_groups`), which cost the same
for both servers. CPU is what the server's processes used.

- A group is **stable** when all members have one epoch and every partition of the topic has one
  owner. All members join at once, and each sends its next heartbeat as soon as it has the answer to
  the last one: no heartbeat interval is waited for.
- **Heartbeats** are of stable members, one outstanding each.
- **Share groups** read records of 100 bytes, which are there before the measurement; each consumer
  accepts what it has with its next ShareFetch of up to 500 records.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests.bench.groups import Cost
from tests.bench.peers import Server, UnavailableError, kafka, quafka
from tests.support.kafka_calls import VERSION, create_topic, produce_request
from tests.support.raw_client import RawClient
from tests.support.raw_group import Connection, find_coordinator
from tests.support.raw_new_groups import RawConsumer, RawShareConsumer

SIZES = (2, 50, 1_000)
PARTITIONS = 10_000
WIDE = [f"wide-{number}" for number in range(10)]
"""The topics that have them."""
BEATERS, BEAT_SECONDS = 50, 3.0
READERS = (1, 10, 100)
SHARE_PARTITIONS, SHARE_RECORDS, SHARE_BATCH = 8, 200_000, 500
_DEADLINE = 300.0


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench new_groups")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", default="quafka,kafka")
    parser.add_argument("--only", default="", help="stable, heartbeats or share")
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
        for server in servers:
            asyncio.run(_prepare(server))
            with RawClient(server.address, 120) as client:
                for name in WIDE:
                    create_topic(client, name, PARTITIONS // len(WIDE))
        asyncio.run(_measure(servers, options))


async def _prepare(server: Server) -> None:
    """Let a server make what it keeps groups in: beside thousands of partitions Kafka cannot."""
    (connection,) = await _connections(server, 1)
    await find_coordinator(connection, "first")
    connection.close()


async def _measure(servers: list[Server], options: argparse.Namespace) -> None:
    if options.only in "stable":
        print(f"\n{'stable, ms':28}{'median':>10}{'CPU ms':>10}{'of clients':>12}")
        for size in SIZES:
            for server in servers:
                taken = [await _stable(server, size, n) for n in range(options.rounds)]
                wall, cpu, own = (statistics.median(one) * 1e3 for one in zip(*taken, strict=True))
                label = f"{size} members, {server.name}"
                print(f"{label:28}{wall:10.0f}{cpu:10.0f}{own:12.0f}", flush=True)
    if options.only in "heartbeats":
        print(f"\n{'heartbeats':28}{'a second':>10}{'CPU us':>10}{'of clients':>12}")
        for server in servers:
            rate, cpu, own = await _heartbeats(server)
            print(f"{server.name:28}{rate:10,.0f}{cpu:10.0f}{own:12.0f}", flush=True)
    if options.only in "share":
        print(f"\n{'share group, records/s':28}{'median':>10}{'CPU us':>10}{'of clients':>12}")
        for count in READERS:
            for server in servers:
                taken = [await _share(server, count, n) for n in range(options.rounds)]
                rate, cpu, own = (statistics.median(one) for one in zip(*taken, strict=True))
                label = f"{count} consumers, {server.name}"
                print(f"{label:28}{rate:10,.0f}{cpu:10.1f}{own:12.1f}", flush=True)


async def _connections(server: Server, count: int) -> list[Connection]:
    made: list[Connection] = []
    for at in range(0, count, 100):
        some = min(100, count - at)
        made += await asyncio.gather(*(Connection.open(server.address) for _ in range(some)))
    return made


async def _consumers(server: Server, group: str, count: int) -> list[RawConsumer]:
    connections = await _connections(server, count)
    await find_coordinator(connections[0], group)
    return [RawConsumer(connection, group, WIDE) for connection in connections]


async def _settle(members: list[RawConsumer], partitions: int) -> None:
    """Let all members send heartbeats until the group is stable."""

    def stable() -> bool:
        if len({member.epoch for member in members}) > 1 or members[0].epoch == 0:
            return False
        return sum(len(member.owned) for member in members) == partitions

    async def beats(member: RawConsumer) -> None:
        while not stable():
            await member.beat()

    async with asyncio.timeout(_DEADLINE):
        await asyncio.gather(*map(beats, members))
    assert len(set[tuple[bytes, int]]().union(*(each.owned for each in members))) == partitions


async def _stable(server: Server, size: int, turn: int) -> tuple[float, float, float]:
    """Seconds until all members have what they are to have; CPU seconds of the server and ours."""
    members = await _consumers(server, f"stable-{size}-{turn}", size)
    cost = Cost(server)
    await _settle(members, PARTITIONS)
    found = cost.so_far()
    await _dissolve(members)
    return found


async def _dissolve(members: list[RawConsumer]) -> None:
    await asyncio.gather(*(member.leave() for member in members))
    for member in members:
        member.connection.close()


async def _heartbeats(server: Server) -> tuple[float, float, float]:
    """Heartbeats a second, and CPU microseconds of one."""
    members = await _consumers(server, "beats", BEATERS)
    await _settle(members, PARTITIONS)
    cost, done = Cost(server), 0
    ends = time.perf_counter() + BEAT_SECONDS

    async def beats(member: RawConsumer) -> None:
        nonlocal done
        while time.perf_counter() < ends:
            await member.beat(says_owned=False)
            done += 1

    await asyncio.gather(*map(beats, members))
    wall, cpu, own = cost.so_far()
    await _dissolve(members)
    return done / wall, cpu / done * 1e6, own / done * 1e6


async def _share(server: Server, count: int, turn: int) -> tuple[float, float, float]:
    """Records a second that a share group accepts, and CPU microseconds of one."""
    name = f"share-{count}-{turn}"
    with RawClient(server.address, 60) as client:
        create_topic(client, name, SHARE_PARTITIONS)
        connections = await _connections(server, count)
        await find_coordinator(connections[0], name)
        readers = [RawShareConsumer(connection, name, name) for connection in connections]
        await asyncio.gather(*(reader.join() for reader in readers))
        # A new group begins at the end of the topic, once its first fetches have come.
        for _ in range(5):
            await asyncio.gather(*(reader.fetch() for reader in readers))
        values = [bytes(100)] * SHARE_BATCH
        for number in range(SHARE_RECORDS // SHARE_BATCH):
            request = produce_request(name, *values, partition=number % SHARE_PARTITIONS)
            client.send(request, VERSION["produce"])
            client.receive_frame()
    cost, done = Cost(server), 0

    async def read(reader: RawShareConsumer) -> None:
        nonlocal done
        while done < SHARE_RECORDS:
            accepted = await reader.fetch()
            done += accepted

    async with asyncio.timeout(_DEADLINE):
        await asyncio.gather(*map(read, readers))
    wall, cpu, own = cost.so_far()
    for reader in readers:
        reader.connection.close()
    return done / wall, cpu / done * 1e6, own / done * 1e6
