"""Repeated kill -9 of real processes under real clients; then everything is read back."""

from __future__ import annotations

import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.crash.kafka_checker import Checker
from tests.crash.kafka_clients import (
    AioKafka,
    Client,
    Confluent,
    ConfluentReader,
    KafkaPython,
    KafkaPythonReader,
    Sender,
)
from tests.support.cluster import Cluster
from tests.support.mounts import LoopFilesystem

TOPIC = "crash"
PARTITIONS = 4
_READY_SECONDS = 30.0


class Nemesis(Protocol):
    """One cut: takes something away from a running cluster and brings it back."""

    __name__: str

    def __call__(self, cluster: Cluster, rng: random.Random, /) -> None: ...


def kill_broker(cluster: Cluster, _rng: random.Random) -> None:
    """kill -9 of the broker."""
    cluster.broker.kill()
    cluster.start_broker()


def kill_broker_twice(cluster: Cluster, rng: random.Random) -> None:
    """kill -9 of the broker, and of the next one while it starts and recovers."""
    cluster.broker.kill()
    cluster.kill_starting_broker(rng.uniform(0.0, 1.0))
    cluster.start_broker()


def kill_gateway(cluster: Cluster, _rng: random.Random) -> None:
    """kill -9 of the gateway."""
    cluster.gateway.kill()
    cluster.start_gateway()


def kill_both(cluster: Cluster, _rng: random.Random) -> None:
    """kill -9 of both."""
    cluster.broker.kill()
    cluster.gateway.kill()
    cluster.start_broker()
    cluster.start_gateway()


def stop_broker(cluster: Cluster, _rng: random.Random) -> None:
    """A clean stop, so that kills also hit the state that clean stops leave."""
    cluster.broker.stop()
    cluster.start_broker()


def power_cut(disk: LoopFilesystem) -> Nemesis:
    """The power fails: of the disk and, in the same instant, of the broker."""

    def power_cut(cluster: Cluster, _rng: random.Random) -> None:
        cluster.broker.popen.send_signal(signal.SIGSTOP)  # it must not outlive its disk
        disk.cut_power()
        cluster.broker.kill()
        disk.restore_power()
        cluster.start_broker()

    return power_cut


NEMESES: Sequence[Nemesis] = (
    *[kill_broker] * 6,
    *[kill_broker_twice] * 2,
    kill_gateway,
    kill_both,
    stop_broker,
)


class Availability:
    """The times between acknowledgements, of all producers together."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._lock = threading.Lock()
        self._cut = "the start"
        self.longest = (0.0, self._cut)
        """Seconds, and the last cut that was begun before they were over."""
        self._since: float | None = None
        self.outages: list[float] = []
        """For each cut: seconds from its start to the first acknowledgement after its end."""

    def acked(self) -> None:
        """An acknowledgement arrived."""
        now = time.monotonic()
        with self._lock:
            if self._last is not None:
                self.longest = max(self.longest, (now - self._last, self._cut))
            self._last = now
            if self._since is not None:
                self.outages.append(now - self._since)
                self._since = None

    def cut(self, what: str) -> None:
        """A cut begins."""
        with self._lock:
            self._cut = what

    def restored(self, began: float) -> None:
        """The cut that began then is over."""
        with self._lock:
            self._since = began


@dataclass
class Figures:
    """The result of a run."""

    cuts: int
    seconds: float
    sent: int
    acked: int
    polled: int
    given_up: dict[str, int]
    problems: dict[str, int]
    examples: list[str]
    longest_unavailable: tuple[float, str]
    median_unavailable: float

    @property
    def lost(self) -> int:
        """Acknowledged records that cannot be read."""
        return self.problems.get("lost write", 0) + self.problems.get("unseen", 0)

    @property
    def duplicated(self) -> int:
        """Records at more than one offset."""
        return self.problems.get("duplicate", 0)

    def __str__(self) -> str:
        others = sum(self.problems.values()) - self.lost - self.duplicated
        longest, cut = self.longest_unavailable
        lines = [
            f"cuts survived            {self.cuts:10,}   in {self.seconds:.0f} s",
            f"records sent             {self.sent:10,}",
            f"records acknowledged     {self.acked:10,}",
            f"given up by a client     {sum(self.given_up.values()):10,}",
            f"lost                     {self.lost:10,}",
            f"duplicated               {self.duplicated:10,}",
            f"records polled           {self.polled:10,}",
            f"other anomalies          {others:10,}",
            f"longest unavailability   {longest:10.2f} s ({cut})",
            f"median, cut to next ack  {self.median_unavailable:10.2f} s",
            *(f"  given up, {reason}: {count}" for reason, count in self.given_up.items()),
            *(f"  {kind}: {count}" for kind, count in self.problems.items()),
            *(f"    {example}" for example in self.examples),
        ]
        return "\n".join(lines)


def clients(
    bootstrap: str, checker: Checker, acked: Callable[[], None], per_second: int, seed: int
) -> list[Client]:
    """Four idempotent producers and two consumers, of three libraries."""
    to = (bootstrap, TOPIC, PARTITIONS, checker)
    senders: list[tuple[str, type[Sender]]] = [
        ("confluent-1", Confluent),
        ("confluent-2", Confluent),
        ("kafka-python", KafkaPython),
        ("aiokafka", AioKafka),
    ]
    return [
        *[
            kind(name, *to, per_second=per_second, acked=acked, seed=seed + n)
            for n, (name, kind) in enumerate(senders)
        ],
        ConfluentReader("confluent reader", *to),
        KafkaPythonReader("kafka-python reader", *to),
    ]


@contextmanager
def running(every: list[Client]) -> Iterator[None]:
    """Start clients, wait until each has made progress; stop them all, and raise their errors."""
    for client in every:
        client.start()
    try:
        for client in every:
            assert client.ready.wait(_READY_SECONDS), f"{client.name} does not get anywhere"
        yield
    finally:
        for client in every:
            client.stopping.set()
        for client in every:
            client.join()
    for client in every:
        client.raise_error()


def run(
    cluster: Cluster,
    cuts: int,
    *,
    nemeses: Sequence[Nemesis] = NEMESES,
    per_second: int = 300,
    between: tuple[float, float] = (0.1, 1.5),
    seed: int = 0,
    said: Callable[[str], None] = lambda _: None,
) -> Figures:
    """Cut `cuts` times, then read everything. `between`: the range of seconds between cuts."""
    rng = random.Random(seed)
    checker = Checker()
    available = Availability()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result(30)
    every = clients(cluster.bootstrap, checker, available.acked, per_second, seed)
    began = time.monotonic()
    with running(every):
        for number in range(cuts):
            time.sleep(rng.uniform(*between))
            nemesis = rng.choice(nemeses)
            cut_began = time.monotonic()
            available.cut(f"cut {number + 1}, {nemesis.__name__}")
            nemesis(cluster, rng)
            available.restored(cut_began)
            if (number + 1) % 10 == 0:
                said(f"{number + 1} cuts, {checker.acked:,} acknowledged, {dict(checker.problems)}")
        time.sleep(1)
    reader = ConfluentReader("last reader", cluster.bootstrap, TOPIC, PARTITIONS, checker)
    checker.finish(reader.read_all())
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
