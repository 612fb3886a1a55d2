"""The mesh alone: replies of several sizes over one loopback connection between two processes.

Packets one by one (stock aioquic), by the burst, and, as a baseline, the same bytes over asyncio
TCP. MB/s is the median of the rounds, which are interleaved; CPU is both processes together.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops import (
    DescribeTopics,
    DescribeTopicsResp,
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    OpCode,
    Part,
)
from quafka_mesh_ops.server import Handler, MeshServer, OpContext
from quafka_mesh_ops.tracing import Tracer

SERVER, CLIENT = (Identity(Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32)) for i in (1, 2))
LARGEST = 8 << 20
SIZES = (1452, 8900, 16_000, 60_000)
REPLIES = {
    100: (1 << 20, 32),
    64 << 10: (64 << 20, 16),
    1 << 20: (256 << 20, 4),
    LARGEST: (256 << 20, 2),
}
"""Bytes of a reply -> bytes in all, and how many are asked for at a time."""

Ask = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Rate:
    """What one run came to."""

    megabytes: float
    cpu: float


# --- the other process ------------------------------------------------------------------------


async def serve_mesh(size: int, batched: bool) -> None:
    """Answer fetches with as many bytes as they ask for, until killed."""
    blob = memoryview(os.urandom(LARGEST))

    async def fetch(_context: OpContext, op: FetchOps) -> Part:
        return FetchOpsResp(
            [FetchOpResp([blob[: part.max_bytes]], high_watermark=1) for part in op.partitions]
        )

    async def describe(_context: OpContext, _op: DescribeTopics) -> Part:
        return DescribeTopicsResp("", [])

    handlers: dict[OpCode, Handler] = {OpCode.FETCH: fetch, OpCode.DESCRIBE_TOPICS: describe}
    server = MeshServer(
        SERVER, {CLIENT.node_id}, handlers, Tracer(), datagram_size=size, batched=batched
    )
    _, port = await server.start("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.Event().wait()


async def serve_tcp() -> None:
    """The same over TCP: four bytes ask for so many."""
    blob = os.urandom(LARGEST)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(4):
            writer.write(memoryview(blob)[: int.from_bytes(asked, "big")])
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
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


async def measure(ask: Ask, reply: int, pid: int) -> Rate:
    """Ask for replies of this size, several at a time."""
    total, at_a_time = REPLIES[reply]
    each = max(1, total // reply // at_a_time)

    async def one() -> None:
        for _ in range(each):
            await ask(reply)

    cpu, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*[one() for _ in range(at_a_time)])
    megabytes = each * at_a_time * reply / 1e6
    return Rate(
        megabytes / (time.perf_counter() - began), (cpu_seconds(pid) - cpu) * 1000 / megabytes
    )


async def over_mesh(size: int, batched: bool) -> dict[int | str, Rate]:
    """All reply sizes over one connection, and the round trip of a small op in ms."""
    with other_process("mesh", str(size), str(batched)) as (port, pid):
        client = MeshClient(
            "127.0.0.1", port, CLIENT, {SERVER.node_id}, Tracer(),
            datagram_size=size, batched=batched,
        )  # fmt: skip
        await client.start()
        assert await client.wait_connected(5)

        async def ask(reply: int) -> None:
            await client.call(FetchOps([FetchOp("t", 0, 0, reply)]), org_id=1, deadline=60)

        rates: dict[int | str, Rate] = {r: await measure(ask, r, pid) for r in REPLIES}
        trips: list[float] = []
        for _ in range(1_000):
            began = time.perf_counter()
            await client.call(DescribeTopics(), org_id=1, deadline=5)
            trips.append((time.perf_counter() - began) * 1000)
        trips.sort()
        rates["small op"] = Rate(trips[500], trips[990])
        await client.close()
    return rates


async def over_tcp() -> dict[int | str, Rate]:
    """All reply sizes over as many TCP connections as are asked for at a time."""
    with other_process("tcp") as (port, pid):
        free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def ask(reply: int) -> None:
            pair = free.pop() if free else await asyncio.open_connection("127.0.0.1", port)
            reader, writer = pair
            writer.write(reply.to_bytes(4, "big"))
            left = reply
            while left:
                left -= len(await reader.read(left))
            free.append(pair)

        rates: dict[int | str, Rate] = {r: await measure(ask, r, pid) for r in REPLIES}
        for _, writer in free:
            writer.close()
    return rates


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench mesh", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(arguments).rounds
    runs: dict[str, Callable[[], Awaitable[dict[int | str, Rate]]]] = {}
    for size in SIZES:
        for batched in (False, True):
            name = f"{'by the burst' if batched else 'one by one':12} {size:6}"
            runs[name] = partial(over_mesh, size, batched)
    runs["asyncio TCP"] = over_tcp
    found: dict[str, list[dict[int | str, Rate]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(asyncio.run(_awaited(run)))
    print("MB/s (CPU ms/MB) by size of the reply; round trip of a small op, p50 / p99 ms")
    print(f"{'packets, datagram':20}" + "".join(f"{_size(reply):>17}" for reply in REPLIES))
    for name, results in found.items():
        cells = [_cell([result[reply] for result in results]) for reply in REPLIES]
        trips = [result["small op"] for result in results if "small op" in result]
        trip = "".join(
            f"{statistics.median([t.megabytes for t in trips]):9.2f} / "
            f"{statistics.median([t.cpu for t in trips]):.2f}"
            for _ in trips[:1]
        )
        print(f"{name:20}" + "".join(f"{cell:>17}" for cell in cells) + trip)


async def _awaited(
    run: Callable[[], Awaitable[dict[int | str, Rate]]],
) -> dict[int | str, Rate]:
    return await run()


def _cell(rates: list[Rate]) -> str:
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
        asyncio.run(serve_mesh(int(sys.argv[2]), sys.argv[3] == "True"))
    else:
        asyncio.run(serve_tcp())
