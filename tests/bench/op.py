"""One Produce of 100 bytes, per process: CPU, turns of the loop, system calls, function calls.

Three runs of each load: a plain one for latency, CPU, context switches and datagrams; one under
`strace -c`, if it is installed; one with the loop's function calls counted. All figures but the
latency are per request. Under strace and while calls are counted the processes are slower, and so
with many requests in flight more of them share a turn, a packet or a system call.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench import counted
from tests.bench.load import PARTITIONS, TOPIC, Load, running
from tests.bench.peers import cpu_seconds
from tests.bench.rows.row import number
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

NAMES = {
    "_run_once": "turns, calls counted",
    "create_task": "tasks",
    "call_at": "timers",
    "create_future": "futures by create_future",
    "run_in_executor": "calls of run_in_executor",
}
Lines = dict[str, dict[str, float]]
"""By what is counted: the figure of each process."""


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench op", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--in-flight", default="1,64", help="connections of the loads")
    parser.add_argument("--fsync", default="commit", help="wal.fsync of the broker")
    parser.add_argument("--top", type=int, default=0, help="also print the dearest functions")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        reports = {name: folder / f"{name}.json" for name in ("gateway", "broker")}
        with Cluster(
            folder,
            broker_args=("--wal-fsync", options.fsync),
            broker_command=tuple(counted.command(reports["broker"])),
            gateway_command=tuple(counted.command(reports["gateway"])),
        ) as cluster:
            with RawClient(cluster.address) as client:
                create_topic(client, TOPIC, PARTITIONS)
            for connections in map(int, options.in_flight.split(",")):
                profile = _Profile(cluster, reports, connections, options.seconds)
                profile.print(options.top)


class _Profile:
    """What one op costs with so many in flight."""

    def __init__(
        self, cluster: Cluster, reports: dict[str, Path], connections: int, seconds: float
    ) -> None:
        self._pids = {"gateway": cluster.gateway.pid, "broker": cluster.broker.pid}
        self._reports = reports
        self._address = cluster.address
        self._connections = connections
        self._seconds = seconds

    def print(self, top: int) -> None:
        """Measure, and print a Markdown table."""
        load, plain = self._plain()
        _heading(
            f"{self._connections} in flight: {load.answered / self._seconds:,.0f} requests/s, "
            f"p50 {load.p50:.2f} ms, p99 {load.p99:.2f} ms"
        )
        _print(plain)
        if shutil.which("strace"):
            _print(self._system_calls())
        else:
            print("| system calls: strace is not installed | – | – |")
        counts, total = self._calls()
        _print(_calls_of(counts, total))
        for name, each in counts.items():
            if top:
                print(f"\n{name}: calls and own CPU µs of a request, while counted")
            for function in each.functions[:top]:
                us = function.seconds / total * 1e6
                print(f"{function.calls / total:8.2f} {us:8.1f}  {function.name}")

    def _run(self) -> Load:
        with running(self._address, self._connections, 0, self._seconds) as load:
            return load.result()

    def _plain(self) -> tuple[Load, Lines]:
        with running(self._address, self._connections, 0, self._seconds) as running_load:
            used = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
            switched = {name: _switches(pid) for name, pid in self._pids.items()}
            datagrams = _datagrams()
            load = running_load.result()
            sent = (_datagrams() - datagrams) / load.answered
            lines: Lines = {
                "CPU µs": {
                    name: (cpu_seconds(pid) - used[name]) / load.answered * 1e6
                    for name, pid in self._pids.items()
                },
                "waits of all threads (voluntary context switches)": {
                    name: (_switches(pid) - switched[name]) / load.answered
                    for name, pid in self._pids.items()
                },
                "datagrams that arrived, on the whole machine": dict.fromkeys(self._pids, sent),
            }
        return load, lines

    def _system_calls(self) -> Lines:
        with tempfile.TemporaryDirectory() as scratch:
            files = {name: Path(scratch) / name for name in self._pids}
            with _straced({files[name]: pid for name, pid in self._pids.items()}):
                load = self._run()
            found = {name: _summary(file.read_text()) for name, file in files.items()}
        kinds = sorted(
            {kind for each in found.values() for kind in each},
            key=lambda kind: -max(each.get(kind, 0) for each in found.values()),
        )
        lines: Lines = {
            "system calls": {name: sum(each.values()) / load.total for name, each in found.items()}
        }
        for kind in kinds:
            line = {name: each.get(kind, 0) / load.total for name, each in found.items()}
            if max(line.values()) >= 0.05:
                what = " (turns of the loop)" if kind.startswith("epoll_") else ""
                lines[f"– {kind}{what}"] = line
        return lines

    def _calls(self) -> tuple[dict[str, counted.Counts], int]:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGUSR1)
        load = self._run()
        for pid in self._pids.values():
            os.kill(pid, signal.SIGUSR2)
        counts = {name: counted.Counts.read(report) for name, report in self._reports.items()}
        return counts, load.total


def _calls_of(counts: dict[str, counted.Counts], total: int) -> Lines:
    lines: Lines = {
        "calls of Python functions": {name: c.python / total for name, c in counts.items()},
        "calls of built-in functions": {name: c.builtin / total for name, c in counts.items()},
    }
    for function, label in NAMES.items():
        lines[f"– {label}"] = {name: c.named[function] / total for name, c in counts.items()}
    return lines


def _heading(label: str) -> None:
    print(f"\n| {label} | gateway | broker |\n| --- | ---: | ---: |", flush=True)


def _print(lines: Lines) -> None:
    for label, line in lines.items():
        print(f"| {label} | {number(line['gateway'])} | {number(line['broker'])} |", flush=True)


def _switches(pid: int) -> int:
    """How often the threads of a process have waited."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def _datagrams() -> int:
    """UDP datagrams that this machine has received; a burst that is received as one counts once."""
    names, values = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if "Udp: " in line
    )
    return int(values[names.index("InDatagrams")])


@contextmanager
def _straced(pids: dict[Path, int]) -> Generator[None]:
    """Count the system calls of processes; the summaries are in the files afterwards."""
    tracers = [
        subprocess.Popen(
            ["strace", "-c", "-f", "-U", "calls,name", "-p", str(pid), "-o", str(file)],
            stderr=subprocess.DEVNULL,
        )
        for file, pid in pids.items()
    ]
    try:
        time.sleep(0.5)  # until they are attached
        yield
    finally:
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
        for tracer in tracers:
            tracer.wait(10)


def _summary(text: str) -> dict[str, int]:
    """Calls by name."""
    words = (line.split() for line in text.splitlines())
    rows = (each for each in words if len(each) == 2 and each[0].isdigit())
    return {name: int(calls) for calls, name in rows if name != "total"}
