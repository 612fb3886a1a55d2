"""Heartbeats of the members of many groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from functools import partial

from quafka_proto.headers import encode_request
from tests.bench.peers import Server
from tests.bench.rows.row import Figures, Row
from tests.support.raw_group import Connection, find_coordinator, members

MEMBERS, GROUPS, EVERY_SECONDS = 5_000, 50, 3.0
AT_ONCE = 200


class Pulse(asyncio.Protocol):
    """One member's connection: sends the same heartbeat again, and looks at each answer's error."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._rest = b""
        self.answered = 0
        self.again = False
        """Whether an answer is followed by the next heartbeat at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def beat(self) -> None:
        self.transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        # Its length, the correlation id, the throttle time, the error.
        while len(self._rest) >= 14:
            assert self._rest[12:14] == b"\0\0", self._rest
            self._rest = self._rest[14:]
            self.answered += 1
            if self.again:
                self.beat()


def _measure(server: Server, seconds: float, turn: int) -> Figures:
    return asyncio.run(_heartbeats(server, seconds, turn))


async def _heartbeats(server: Server, seconds: float, turn: int) -> Figures:
    pulses = await _pulses(server.address, f"heartbeat-{turn}")
    try:
        _, paced_us = await _cost(server, pulses, _paced(pulses, seconds))
        rate, closed_us = await _cost(server, pulses, _closed(pulses, seconds))
        return paced_us, rate, closed_us
    finally:
        for pulse in pulses:
            pulse.transport.close()


def _same(pulse: Pulse) -> Pulse:
    return pulse


async def _pulses(address: tuple[str, int], prefix: str) -> list[Pulse]:
    connection = await Connection.open(address)
    await find_coordinator(connection, prefix)
    connection.close()
    many = await members(address, [f"{prefix}-{n % GROUPS}" for n in range(MEMBERS)])
    await asyncio.gather(*(member.settle() for member in many))
    loop = asyncio.get_running_loop()
    pulses: list[Pulse] = []
    for member in many:
        frame = b"".join(encode_request(1, "raw", member.heartbeat_request(), 3))
        member.connection.close()
        pulse = Pulse(frame)
        await loop.create_connection(partial(_same, pulse), *address)
        pulses.append(pulse)
    return pulses


async def _cost(
    server: Server, pulses: list[Pulse], beating: Awaitable[None]
) -> tuple[float, float]:
    """Heartbeats a second, and the server's CPU microseconds for one."""
    before = sum(pulse.answered for pulse in pulses)
    began, used = time.perf_counter(), server.cpu_seconds()
    await beating
    took, used = time.perf_counter() - began, server.cpu_seconds() - used
    done = sum(pulse.answered for pulse in pulses) - before
    return done / took, used / done * 1e6


async def _paced(pulses: list[Pulse], seconds: float) -> None:
    """Each member every three seconds, all of them evenly."""
    began, beats = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        due = int(passed * len(pulses) / EVERY_SECONDS)
        for number in range(beats, due):
            pulses[number % len(pulses)].beat()
        beats = due
        await asyncio.sleep(0.005)


async def _closed(pulses: list[Pulse], seconds: float) -> None:
    """So many under way all the time."""
    for pulse in pulses[:: len(pulses) // AT_ONCE]:
        pulse.again = True
        pulse.beat()
    await asyncio.sleep(seconds)
    for pulse in pulses:
        pulse.again = False


ROWS = (
    Row(
        "heartbeats", f"{MEMBERS:,} members in {GROUPS} groups, each {EVERY_SECONDS:g} s, "
        f"then {AT_ONCE} at once",
        ("CPU µs a heartbeat", "heartbeats/s at once", "CPU µs at once"), _measure,
        fsync_matters=False,
    ),
)  # fmt: skip
