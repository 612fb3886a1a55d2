"""A group whose members come, go, die and stand still all the time, with both processes killed.

All the while records are produced, and nothing may be committed that nobody has processed; when it
is over, every record must have been processed by somebody.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.cluster import Cluster
from tests.support.flock import Flock, Worker
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient
from tests.support.worker import SESSION_MS

PARTITIONS = 6
_RATE = 200  # records a second
_MOST = 6  # members at a time
_STEP_SECONDS = 0.4
_LONGER_THAN_A_SESSION = 1.5 * SESSION_MS / 1000


class Source(threading.Thread):
    """Produces numbers until it is told to stop; then every one of them is acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._topic = topic
        self._over = threading.Event()
        self.failed: Counter[str] = Counter()
        self.sent = 0

    def run(self) -> None:
        while not self._over.wait(1 / _RATE):
            partition = self.sent % PARTITIONS
            value = b"%d" % self.sent
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._told)
            self.sent += 1
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed[str(error)] += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Wait for what is under way."""
        self._over.set()
        self.join()
        assert self._producer.flush(60) == 0


class Storm:
    """One group on one cluster."""

    def __init__(
        self, cluster: Cluster, flock: Flock, kinds: Sequence[str], seed: int, script: Path | None
    ) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._flock = flock
        self._kinds = kinds
        self._chance = random.Random(seed)
        self._script = script
        self._stopped: list[tuple[float, Worker]] = []

    def run(self, seconds: float, kill_every: float, check_every: float) -> None:
        """Blow for so long, and until both were killed: now the gateway, now the broker."""
        began = time.monotonic()
        next_kill, next_check = began + kill_every, began + check_every
        for _ in range(2):
            self._start()
        while (now := time.monotonic()) < began + seconds or not self._killed_both():
            self._disturb(now)
            if now >= next_kill:
                next_kill = now + kill_every
                self._kill_a_server()
            if now >= next_check:
                next_check = now + check_every
                self.check()
            time.sleep(_STEP_SECONDS)

    def settle(self) -> None:
        """Calm: the group must come to the end, whatever was done to it."""
        for _, worker in self._stopped:
            worker.signal(signal.SIGCONT)
        self._stopped.clear()
        self._start()
        self._flock.until_all_is_committed(90)
        self.check()

    def check(self) -> None:
        """Nobody has committed what nobody has processed."""
        skipped = self._flock.skipped()
        assert not skipped, sorted(skipped)[:20]
        self.done["checked"] += 1

    def _disturb(self, now: float) -> None:
        while self._stopped and self._stopped[0][0] <= now:
            self._stopped.pop(0)[1].signal(signal.SIGCONT)
        stopped = {id(worker) for _, worker in self._stopped}
        alive = [
            worker
            for worker in self._flock.workers
            if worker.process.poll() is None and id(worker) not in stopped
        ]
        if len(alive) < 2 or (len(alive) < _MOST and self._chance.random() < 0.4):
            self._start()
            return
        chosen = self._chance.choice(alive)
        what = self._chance.choice(["leave", "kill", "pause"])
        self.done[what] += 1
        if what == "leave":
            chosen.signal(signal.SIGTERM)
        elif what == "kill":
            chosen.signal(signal.SIGKILL)
        else:
            chosen.signal(signal.SIGSTOP)
            self._stopped.append((now + _LONGER_THAN_A_SESSION, chosen))

    def _start(self) -> None:
        kind = self._chance.choice(list(self._kinds))
        self.done[f"start {kind}"] += 1
        if self._script is None:
            self._flock.start(kind)
        else:
            self._flock.start(kind, script=str(self._script))

    def _killed_both(self) -> bool:
        return bool(self.done["gateway killed"] and self.done["broker killed"])

    def _kill_a_server(self) -> None:
        if (self.done["gateway killed"] + self.done["broker killed"]) % 2:
            self._cluster.broker.kill()
            self._cluster.start_broker()
            self.done["broker killed"] += 1
        else:
            self._cluster.gateway.kill()
            self._cluster.start_gateway()
            self.done["gateway killed"] += 1


def blow(
    cluster: Cluster,
    folder: Path,
    kinds: Sequence[str],
    seconds: float,
    *,
    kill_every: float,
    check_every: float = 5.0,
    seed: int = 1,
    script: Path | None = None,
) -> Counter[str]:
    """A storm and the calm after it; what has happened. Fails if a record was skipped or lost."""
    topic = f"storm-{seed}"
    with RawClient(cluster.address) as client:
        create_topic(client, topic, PARTITIONS)
    with Flock(folder, cluster.bootstrap, topic, topic, PARTITIONS) as flock:
        storm = Storm(cluster, flock, kinds, seed, script)
        with Source(cluster.bootstrap, topic) as source:
            storm.run(seconds, kill_every, check_every)
        assert not source.failed, source.failed
        storm.settle()
        ends = flock.ends()
        assert sum(ends.values()) == source.sent
        processed = flock.processed
        assert processed == {(p, offset) for p, end in ends.items() for offset in range(end)}
        said = sum(sum(line[:1].isdigit() for line in worker.said) for worker in flock.workers)
        storm.done["records"] = source.sent
        storm.done["processed again"] = said - len(processed)
        storm.done["refused commits"] = sum(len(worker.refused) for worker in flock.workers)
        return storm.done
