"""What attackers have sent, sent again by connections that do not log in: it costs next to nothing.

A gateway reads one small frame of such a connection, finds that it is no login and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.arena import Arena
from tests.hostile.relay import Recording
from tests.support.cluster import Process

_CONNECTIONS = 60
"""For each attack; those that begin in different ways first."""
_SECONDS = 15.0
CPU_MS = 10.0
"""Of the gateway for a connection: a handshake of TLS and its end."""
TURN_SECONDS = 0.1
_KEPT_MIB = 16
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Before:
    """What came of an attack before a login."""

    connections: int = 0
    sent: int = 0
    """Bytes."""
    cpu_ms: float = 0.0
    """Of the gateway, for a connection, without what the bystander costs."""
    turn: float = 0.0
    kept_mib: float = 0.0
    problems: list[str] = field(default_factory=list[str])


def idle_cpu(process: Process, seconds: float = 1.0) -> float:
    """The CPU time that a second of the bystander costs a process."""
    before = _cpu(process)
    time.sleep(seconds)
    return (_cpu(process) - before) / seconds


def send_again(arena: Arena, recording: Recording, address: tuple[str, int], idle: float) -> Before:
    """Send what was recorded, unauthenticated, and judge what it costs. `idle`: `idle_cpu`."""
    gateway = arena.cluster.gateway
    if not recording:
        return Before()
    chosen = list(itertools.islice(_spread(recording), _CONNECTIONS))
    arena.figures("gateway")
    arena.longest["gateway"] = 0.0
    resident, spent, began = _resident(gateway), _cpu(gateway), time.monotonic()
    closed = asyncio.run(_send(chosen, address))
    spent = _cpu(gateway) - spent - idle * (time.monotonic() - began)
    arena.figures("gateway")
    found = Before(
        len(chosen),
        sum(map(len, chosen)),
        max(spent, 0.0) * 1000 / len(chosen),
        arena.longest["gateway"],
        _resident(gateway) - resident,
    )
    if not closed:
        found.problems.append(f"connections are open after {_SECONDS} s")
    if found.cpu_ms > CPU_MS:
        found.problems.append(f"{found.cpu_ms:.1f} ms of CPU time for a connection")
    if found.turn > TURN_SECONDS:
        found.problems.append(f"a turn of {found.turn * 1000:.0f} ms")
    if found.kept_mib > _KEPT_MIB:
        found.problems.append(f"the gateway keeps {found.kept_mib:.0f} MiB")
    return found


def _spread(recording: Recording) -> Iterator[bytes]:
    """Each beginning once, then as often as it was, again and again."""
    again = (recording - Counter(list(recording))).elements()
    return itertools.chain(recording, itertools.cycle([*again] or [*recording]))


async def _send(chosen: list[bytes], address: tuple[str, int]) -> bool:
    """Each on a connection of its own; whether the gateway has closed all of them."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async def one(begin: bytes) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*address, ssl=tls)
            with contextlib.closing(writer):
                writer.write(begin)
                while await reader.read(1 << 16):
                    pass

    try:
        async with asyncio.timeout(_SECONDS):
            await asyncio.gather(*map(one, chosen))
    except TimeoutError:
        return False
    return True


def _cpu(process: Process) -> float:
    """Seconds that all threads of a process have used (proc(5), stat)."""
    words = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def _resident(process: Process) -> float:
    """In MiB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
