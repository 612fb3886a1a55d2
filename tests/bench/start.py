"""Start and memory: `quafka up` on an empty folder to the first record, and its idle processes.

The time runs from the start of the command to one record that was produced and read back. RSS
counts a page of a library in each process that uses it; PSS shares it out. One round before the
others is not counted: it compiles the modules, as an installation does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from quafka_proto.schema.metadata import MetadataResponse
from tests.support.kafka_calls import fetch, metadata, produce, values
from tests.support.raw_client import RawClient

_IDLE_SECONDS = 5.0
NAMES = ("up", "broker", "gateway", "console")


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--console", choices=("true", "false"), default="true")
    options = parser.parse_args(arguments)
    seconds: list[float] = []
    used: list[float] = []
    memory: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{scratch}/compiled"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(options.rounds + 1):
            with started(Path(scratch) / f"up-{number}", options.console, environment) as (
                up,
                took,
            ):
                pids = processes(up)
                cpu = sum(map(cpu_seconds, pids.values()))
                if not number:
                    continue
                time.sleep(_IDLE_SECONDS)
                seconds.append(took)
                used.append(cpu)
                for name, pid in pids.items():
                    memory[name].append((mib(pid, "Rss"), mib(pid, "Pss")))
    print(f"medians of {options.rounds}\n")
    print(f"start to first record   {statistics.median(seconds):6.2f} s "
          f"({min(seconds):.2f} to {max(seconds):.2f})")  # fmt: skip
    print(f"CPU until then          {statistics.median(used):6.2f} s")
    for name, pairs in memory.items():
        if not pairs:
            continue
        rss, pss = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"idle {name:8}           {rss:6.1f} MiB RSS {pss:6.1f} MiB PSS")


@contextmanager
def started(
    folder: Path, console: str, environment: Mapping[str, str] | None = None
) -> Generator[tuple[int, float]]:
    """Run `quafka up`, with a console or without it.

    Yields its process id, and the seconds to the first record.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "quafka", "up", "--listen", "127.0.0.1:0"]
    command += ["--gateway-ops-listen", "127.0.0.1:0", "--broker-ops-listen", "127.0.0.1:0"]
    command += ["--console", console, "--console-listen", "127.0.0.1:0"]
    up = subprocess.Popen(
        [*command, "--data", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    assert up.stdout is not None
    try:
        line = next(line for line in up.stdout if "Kafka clients" in line)
        address = line.split()[-1]
        host, port = address.rsplit(":", 1)
        with RawClient((host, int(port))) as client:
            described: MetadataResponse = metadata(client, "first")
            assert described.topics[0].error_code == 0
            produce(client, "first", b"record")
            assert values(fetch(client, "first", 0)) == [b"record"]
        yield up.pid, time.perf_counter() - began
    finally:
        up.terminate()
        up.communicate()


def processes(up: int) -> dict[str, int]:
    """The process ids of `quafka up` and its children, by name."""
    found = {"up": up}
    for pid in Path(f"/proc/{up}/task/{up}/children").read_text().split():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        found[next(name for name in NAMES if name.encode() in words)] = int(pid)
    return found


def mib(pid: int, kind: str) -> float:
    """The resident memory of a process, MiB. `kind` is Rss or Pss."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(kind)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
