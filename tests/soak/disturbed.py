"""What the soaks of consumer groups (KIP-848) and share groups have in common.

Connections that come back after a kill, and turns of disturbance on a cluster.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from quafka_proto.message import Message
from tests.soak.exactly_once import disturbances
from tests.support.cluster import Cluster
from tests.support.raw_group import Connection

M = TypeVar("M", bound=Message)
_CALL_SECONDS = 15.0
_TURN_SECONDS = 120.0
"""Each on a cluster of its own, so that a failure has a short history."""


class Reconnecting:
    """A client's connection, which is opened again after it was lost."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._connection: Connection | None = None

    async def call(self, request: Message, response_type: type[M], version: int) -> M | None:
        """The answer; None if there is none, and nobody knows whether the request has arrived."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                if self._connection is None:
                    self._connection = await Connection.open(self._address)
                return await self._connection.call(request, response_type, version)
        except (OSError, EOFError):
            self.close()
            await asyncio.sleep(0.1)
            return None
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Findings:
    """What has happened, and what must not have.

    Attributes:
        turns: twice the number of disturbances that are over; odd during one.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []

    def wrong(self, problem: str) -> None:
        self.problems.append(problem)


async def disturb(
    cluster: Cluster, seconds: float, chance: random.Random, findings: Findings
) -> None:
    """Kill, stop and pause broker and gateway for so long."""
    acts = disturbances(cluster)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not findings.problems:
        findings.turns += 1
        await asyncio.to_thread(chance.choice(acts), chance)
        findings.turns += 1
        findings.done["disturbances"] += 1
        await asyncio.sleep(chance.uniform(1, 4))


def in_turns(
    what: str,
    seconds: float,
    seed: int,
    broker_args: tuple[str, ...],
    turn: Callable[[Cluster, float, random.Random, Findings], Coroutine[Any, Any, None]],
) -> bool:
    """Turns on a new cluster each; whether nothing was wrong. The folder of a failure is kept."""
    left = seconds
    while left > 0:
        length = min(left, _TURN_SECONDS)
        left -= length
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        findings = Findings()
        began = time.monotonic()
        with Cluster(folder, broker_args=broker_args) as cluster:
            asyncio.run(turn(cluster, length, random.Random(seed), findings))
        print(
            f"  {what} {seed}, {time.monotonic() - began:.0f} s: {dict(findings.done)}", flush=True
        )
        for problem in findings.problems[:10]:
            print(f"  PROBLEM: {problem} (see {folder})", file=sys.stderr)
        if findings.problems:
            return False
        shutil.rmtree(folder)
        seed += 1
    return True
