"""Transactions of real clients under kills, pauses, cut connections, late and repeated requests.

`python -m tests.crash.transactions --seconds 600` prints the figures. `--server kafka` runs the
same clients against Apache Kafka, without late requests unless `--late` is given: those of TV1
clients tear its transactions.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.peers import kafka
from tests.crash import kills
from tests.crash.kafka_clients import Client
from tests.crash.kills import Availability, Figures
from tests.crash.transaction_checker import TransactionChecker
from tests.crash.transaction_clients import (
    ConfluentTransactor,
    IsolatedConfluent,
    Leaver,
    RawTransactor,
    Transactor,
    Watcher,
    last_reader,
)
from tests.support.cluster import Cluster, Process
from tests.support.request_proxy import (
    PASSED,
    Fate,
    Held,
    Passed,
    RequestProxy,
    api_key,
    request_proxy,
)
from tests.support.transactional import TV1, TV2

TOPIC, PARTITIONS = "transactions", 4
_DISTURBED_APIS = {0, 22, 24, 25, 26, 28}
"""Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit."""
_SETTLE_SECONDS = 60.0
LATE = 0.02
"""Part of the requests that come late."""

Disturbance = Callable[[random.Random], None]


def late_requests(seed: int, often: float) -> Callable[[bytes], Fate]:
    """Fates that delay and repeat this part of the requests of producers."""
    rng = random.Random(seed)

    def fate(frame: bytes) -> Fate:
        if api_key(frame) not in _DISTURBED_APIS or rng.random() >= often:
            return PASSED
        if rng.random() < 0.5:
            return Passed(rng.uniform(0.0, 0.3))
        return Held(rng.uniform(0.01, 2.0), also_now=rng.random() < 0.5)

    return fate


def pause(process: Callable[[], Process]) -> Disturbance:
    """SIGSTOP for a while."""

    def pause(rng: random.Random) -> None:
        popen = process().popen
        popen.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.1, 1.5))
        popen.send_signal(signal.SIGCONT)

    return pause


def disturbances(cluster: Cluster, proxy: RequestProxy) -> list[Disturbance]:
    """What is done to Quafka: each as often as the others."""

    def cut(_rng: random.Random) -> None:
        proxy.cut()

    return [
        partial(kills.kill_broker, cluster),
        partial(kills.kill_broker_twice, cluster),
        partial(kills.kill_gateway, cluster),
        partial(kills.kill_both, cluster),
        partial(kills.stop_broker, cluster),
        pause(lambda: cluster.broker),
        pause(lambda: cluster.gateway),
        cut,
        cut,
    ]


@contextmanager
def quafka_behind_proxy(folder: Path) -> Generator[tuple[Cluster, RequestProxy]]:
    """A cluster whose clients all connect through the proxy."""
    with request_proxy() as proxy:
        args = ("--advertised-listener", proxy.bootstrap)
        with Cluster(folder, gateway_args=args) as cluster:
            proxy.target = cluster.address[1]
            yield cluster, proxy


def clients(
    bootstrap: str, checker: TransactionChecker, acked: Callable[[], None], rate: int, seed: int
) -> tuple[list[Client], Watcher]:
    """Producers of both styles and consumers at both isolation levels; and what watches them."""
    to = (bootstrap, TOPIC, PARTITIONS, checker)

    producers: list[Transactor] = [
        ConfluentTransactor("confluent-1", *to, per_second=rate, acked=acked, seed=seed + 1),
        ConfluentTransactor("confluent-2", *to, per_second=rate, acked=acked, seed=seed + 2),
        RawTransactor(TV1, "TV1", *to, per_second=rate, acked=acked, seed=seed + 3),
        RawTransactor(TV2, "TV2", *to, per_second=rate, acked=acked, seed=seed + 4),
        Leaver(TV1, "leaver-TV1", *to, per_second=1, acked=acked, seed=seed + 5),
        Leaver(TV2, "leaver-TV2", *to, per_second=1, acked=acked, seed=seed + 6),
    ]
    names = [producer.name for producer in producers]
    readers = [
        IsolatedConfluent("committed reader", *to, committed=True),
        IsolatedConfluent("uncommitted reader", *to, committed=False),
    ]
    return [*producers, *readers], Watcher("watcher", *to, producers=names)


def run(
    bootstrap: str,
    disturb: Sequence[Disturbance],
    seconds: float,
    *,
    rate: int = 20,
    between: tuple[float, float] = (0.3, 2.0),
    seed: int = 0,
    said: Callable[[str], None] = lambda _: None,
) -> Figures:
    """Disturb for so long, let everything settle, and read it all.

    Args:
        rate: transactions a second of each producer, at most.
        between: the range of seconds between two disturbances.
    """
    rng = random.Random(seed)
    checker, available = TransactionChecker(), Availability()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result(30)
    every, watcher = clients(bootstrap, checker, available.acked, rate, seed)
    began, cuts = time.monotonic(), 0
    with kills.running([*every, watcher]):
        end = time.monotonic() + seconds
        while (wait := rng.uniform(*between)) < end - time.monotonic():
            time.sleep(wait)
            if not disturb:
                continue
            cuts += 1
            chosen = rng.choice(disturb)
            cut_began = time.monotonic()
            name = getattr(getattr(chosen, "func", chosen), "__name__", "?")
            available.cut(f"cut {cuts}, {name}")
            chosen(rng)
            available.restored(cut_began)
            if cuts % 10 == 0:
                done = len(checker.transactions)
                said(f"{cuts} cuts, {done:,} transactions, {dict(checker.problems)}")
    ends = watcher.settle(_SETTLE_SECONDS)
    checker.finish_reading(last_reader(committed=True), last_reader(committed=False), ends)
    for fate, count in checker.fates().items():
        said(f"  {fate.value:12} {count:10,}")
    return Figures(
        cuts,
        time.monotonic() - began,
        checker.sent,
        checker.acked,
        checker.polled,
        dict(checker.given_up),
        dict(checker.problems),
        checker.examples,
        available.longest,
        statistics.median(available.outages) if available.outages else 0.0,
    )


def run_quafka(folder: Path, seconds: float, seed: int, **how: Any) -> Figures:
    """Disturb Quafka in every way."""
    with quafka_behind_proxy(folder) as (cluster, proxy):
        proxy.fate = late_requests(seed, LATE)
        return run(proxy.bootstrap, disturbances(cluster, proxy), seconds, seed=seed, **how)


def _against_quafka(options: argparse.Namespace, folder: Path) -> Figures:
    with quafka_behind_proxy(folder) as (cluster, proxy):
        proxy.fate = late_requests(options.seed, options.late)
        disturb = disturbances(cluster, proxy)
        return _run(proxy.bootstrap, disturb, options)


def _against_kafka(options: argparse.Namespace, folder: Path) -> Figures:
    with request_proxy() as proxy, kafka(folder / "kafka", proxy.bootstrap) as server:
        proxy.target = server.address[1]
        proxy.fate = late_requests(options.seed, options.late)

        def kill(_rng: random.Random) -> None:
            assert server.restart is not None
            server.restart()

        def cut(_rng: random.Random) -> None:
            proxy.cut()

        return _run(proxy.bootstrap, [kill, cut, cut], options)


def _run(bootstrap: str, disturb: list[Disturbance], options: argparse.Namespace) -> Figures:
    return run(
        bootstrap,
        disturb if options.disturb else [],
        options.seconds,
        rate=options.rate,
        seed=options.seed,
        said=partial(print, flush=True),
    )


def main() -> int:
    """Run, print the figures, and fail if any promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.transactions", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--rate", type=int, default=20, help="transactions a second, of each producer"
    )
    parser.add_argument("--late", type=float, help="part of the requests that come late")
    parser.add_argument("--no-disturb", dest="disturb", action="store_false")
    parser.add_argument("--server", choices=("quafka", "kafka"), default="quafka")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    against = {"quafka": _against_quafka, "kafka": _against_kafka}[options.server]
    if options.late is None:
        options.late = LATE if options.server == "quafka" else 0.0
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        figures = against(options, Path(scratch))
    print(figures)
    return bool(figures.problems)


if __name__ == "__main__":
    sys.exit(main())
