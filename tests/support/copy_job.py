"""Copy jobs of all clients (`tests.support.copier`) under kills, and what they have copied."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from tests.support.confluent import LASTING
from tests.support.copier import COPIERS
from tests.support.go import go_copier
from tests.support.isolated_reader import IsolatedReader
from tests.support.java import java_command, kafka_tools
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

PARTITIONS = 3
_JAVA = Path(__file__).parents[1] / "compat" / "java" / "Copy.java"
_SECONDS = 60.0
_RECORDS = 100
"""Added to a source each time."""

Address = tuple[str, int]


class CopyJob:
    """A source, a target, and processes that copy; each is started again when it was killed."""

    def __init__(
        self, folder: Path, address: Address, kind: str, members: int = 1, bootstrap: str = ""
    ) -> None:
        self._folder = folder
        self._address = address
        self._bootstrap = bootstrap or f"{address[0]}:{address[1]}"
        self.kind = kind
        self.source, self.target = f"source-{kind}", f"target-{kind}"
        self._members: list[subprocess.Popen[bytes]] = []
        self._count = members
        self._sent: Counter[int] = Counter()

    def __enter__(self) -> Self:
        with RawClient(self._address) as client:
            for topic in (self.source, self.target):
                create_topic(client, topic, PARTITIONS)
        self._members = [self._start(number) for number in range(self._count)]
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._members:
            process.kill()
            process.wait()

    def fill(self, records: int) -> None:
        """Produce the next records to the source, half of them in aborted transactions as well."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"fill-{self.kind}",
                "log_level": 0,
                **LASTING,
            }
        )
        producer.init_transactions(_SECONDS)
        for number, commit in ((records, True), (records // 2, False)):
            producer.begin_transaction()
            for n in range(number):
                partition = n % PARTITIONS
                at = self._sent[partition] if commit else -1
                producer.produce(self.source, b"%d" % at, partition=partition)
                self._sent[partition] += commit
            assert producer.flush(_SECONDS) == 0
            end = producer.commit_transaction if commit else producer.abort_transaction
            end(_SECONDS)

    @property
    def records(self) -> int:
        """How many have been committed to the source."""
        return self._sent.total()

    def kill_a_member(self, rng: random.Random) -> None:
        """kill -9, and start it again."""
        number = rng.randrange(self._count)
        self._members[number].send_signal(signal.SIGKILL)
        self._members[number].wait()
        self._members[number] = self._start(number)

    def wait_copied(self, seconds: float = _SECONDS) -> None:
        """Wait until the target is the source; fails at once on what is not its beginning."""
        reader = IsolatedReader(self.target, PARTITIONS, committed=True)
        copied: Counter[int] = Counter()
        deadline = time.monotonic() + seconds
        with RawClient(self._address) as client:
            while copied != self._sent or not reader.is_at_end():
                for partition, record in reader.poll(client, 100):
                    wanted = b"%d" % copied[partition]
                    what = f"{self.kind}: {partition}@{record.offset}: {record.value!r}"
                    assert record.value == wanted, f"{what} instead of {wanted!r}"
                    copied[partition] += 1
                assert time.monotonic() < deadline, f"{self.kind}: {copied} of {self._sent}"

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        job = {
            "bootstrap": self._bootstrap,
            "kind": self.kind,
            "id": f"{self.kind}-{number}",
            "group": f"copy-{self.kind}",
            "source": self.source,
            "target": self.target,
        }
        with (self._folder / f"{self.kind}-{number}.log").open("ab") as log:
            command = [*COMMANDS[self.kind](), json.dumps(job)]
            return subprocess.Popen(command, stdout=log, stderr=log)


def _python() -> list[str]:
    return [sys.executable, "-m", "tests.support.copier"]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    **dict.fromkeys(COPIERS, _python),
    "java": lambda: java_command(_JAVA, kafka_tools()),
    "franz-go": lambda: [str(go_copier())],
}
"""What runs a copier of each kind, but for its job."""


def copy(
    folder: Path,
    address: Address,
    kinds: Sequence[str],
    disturb: Sequence[Callable[[random.Random], None]],
    *,
    turns: int,
    seed: int = 1,
) -> Counter[str]:
    """Copy by all of these clients at a time, with a disturbance and a killed copier each turn."""
    rng = random.Random(seed)
    with _copying(folder, address, kinds, 1) as jobs:
        for turn in range(turns):
            _disturb(rng, jobs, disturb, jobs[turn % len(jobs)])
        return _copied(jobs)


def copy_for(
    folder: Path,
    address: Address,
    kinds: Sequence[str],
    disturb: Sequence[Callable[[random.Random], None]],
    seconds: float,
    *,
    members: int,
    seed: int,
) -> Counter[str]:
    """The same for so long, with groups of so many members, and often a while of peace.

    aiokafka has one member: its offsets carry none, so that nothing refuses those of a member that
    has lost its partitions (with Apache Kafka, too).
    """
    rng, done = random.Random(seed), Counter[str]()
    with _copying(folder, address, kinds, members) as jobs:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done[_disturb(rng, jobs, disturb, rng.choice([None, *jobs]))] += 1
            for job in jobs:
                job.fill(_RECORDS)
            time.sleep(rng.choice((0.0, 0.0, 1.0, 4.0)))
        return done + _copied(jobs)


@contextmanager
def _copying(
    folder: Path, address: Address, kinds: Sequence[str], members: int
) -> Generator[list[CopyJob]]:
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                CopyJob(folder, address, kind, 1 if kind == "aiokafka" else members)
            )
            for kind in kinds
        ]
        for job in jobs:
            job.fill(_RECORDS)
        yield jobs


def _disturb(
    rng: random.Random,
    jobs: Sequence[CopyJob],
    disturb: Sequence[Callable[[random.Random], None]],
    victim: CopyJob | None,
) -> str:
    """One turn: a disturbance, a killed copier, more records. The disturbance's name."""
    time.sleep(rng.uniform(0.2, 1.0))
    chosen = rng.choice(disturb)
    chosen(rng)
    if victim is not None:
        victim.kill_a_member(rng)
    rng.choice(jobs).fill(_RECORDS)
    name: str = getattr(getattr(chosen, "func", chosen), "__name__", "?")
    return name


def _copied(jobs: Sequence[CopyJob]) -> Counter[str]:
    """The records of each job, all of which are copied."""
    for job in jobs:
        job.wait_copied()
    return Counter({job.kind: job.records for job in jobs})
