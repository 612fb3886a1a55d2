"""`make soak`: both transports of the mesh over a link that changes for the worse, for a long time.

Half of `--minutes` by the burst, half packet by packet. Traffic of all kinds goes on all the time:
ordered ops in lanes, bulk replies, parked polls, cancelled calls. The link (`tests.support.link`)
delays, loses, repeats, narrows, swallows and is cut; keys are updated; the broker's end is
restarted. Checked are every byte of every answer, the order within each lane, that no op runs
twice, that every call ends by its deadline, that nothing fails while the link is whole, and that
neither memory nor the number of tasks grows.

`python -m tests.soak groups`: consumer groups in one storm after the other (`groups.py`).
`python -m tests.soak consumer-groups`: members of KIP-848 (`consumer_groups.py`).
`python -m tests.soak share-groups`: members of a share group (`share_groups.py`).
`python -m tests.soak copies` (or `streams`, `connect`, `transactions`): exactly once
(`exactly_once.py`).
`python -m tests.soak redis`: Redis Streams that are trimmed, fail over and are killed (`redis.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_mesh_ops.client import MeshClient
from quafka_mesh_ops.errors import OpFailedError, OutcomeUnknownError, PeerUnavailableError
from quafka_mesh_ops.handlers import Handler, OpContext
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.ops.base import OpCode
from quafka_mesh_ops.ops.records import (
    FetchOp,
    FetchOpResp,
    FetchOps,
    FetchOpsResp,
    ProduceOp,
    ProduceOpResp,
    ProduceOps,
    ProduceOpsResp,
)
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_mesh_ops.server import MeshServer
from quafka_telemetry.tracing import Tracer
from tests.soak import consumer_groups, exactly_once, groups, redis, share_groups
from tests.support.link import Link

LINKS: list[dict[str, float]] = [
    {},
    {"delay_ms": 20, "jitter_ms": 10},
    {"loss": 0.02, "delay_ms": 2},
    {"repeat": 0.05, "delay_ms": 1, "jitter_ms": 4},
    {"rate": 5_000_000, "delay_ms": 5},
    {"mtu": 1_300},
    {"delay_ms": 50, "loss": 0.005},
]
WHOLE: dict[str, float | str] = {
    "delay_ms": 0, "jitter_ms": 0, "loss": 0, "repeat": 0, "rate": 0, "mtu": 0, "cut": "",
}  # fmt: skip
BLOB = random.Random(1).randbytes(4 << 20)
PRODUCERS, READERS, POLLERS = 6, 4, 50
DEADLINE = 8.0
SETTLE = 3.0
"""Seconds after which a link that is whole again carries everything."""
GRACE = 2.0
"""Seconds by which a call may end after its deadline, beside those that the machine stood still."""
TICK, LONGEST_BUSY = 0.1, 1.0
"""Seconds: how often the event loop's delay is looked at, and what of it our own work may be."""
OTHERS = {
    "groups": groups.soak,
    "share-groups": share_groups.soak,
    "consumer-groups": consumer_groups.soak,
    "copies": exactly_once.copies,
    "streams": exactly_once.streams,
    "connect": exactly_once.connect,
    "transactions": exactly_once.checked,
    "redis": redis.soak,
}
"""Everything else that soaks, for so many seconds with a seed."""


class Broker:
    """Handlers whose answers can be checked, and which check what they are asked."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}
        self.grown = asyncio.Event()

    async def produce(self, context: OpContext, op: ProduceOps) -> ProduceOpsResp:
        """Each producer's numbers come in order, none twice; some may be missing."""
        (part,) = op.partitions
        number = int.from_bytes(bytes(part.records[:8]), "big")
        before = self.last.get(part.partition, -1)
        assert number > before, f"producer {part.partition}: {number} after {before}"
        self.last[part.partition] = number
        assert bytes(part.records[8:]) == piece(number, len(part.records) - 8)
        return ProduceOpsResp([ProduceOpResp(number)])

    async def fetch(self, context: OpContext, op: FetchOps) -> FetchOpsResp:
        """A poll is parked; a read is a piece of the blob."""
        if op.max_wait_ms:
            try:
                async with asyncio.timeout(op.max_wait_ms / 1000):
                    await self.grown.wait()
            except TimeoutError:
                pass
            return FetchOpsResp([FetchOpResp([], 0)])
        await context.may_read()
        return FetchOpsResp(
            [FetchOpResp([piece(p.fetch_offset, p.max_bytes)], 0) for p in op.partitions]
        )

    async def describe(self, context: OpContext, op: DescribeTopics) -> DescribeTopicsResp:
        return DescribeTopicsResp("soak", [])

    def handlers(self) -> dict[OpCode, Handler]:
        return dict(
            (
                ProduceOps.handled_by(self.produce),
                FetchOps.handled_by(self.fetch),
                DescribeTopics.handled_by(self.describe),
            )
        )


def piece(number: int, size: int) -> bytes:
    """Bytes that only this number has."""
    at = number * 7919 % (len(BLOB) - size) if size < len(BLOB) else 0
    return BLOB[at : at + size]


class Soak:
    """One transport's half."""

    def __init__(self, batched: bool, seed: int) -> None:
        self.batched = batched
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.problems: list[str] = []
        self.broker = Broker()
        self.ids = [Identity(Ed25519PrivateKey.generate()) for _ in range(2)]
        self.whole_since = asyncio.get_running_loop().time()
        self.is_bad = False
        self.stalled = 0.0
        self.client: MeshClient | None = None
        self.server: MeshServer | None = None

    async def run(self, seconds: float) -> bool:
        """Whether nothing went wrong."""
        port = await self._start_server(0)
        link = await asyncio.to_thread(Link, ("127.0.0.1", port))
        client = self.client = MeshClient(
            *link.address, self.ids[0], {self.ids[1].node_id}, Tracer(), batched=self.batched
        )
        await client.start()
        assert await client.wait_connected(30)
        jobs = [self._produce(n) for n in range(PRODUCERS)] + [self._read() for _ in range(READERS)]
        jobs += [self._poll() for _ in range(POLLERS)] + [
            self._small(),
            self._cancel(),
            self._watch(),
        ]
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await self._disturb(link, port, seconds, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            print(f"  the machine stood still for {self.stalled:.1f} s\n  {dict(self.done)}")
            print(f"  unanswered, all while the link was bad: {dict(self.failed)}")
            print(f"  {client.counters()}")
            await client.close()
            assert self.server is not None
            await self.server.close(1)
            link.__exit__()
        return not self.problems

    async def _start_server(self, port: int) -> int:
        self.server = MeshServer(
            self.ids[1],
            {self.ids[0].node_id},
            self.broker.handlers(),
            Tracer(),
            batched=self.batched,
        )
        return (await self.server.start("127.0.0.1", port))[1]

    # --- what goes on ------------------------------------------------------------------------

    async def _disturb(
        self, link: Link, port: int, seconds: float, tasks: list[asyncio.Task[None]]
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        early: tuple[int, int] | None = None
        turn = 0
        while loop.time() < end and not self.problems:
            turn += 1
            self.is_bad = True
            await asyncio.to_thread(link.change, **WHOLE | LINKS[turn % len(LINKS)])
            await asyncio.sleep(min(3.0, seconds / 10))
            await self._accident(link, port, turn)
            await asyncio.to_thread(link.change, **WHOLE)
            self.broker.grown.set()
            self.broker.grown = asyncio.Event()
            self.is_bad, self.whole_since = False, loop.time()
            await asyncio.sleep(min(6.0, seconds / 5))
            self.problems += [f"ended early: {task}" for task in tasks if task.done()]
            now = (resident_mib(), len(asyncio.all_tasks()))
            if early is None and turn == 3:
                early = now
            if early is not None and (now[0] > early[0] + 128 or now[1] > 2 * early[1]):
                self.problems.append(f"MiB and tasks: {early} became {now}")
        print(f"  {turn} turns; MiB and tasks: {early} at first, "
              f"{(resident_mib(), len(asyncio.all_tasks()))} at last")  # fmt: skip

    async def _accident(self, link: Link, port: int, turn: int) -> None:
        kind = turn % 5
        if kind == 0:
            await asyncio.to_thread(link.change, cut=self.random.choice(["up", "down", "both"]))
            await asyncio.sleep(self.random.uniform(0.2, 3))
        elif kind == 1:
            assert self.server is not None
            await self.server.close(self.random.choice([0, 1]))
            await self._start_server(port)
        elif self.server is not None:  # the others only update keys, on both ends
            for session in self.server.sessions:
                session.connection.quic.request_key_update()
            self.done["key updates"] += 1

    async def _watch(self) -> None:
        """How long the loop stood still: for the machine's sake, or busy with our own work."""
        while True:
            began, cpu = time.monotonic(), time.process_time()
            await asyncio.sleep(TICK)
            late = time.monotonic() - began - TICK
            if late > TICK:
                self.stalled += late
            if time.process_time() - cpu > LONGEST_BUSY:
                self.problems.append(f"the loop was busy for {time.process_time() - cpu:.1f} s")

    async def _call(self, what: str, call: Callable[[MeshClient], Awaitable[None]]) -> bool:
        """Whether it was answered. Nothing may fail unless the link is, or just was, bad."""
        assert self.client is not None
        loop = asyncio.get_running_loop()
        began, stalled = loop.time(), self.stalled
        try:
            await call(self.client)
        except (PeerUnavailableError, OutcomeUnknownError) as e:
            self.failed[what] += 1
            if not self.is_bad and began > self.whole_since + SETTLE:
                self.problems.append(f"{what} on a whole link: {e}")
            await asyncio.sleep(0.02)
            answered = False
        except (AssertionError, OpFailedError) as e:
            self.problems.append(f"{what}: {e!r}")
            answered = False
        else:
            self.done[what] += 1
            answered = True
        if loop.time() > began + DEADLINE + GRACE + self.stalled - stalled:
            self.problems.append(f"{what} took {loop.time() - began:.1f} s")
        return answered

    async def _produce(self, producer: int) -> None:
        for number in range(1 << 40):
            size = self.random.choice([10, 1_000, 70_000, 1_000_000])

            async def call(client: MeshClient, number: int = number, size: int = size) -> None:
                records = number.to_bytes(8, "big") + piece(number, size)
                op = ProduceOps([ProduceOp("t", producer, records)])
                answer = await client.call(op, org_id=1, deadline=DEADLINE, lane=producer)
                assert answer.partitions[0].base_offset == number

            await self._call("produce", call)

    async def _read(self) -> None:
        while True:
            offset = self.random.getrandbits(30)
            size = self.random.choice([100, 20_000, 300_000, 3_000_000])

            async def call(client: MeshClient, offset: int = offset, size: int = size) -> None:
                op = FetchOps([FetchOp("t", 0, offset, size)])
                answer = await client.call(op, org_id=1, deadline=DEADLINE)
                assert bytes(answer.partitions[0].records[0]) == piece(offset, size)

            await self._call("read", call)

    async def _poll(self) -> None:
        async def call(client: MeshClient) -> None:
            op = FetchOps([FetchOp("t", 0, 0, 1)], max_wait_ms=self.random.randrange(1, 3_000))
            await client.call(op, org_id=1, deadline=DEADLINE)

        while True:
            await self._call("poll", call)

    async def _small(self) -> None:
        async def call(client: MeshClient) -> None:
            answer = await client.call(DescribeTopics(), org_id=1, deadline=DEADLINE)
            assert answer.cluster_id == "soak"

        while True:
            await self._call("small op", call)
            await asyncio.sleep(0.01)

    async def _cancel(self) -> None:
        assert self.client is not None
        while True:
            op = FetchOps([FetchOp("t", 0, 0, self.random.choice([10, 2_000_000]))])
            call = asyncio.ensure_future(self.client.call(op, org_id=1, deadline=DEADLINE))
            try:
                await asyncio.sleep(self.random.uniform(0, 0.05))
            finally:
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            self.done["cancelled"] += 1


def resident_mib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


async def soak(seconds: float, seed: int) -> bool:
    """Both transports, `seconds` in all."""
    good = True
    for batched in (True, False):
        print("by the burst" if batched else "packet by packet", flush=True)
        half = Soak(batched, seed)
        good = await half.run(seconds / 2) and good
        for problem in half.problems[:10]:
            print(f"  PROBLEM: {problem}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["mesh", *OTHERS], default="mesh")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    print(f"soak: {args.minutes:g} minutes, seed {args.seed}", flush=True)
    if args.what == "mesh":
        good = asyncio.run(soak(args.minutes * 60, args.seed))
    else:
        good = OTHERS[args.what](args.minutes * 60, args.seed)
    print("soak: nothing went wrong" if good else "soak: FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
