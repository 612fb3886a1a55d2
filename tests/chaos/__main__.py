"""`python -m tests.chaos --minutes 30`: nothing is lost or doubled, whatever happens to brokers.

Four brokers and three gateways on one store; brokers are killed, paused, and stopped and started at
random. Meanwhile clients of several languages copy topics in transactions, which span shards, as
members of groups; and a producer measures for how long each topic takes no records.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.copy_job import COMMANDS, copy_for
from tests.support.group_members import GROUPS
from tests.support.needs import find
from tests.support.steady_load import SteadyLoad, Written
from tests.support.store_cluster import StoreCluster

BROKERS, GATEWAYS = ("a", "b", "c", "d"), ("copies", "measured", "spare")
TOPICS = [f"measured-{number}" for number in range(16)]
PARTITIONS = 2
_NEEDS = {"java": ("java", "mvn"), "franz-go": ("go",)}
_WINDOW_SECONDS = 20.0
"""A record that takes long within this time after a disturbance was delayed by it."""


@dataclass
class Chaos:
    """What is done to the brokers, and when."""

    cluster: StoreCluster
    load: SteadyLoad
    events: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    def _began(self, what: str, name: str) -> None:
        self.events.append((time.monotonic(), what))
        print(f"    {what} {name}", flush=True)

    def _one(self, rng: random.Random) -> str:
        return rng.choice(sorted(self.cluster.brokers))

    def kill(self, rng: random.Random) -> None:
        """kill -9; the broker comes back some seconds later, on a folder that may be gone."""
        name = self._one(rng)
        self._began("kill", name)
        self.cluster.kill(name)
        time.sleep(rng.uniform(0.0, 10.0))
        self.cluster.start_broker(name)

    def pause(self, rng: random.Random) -> None:
        """SIGSTOP, often for longer than a lease."""
        name = self._one(rng)
        self._began("pause", name)
        self.cluster.pause(name)
        time.sleep(rng.uniform(0.5, 12.0))
        self.cluster.resume(name)

    def drain(self, rng: random.Random) -> None:
        """Stop and start a broker, as for an upgrade: nobody begins one while records wait."""
        give_up = time.monotonic() + _WINDOW_SECONDS
        while not self.load.is_served() and time.monotonic() < give_up:
            time.sleep(0.05)
        name = self._one(rng)
        self._began("drain", name)
        self.cluster.drain(name)
        time.sleep(rng.uniform(0.0, 5.0))
        self._began("start", name)
        self.cluster.start_broker(name)

    def peace(self, _rng: random.Random) -> None:
        """Time in which shards go to where they are placed."""
        time.sleep(6.0)

    @property
    def all(self) -> Sequence[Callable[[random.Random], None]]:
        """What may happen, each as often as the others."""
        return [self.kill, self.pause, self.drain, self.peace]


def unavailable(
    written: Sequence[Written], events: Sequence[tuple[float, str]], topics: Sequence[str]
) -> dict[str, list[float]]:
    """For how long each topic took no records, after each disturbance."""
    found: dict[str, list[float]] = {}
    ends = [at for at, _ in events[1:]] + [float("inf")]
    for (began, what), end in zip(events, ends, strict=True):
        longest = dict.fromkeys(topics, 0.0)
        for each in written:
            done = each.sent + each.seconds
            if done >= began and each.sent < min(end, began + _WINDOW_SECONDS):
                took = min(done, end) - max(began, each.sent)
                longest[each.topic] = max(longest[each.topic], took)
        found.setdefault(what, []).extend(longest.values())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--kinds", default=",".join(COMMANDS), help="clients that copy")
    args = parser.parse_args()
    kinds = [kind for kind in args.kinds.split(",") if all(map(find, _NEEDS.get(kind, ())))]
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"chaos: seed {args.seed}, {args.minutes:g} minutes, in {folder}", flush=True)
    print(f"  copies by {', '.join(kinds)}", flush=True)
    with StoreCluster(
        folder, brokers=BROKERS, gateways=GATEWAYS, shards=args.shards, broker_args=GROUPS
    ) as cluster:
        measured = cluster.bootstrap("measured")
        admin = AdminClient({"bootstrap.servers": measured})
        for made in admin.create_topics([NewTopic(t, PARTITIONS) for t in TOPICS]).values():
            made.result(30)
        load = SteadyLoad(measured, TOPICS, "m")
        chaos = Chaos(cluster, load)
        load.start()
        seconds = args.minutes * 60
        copied = copy_for(
            folder, cluster.address("copies"), kinds, chaos.all, seconds, members=2, seed=args.seed
        )
        load.stop()
        wrong = load.differences(cluster.bootstrap("spare"), PARTITIONS)
        rows = unavailable(load.written, chaos.events, TOPICS)
    print(f"  copied exactly once: {dict(copied)}")
    print(f"  measured: {len(load.written)} records; lost, doubled or refused: {len(wrong)}")
    for line in wrong[:20]:
        print(f"    {line}")
    for what, times in sorted(rows.items()):
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(
            f"  {what}: {len(times) // len(TOPICS)} times; a topic takes no records for "
            f"p50 {p50:.2f} s, p99 {p99:.2f} s, at most {times[-1]:.2f} s"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
