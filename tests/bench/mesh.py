"""The mesh alone: replies of several sizes over one loopback connection between two processes.

Packets one by one (stock aioquic) and by the burst; as baselines the same bytes over asyncio's TCP
and TLS, and over qh3 (QUIC in Rust) if that is installed. MB/s and CPU are medians of the rounds,
which are interleaved; CPU is both processes together. `bulk over TLS`: answers above 16 KiB over
TLS (mesh.bulk = tls), all else over QUIC at the first size. `parked`: MB/s of 1 MiB replies while
so many long polls wait at the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.bench import mesh_peers

SERVER, CLIENT = (Identity(Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32)) for i in (1, 2))
LARGEST = 8 << 20
SIZES = (1452, 8900, 16_000, 60_000)
REPLIES = {100: 32, 64 << 10: 16, 1 << 20: 4, LARGEST: 2}
"""Bytes of a reply -> how many are asked for at a time."""
PARKED = (1, 100, 10_000)
IN_FLIGHT = 32

Ask = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Rate:
    """What one run came to."""

    megabytes: float
    cpu: float


@dataclass
class Figures:
    """One round of one transport. Times in ms."""

    rates: dict[int, Rate] = field(default_factory=dict[int, Rate])
    trips: list[float] = field(default_factory=list[float])
    ops_per_second: float = 0.0
    parked: dict[int, Rate] = field(default_factory=dict[int, Rate])


# --- the other process ------------------------------------------------------------------------


def _carrier(bulk: bool) -> BulkCarrier:
    return BulkCarrier.TLS if bulk else BulkCarrier.QUIC


async def serve_mesh(size: int, batched: bool, bulk: bool) -> None:
    """Answer fetches with as many bytes as they ask for, until killed; park those that would."""
    blob = memoryview(os.urandom(LARGEST))

    async def fetch(context: OpContext, op: FetchOps) -> FetchOpsResp:
        if op.max_wait_ms:
            await asyncio.Event().wait()
        await context.may_read()
        return FetchOpsResp(
            [FetchOpResp([blob[: part.max_bytes]], high_watermark=1) for part in op.partitions]
        )

    async def describe(_context: OpContext, _op: DescribeTopics) -> DescribeTopicsResp:
        return DescribeTopicsResp("", [])

    handlers: dict[OpCode, Handler] = dict(
        (FetchOps.handled_by(fetch), DescribeTopics.handled_by(describe))
    )
    server = MeshServer(
        SERVER,
        {CLIENT.node_id},
        handlers,
        Tracer(),
        datagram_size=size,
        batched=batched,
        bulk=_carrier(bulk),
    )
    _, port = await server.start("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.Event().wait()


@contextmanager
def other_process(*arguments: str) -> Iterator[tuple[int, int]]:
    """Start one; its port and process id."""
    command = [sys.executable, "-m", "tests.bench.mesh", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.communicate()


# --- this process -----------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """User and system time of this process and another one."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    theirs = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return theirs + time.process_time()


async def measure(ask: Ask, reply: int, at_a_time: int, pid: int, seconds: float) -> Rate:
    """Ask for replies of this size, several at a time, for a while."""
    done = 0

    async def one() -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await ask(reply)
            done += 1

    await ask(reply)
    cpu, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*[one() for _ in range(at_a_time)])
    megabytes = done * reply / 1e6
    return Rate(
        megabytes / (time.perf_counter() - began), (cpu_seconds(pid) - cpu) * 1000 / megabytes
    )


async def measure_all(ask: Ask, small: Callable[[], Awaitable[None]], pid: int) -> Figures:
    """All reply sizes, and small ops alone and many at a time."""
    figures = Figures()
    for reply, at_a_time in REPLIES.items():
        figures.rates[reply] = await measure(ask, reply, at_a_time, pid, 1.0)
    for _ in range(1_000):
        began = time.perf_counter()
        await small()
        figures.trips.append((time.perf_counter() - began) * 1000)

    async def several() -> None:
        for _ in range(300):
            await small()

    began = time.perf_counter()
    await asyncio.gather(*[several() for _ in range(IN_FLIGHT)])
    figures.ops_per_second = 300 * IN_FLIGHT / (time.perf_counter() - began)
    return figures


@asynccontextmanager
async def connected(size: int, batched: bool, bulk: bool) -> AsyncIterator[tuple[MeshClient, int]]:
    """A connection of ours to another process; its id. `bulk`: answers travel over TLS."""
    with other_process("mesh", str(size), str(batched), str(bulk)) as (port, pid):
        client = MeshClient(
            "127.0.0.1", port, CLIENT, {SERVER.node_id}, Tracer(),
            datagram_size=size, batched=batched, bulk=_carrier(bulk),
        )  # fmt: skip
        await client.start()
        assert await client.wait_connected(30)
        async with asyncio.timeout(20):
            while client.counters().bulk_over_tls != bulk:
                await asyncio.sleep(0.01)
        yield client, pid
        await client.close()


async def reply_of(client: MeshClient, reply: int) -> None:
    """Ask for a reply of so many bytes."""
    await client.call(FetchOps([FetchOp("t", 0, 0, reply)]), org_id=1, deadline=60)


async def over_mesh(size: int, batched: bool, bulk: bool = False) -> Figures:
    """Over one connection of ours."""
    async with connected(size, batched, bulk) as (client, pid):
        ask = partial(reply_of, client)

        async def small() -> None:
            await client.call(DescribeTopics(), org_id=1, deadline=60)

        async def park() -> None:
            op = FetchOps([FetchOp("t", 0, 0, 1)], max_wait_ms=60_000, min_bytes=1)
            await client.call(op, org_id=1, deadline=600)

        figures = await measure_all(ask, small, pid)
        parked: list[asyncio.Task[None]] = []
        for count in PARKED:
            while (
                len(parked) < count
            ):  # not all in one turn of the loop, as no gateway's would come
                more = min(500, count - len(parked))
                parked += [asyncio.create_task(park()) for _ in range(more)]
                await small()
            await asyncio.sleep(1.0)  # until parking them is over
            figures.parked[count] = await measure(ask, 1 << 20, 4, pid, 1.0)
        for task in parked:
            task.cancel()
        await asyncio.gather(*parked, return_exceptions=True)
    return figures


async def over_peer(name: str) -> Figures:
    """Over one of the baselines; an op is a request for 100 bytes."""
    with other_process(name) as (port, pid):
        async with mesh_peers.CLIENTS[name](port) as ask:
            return await measure_all(ask, lambda: ask(100), pid)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench mesh", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args(arguments)
    runs: dict[str, Callable[[], Awaitable[Figures]]] = {}
    for size in options.sizes:
        for batched in (False, True):
            name = f"{'by the burst' if batched else 'one by one':12} {size:6}"
            runs[name] = partial(over_mesh, size, batched)
    runs["bulk over TLS"] = partial(over_mesh, options.sizes[0], True, True)
    runs["asyncio TCP"] = partial(over_peer, "tcp")
    runs["asyncio TLS"] = partial(over_peer, "tls")
    if importlib.util.find_spec("qh3") is not None:
        for size in mesh_peers.QH3_SIZES:
            runs[f"qh3 {size:15}"] = partial(over_peer, f"qh3-{size}")
    else:
        print("qh3 is not installed (pip install qh3): left out")
    found: dict[str, list[Figures]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            found[name].append(asyncio.run(_awaited(run)))
    _print(found)


async def _awaited(run: Callable[[], Awaitable[Figures]]) -> Figures:
    return await run()


def _print(found: dict[str, list[Figures]]) -> None:
    print("MB/s (CPU ms/MB) by size of the reply, and of 1 MiB by the number of parked polls;")
    print("a small op alone, p50 / p99 ms; small ops a second, 32 at a time")
    columns = [_size(reply) for reply in REPLIES] + [f"{count} parked" for count in PARKED]
    head = [f"{'packets, datagram':20}", *(f"{column:>14}" for column in columns)]
    print("".join(head) + f"{'p50 / p99':>15}{'ops/s':>8}")
    for name, results in found.items():
        cells = [_cell([result.rates[reply] for result in results]) for reply in REPLIES]
        cells += [_cell([r.parked[count] for r in results if r.parked]) for count in PARKED]
        trips = [statistics.quantiles(result.trips, n=100) for result in results]
        p50, p99 = (statistics.median([trip[at] for trip in trips]) for at in (49, 98))
        ops = statistics.median([result.ops_per_second for result in results])
        row = "".join(f"{cell:>14}" for cell in cells)
        print(f"{name:20}{row}{f'{p50:.2f} / {p99:.2f}':>15}{ops:8.0f}")


def _cell(rates: list[Rate]) -> str:
    if not rates:
        return ""
    speed = statistics.median([rate.megabytes for rate in rates])
    cpu = statistics.median([rate.cpu for rate in rates])
    return f"{speed:.1f} ({cpu:.2f})"


def _size(size: int) -> str:
    return (
        f"{size >> 20} MiB"
        if size >= 1 << 20
        else f"{size >> 10} KiB"
        if size >= 1 << 10
        else f"{size} B"
    )


if __name__ == "__main__":
    if sys.argv[1] == "mesh":
        asyncio.run(serve_mesh(int(sys.argv[2]), *[word == "True" for word in sys.argv[3:]]))
    else:
        asyncio.run(mesh_peers.SERVERS[sys.argv[1]](LARGEST))
