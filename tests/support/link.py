"""A link between gateway and broker that is as bad as a test wants: a UDP relay in its own process.

with Link(cluster.mesh_address, delay_ms=20, loss=0.01) as link:
    ...  # dial link.address
    link.change(cut="both")
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

_QUEUE_SECONDS = 0.1


@dataclass
class Faults:
    """What the relay does to each datagram.

    Attributes:
        delay_ms: one way. `jitter_ms`: up to so much more, each on its own: that reorders.
        loss, repeat: how often, 0 to 1.
        rate: bytes a second in each direction, 0 for any; what waits for over 0.1 s is dropped.
        mtu: larger datagrams vanish without a word, 0 for none.
        cut: "up" (to the broker), "down", "both" or "": which direction is dead.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    repeat: float = 0.0
    rate: float = 0.0
    mtu: int = 0
    cut: str = ""


class Link:
    """A running relay in front of a UDP address."""

    def __init__(self, target: tuple[str, int], **faults: Any) -> None:
        host, port = target
        command = [sys.executable, "-m", "tests.support.link", host, str(port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))
        self.change(**faults)

    def change(self, **faults: Any) -> None:
        """Other faults from now on; those that are not named stay. Returns when it is so."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(faults) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "changed\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class _Direction:
    """One way through the relay."""

    def __init__(self, faults: Faults, name: str) -> None:
        self._faults = faults
        self._name = name
        self._free_at = 0.0
        self._random = random.Random(7)

    def carry(self, data: bytes, deliver: Callable[[bytes], None]) -> None:
        """Deliver a datagram later, twice or never."""
        faults, chance = self._faults, self._random.random
        if faults.cut in (self._name, "both") or chance() < faults.loss:
            return
        if faults.mtu and len(data) > faults.mtu:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        start = max(now, self._free_at)
        if faults.rate:
            if start - now > _QUEUE_SECONDS:
                return
            self._free_at = start + len(data) / faults.rate
            start = self._free_at
        for _ in range(1 + (chance() < faults.repeat)):
            delay = (faults.delay_ms + faults.jitter_ms * chance()) / 1000
            if start + delay <= now:
                deliver(data)
            else:
                loop.call_at(start + delay, deliver, data)


class _Relay(asyncio.DatagramProtocol):
    """The side to which gateways speak; one socket towards the broker for each of them."""

    transport: asyncio.DatagramTransport

    def __init__(self, target: tuple[str, int], faults: Faults) -> None:
        self._target = target
        self._up = _Direction(faults, "up")
        self._down = _Direction(faults, "down")
        self._clients: dict[Any, asyncio.Future[asyncio.DatagramTransport]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        client = self._clients.get(addr)
        if client is None:
            client = self._clients[addr] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._open(client, addr))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if client.done():
            self._up.carry(data, client.result().sendto)
        else:
            client.add_done_callback(lambda done: self._up.carry(data, done.result().sendto))

    async def _open(self, client: asyncio.Future[asyncio.DatagramTransport], addr: Any) -> None:
        def back(data: bytes) -> None:
            self._down.carry(data, lambda d: self.transport.sendto(d, addr))

        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Upstream(back), remote_addr=self._target
        )
        client.set_result(transport)


class _Upstream(asyncio.DatagramProtocol):
    def __init__(self, back: Callable[[bytes], None]) -> None:
        self._back = back

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._back(data)

    def error_received(self, exc: Exception) -> None:
        """A broker that is away looks like a dead line from here."""


async def _relay(target: tuple[str, int]) -> None:
    faults = Faults()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Relay(target, faults), local_addr=("127.0.0.1", 0)
    )
    print(transport.get_extra_info("sockname")[1], flush=True)
    known = {field.name for field in fields(Faults)}
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for name, value in json.loads(line).items():
            assert name in known, name
            setattr(faults, name, value)
        print("changed", flush=True)


if __name__ == "__main__":
    asyncio.run(_relay((sys.argv[1], int(sys.argv[2]))))
