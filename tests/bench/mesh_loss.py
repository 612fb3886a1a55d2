"""Bulk answers between hosts, over QUIC and over TLS, on a path that loses packets.

In a network namespace of its own, whose packets have 1500 bytes and are dropped at random. MB/s,
CPU of both processes together, and the latency of an answer; medians of the rounds, in turn. Needs
root, and the programs `unshare`, `ip`, `ethtool` and `iptables` (Debian: iproute2, ethtool,
iptables).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.mesh import Rate, connected, measure, reply_of

_INSIDE = "--inside"
LOSSES = (0.0, 0.001, 0.01)
ANSWERS = ((1 << 20, 1), (8 << 20, 1), (1 << 20, 4))
"""Bytes of an answer, and how many are asked for at a time."""
_DATAGRAM = 1_452


@dataclass(frozen=True, slots=True)
class _Run:
    rate: Rate
    trips: list[float]  # ms


async def _run(over_tls: bool, size: int, at_a_time: int, seconds: float) -> _Run:
    trips: list[float] = []
    async with connected(_DATAGRAM, True, over_tls) as (client, pid):

        async def ask(reply: int) -> None:
            began = time.perf_counter()
            await reply_of(client, reply)
            trips.append((time.perf_counter() - began) * 1000)

        await measure(ask, size, at_a_time, pid, 0.5)
        trips.clear()
        return _Run(await measure(ask, size, at_a_time, pid, seconds), trips)


def _lose(share: float) -> None:
    """Drop this share of all packets."""
    subprocess.run(["iptables", "-F", "INPUT"], check=True)
    if share:
        rule = f"-A INPUT -i lo -m statistic --mode random --probability {share} -j DROP"
        subprocess.run(["iptables", *rule.split()], check=True)


def _inside(rounds: int, seconds: float) -> None:
    for command in ("ip link set lo up mtu 1500", "ethtool -K lo tso off gso off gro off"):
        subprocess.run(command.split(), check=True)
    print("| lost | answers | over | MB/s | CPU ms/MB | p50 ms | slowest ms |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: |")
    for share in LOSSES:
        _lose(share)
        for size, at_a_time in ANSWERS:
            found: dict[str, list[_Run]] = {"QUIC": [], "TLS": []}
            for _ in range(rounds):
                for name, runs in found.items():
                    runs.append(asyncio.run(_run(name == "TLS", size, at_a_time, seconds)))
            for name, runs in found.items():
                speed = statistics.median(run.rate.megabytes for run in runs)
                cpu = statistics.median(run.rate.cpu for run in runs)
                trips = [trip for run in runs for trip in run.trips]
                print(
                    f"| {share:.1%} | {at_a_time} of {size >> 20} MiB at a time | {name} |"
                    f" {speed:.0f} | {cpu:.1f} | {statistics.median(trips):.0f} |"
                    f" {max(trips):.0f} |",
                    flush=True,
                )


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench mesh_loss", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside:
        _inside(options.rounds, options.seconds)
        return
    missing = [name for name in ("unshare", "ip", "ethtool", "iptables") if not shutil.which(name)]
    if missing or os.geteuid():
        raise SystemExit(f"needs root, and: {', '.join(missing) or 'nothing else'}")
    again = f"import sys; from {__name__} import main; main(sys.argv[1:])"
    command = ["unshare", "--net", sys.executable, "-c", again, _INSIDE]
    subprocess.run([*command, *arguments], check=True)
