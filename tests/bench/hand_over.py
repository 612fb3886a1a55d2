"""How long a topic takes no records while its shard moves: `python -m tests.bench hand_over`.

Three brokers, one gateway, and a store that all brokers share, each call of which takes a lognormal
time. Sixteen idempotent producers write 200 records a second to a topic each, so that none waits
for another; the topics are on four shards. Brokers are stopped as for an upgrade, and killed, and
come back each time. What that costs a topic is the time that its slowest record took.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.__main__ import unavailable
from tests.support.injected_broker import COMMAND, MEDIAN, SHARED
from tests.support.steady_load import SteadyLoad
from tests.support.store_cluster import StoreCluster

_TOPICS = [f"measured-{number}" for number in range(16)]
_PARTITIONS, _SHARDS = 2, 4
_BROKERS = ("a", "b", "c")
_PAUSE = 0.08
_UNTIL_SECONDS = 60.0
_CALM_SECONDS = 1.5


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench hand_over")
    parser.add_argument("--median", type=float, nargs="*", default=[0.0, 6.0, 35.0], help="ms")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{len(_BROKERS)} brokers, {_SHARDS} shards, {len(_TOPICS)} topics, 200 records/s")
    print(f"{'median':>8} {'':>8} {'times':>6} {'p50 s':>7} {'p99 s':>7} {'longest':>8}")
    for median in options.median:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
            _measure(Path(scratch), median, options.rounds, options.kills)


def _measure(folder: Path, median: float, drains: int, kills: int) -> None:
    slow = {MEDIAN: str(median), SHARED: "1"}
    with StoreCluster(
        folder, brokers=_BROKERS, shards=_SHARDS,
        command=COMMAND if median else (), env=slow if median else None,
    ) as cluster:  # fmt: skip
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
        for made in admin.create_topics([NewTopic(t, _PARTITIONS) for t in _TOPICS]).values():
            made.result(30)
        _calm(cluster)
        loads = [SteadyLoad(cluster.bootstrap(), [topic], "m", _PAUSE) for topic in _TOPICS]
        for load in loads:
            load.start()
        events: list[tuple[float, str]] = []
        for what, times, end in (
            ("drain", drains, cluster.drain),
            ("kill", kills, cluster.kill),
        ):
            for number in range(times):
                name = _owner(cluster, number)
                events.append((time.monotonic(), what))
                end(name)
                _until(lambda: all(cluster.owners()), "every shard has an owner")
                time.sleep(_CALM_SECONDS)
                events.append((time.monotonic(), "add"))
                cluster.start_broker(name)
                _calm(cluster)
        for load in loads:
            load.stop()
        for load in loads:
            wrong = load.differences(cluster.bootstrap(), _PARTITIONS)
            assert not wrong, wrong[:5]
        written = [each for load in loads for each in load.written]
        for what, seconds in sorted(unavailable(written, events, _TOPICS).items()):
            seconds.sort()
            times = len(seconds) // len(_TOPICS)
            p50, p99 = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
            print(
                f"{median:>5g} ms {what:>8} {times:>6} {p50:>7.2f} {p99:>7.2f} {seconds[-1]:>8.2f}",
                flush=True,
            )
        took = sorted(_takeovers(folder))
        print(
            f"{'':>8} {'takeover':>8} {len(took):>6} {took[len(took) // 2]:>7.2f}"
            f" {took[int(len(took) * 0.99)]:>7.2f} {took[-1]:>8.2f}", flush=True,
        )  # fmt: skip


def _owner(cluster: StoreCluster, number: int) -> str:
    """A broker that has shards, another one each time."""
    owners = sorted(set(cluster.owners()))
    return owners[number % len(owners)]


def _calm(cluster: StoreCluster) -> None:
    """Wait until each broker has its share, and nothing moves any more."""
    share = -(-_SHARDS // len(_BROKERS))
    _until(
        lambda: "" not in cluster.owners() and max(map(cluster.owners().count, _BROKERS)) <= share,
        "shards are where they are placed",
    )
    time.sleep(_CALM_SECONDS)


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _UNTIL_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


def _takeovers(folder: Path) -> list[float]:
    """Seconds of each takeover, from its decision to the first op, as brokers have logged them."""
    logs = (path.read_text() for path in folder.glob("broker-*.log"))
    return [float(s) for text in logs for s in re.findall(r"is here after ([0-9.]+) s", text)]
