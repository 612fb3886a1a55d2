"""Quafka beside Apache Kafka: the same clients, the same bytes, in turns, in one table.

CPU is what the server's processes used: of Quafka gateway and broker together. `quafka-fsynced`
answers a produce after the fsync; `quafka` (an fsync each second) and Kafka answer from the page
cache. The ratio is of the first Quafka that is measured. A server that cannot be had is left out.
`--servers` also takes tansu, which is measured where it can take part.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from tests.bench.peers import Server, UnavailableError, kafka, quafka, tansu
from tests.bench.rows import consume, heartbeats, idle, latency, loads, produce, transactions
from tests.bench.rows.row import Row, table

ROWS: tuple[Row, ...] = (
    *loads.ROWS,
    *latency.ROWS,
    *produce.ROWS,
    *consume.ROWS,
    *heartbeats.ROWS,
    *idle.ROWS,
    *transactions.ROWS,  # the last of them restarts the servers, so it comes last
)
GROUPS = {row.group for row in ROWS}
_ROOM = ("--max-connections", "20000", "--max-connections-per-ip", "20000")


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = _options(arguments)
    rows = [row for row in ROWS if _selected(row, options.only)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return
    workers = ("--workers", str(options.workers)) if options.workers > 1 else ()
    args = (*_ROOM, *workers)
    starters: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
        "quafka-fsynced": partial(quafka, gateway_args=args, fsync="commit", name="quafka-fsynced"),
        "quafka": partial(quafka, gateway_args=args),
        "kafka": kafka,
        "tansu": tansu,
    }
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        servers: list[Server] = []
        for name in options.servers.split(","):
            try:
                servers.append(stack.enter_context(starters[name](Path(scratch) / name)))
            except UnavailableError as e:
                print(f"without {name}: {e}")
        table(rows, servers, options.seconds, options.rounds)


def _selected(row: Row, words: Sequence[str]) -> bool:
    """Whether a word is the row's group, or part of its name and no group."""
    return any(row.group == word or (word not in GROUPS and word in row.name) for word in words)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench kafka", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each timed run")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="groups of rows, or parts of their names"
    )
    parser.add_argument("--list", action="store_true", help="only print the names of the rows")
    parser.add_argument("--servers", default="quafka-fsynced,quafka,kafka")
    parser.add_argument("--workers", type=int, default=1, help="of Quafka's gateway")
    return parser.parse_args(arguments)
