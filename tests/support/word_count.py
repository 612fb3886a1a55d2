"""A word count of Kafka Streams with exactly_once_v2, killed at random, and its exact result.

The application (`tests/compat/java/WordCount.java`) has a repartition topic, a state store and its
changelog. It writes every count; so a read_committed reader must find 1, 2, 3 and so on for each
word, none twice, none missing.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from tests.support.isolated_reader import IsolatedReader
from tests.support.java import java_command, kafka_streams
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

PARTITIONS = 4
_SOURCE = Path(__file__).parents[1] / "compat" / "java" / "WordCount.java"
_WORDS = [f"word{n}" for n in range(50)]
_LINE = 4
"""Words of a line."""


class WordCount:
    """The application's processes, each with a state folder that it keeps over kills."""

    def __init__(self, folder: Path, address: tuple[str, int], processes: int, seed: int) -> None:
        self._folder = folder
        self._address = address
        self._bootstrap = f"{address[0]}:{address[1]}"
        self._count = processes
        self._rng = random.Random(seed)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.expected: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with RawClient(self._address) as client:
            for topic in ("lines", "counts"):
                create_topic(client, topic, PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._processes = [self._start(number) for number in range(self._count)]
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def write(self, lines: int) -> None:
        """Produce lines; they are acknowledged, each once."""
        for _ in range(lines):
            words = self._rng.choices(_WORDS, k=_LINE)
            self.expected.update(words)
            self._producer.produce("lines", " ".join(words))
        assert self._producer.flush(120) == 0

    def kill(self) -> None:
        """kill -9 of one process, and start it again."""
        number = self._rng.randrange(self._count)
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(number)

    def lose_state(self) -> None:
        """kill -9 of every process, whose state stores are then restored from the changelog."""
        for number, process in enumerate(self._processes):
            process.kill()
            process.wait()
            shutil.rmtree(self._folder / f"state-{number}")
            self._processes[number] = self._start(number)

    def wait_counted(self, seconds: float) -> None:
        """Wait until every word has been counted; fails at once on a wrong count."""
        reader = IsolatedReader("counts", PARTITIONS, committed=True)
        counted: Counter[str] = Counter()
        deadline = time.monotonic() + seconds
        with RawClient(self._address) as client:
            while counted != self.expected or not reader.is_at_end():
                for partition, record in reader.poll(client, 100):
                    word = (record.key or b"").decode()
                    counted[word] += 1
                    what = f"{word}: {record.value!r} at {partition}@{record.offset}"
                    assert record.value == b"%d" % counted[word], f"{what}, not {counted[word]}"
                missing = self.expected.total() - counted.total()
                assert time.monotonic() < deadline, f"{missing} of {self.expected.total()} missing"

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = java_command(_SOURCE, kafka_streams())
        command += [self._bootstrap, str(self._folder / f"state-{number}")]
        with (self._folder / f"streams-{number}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)


def count_words(
    folder: Path,
    address: tuple[str, int],
    disturb: Sequence[Callable[[random.Random], None]],
    seconds: float,
    *,
    processes: int = 2,
    between: tuple[float, float] = (1.0, 8.0),
    settle: float = 120.0,
    seed: int = 1,
    said: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Write lines and kill for so long; what was done. Fails unless the counts are exact."""
    rng, done = random.Random(seed), Counter[str]()
    with WordCount(folder, address, processes, seed) as words:
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + rng.uniform(*between)
        while time.monotonic() < end:
            words.write(rng.randrange(1, 60))
            time.sleep(rng.uniform(0.0, 0.5))
            if time.monotonic() < next_kill:
                continue
            next_kill = time.monotonic() + rng.uniform(*between)
            if not disturb or (done.total() + seed) % 2:  # by turns
                words.kill()
                done["application killed"] += 1
            else:
                rng.choice(disturb)(rng)
                done["server disturbed"] += 1
            if done.total() % 10 == 0:
                said(f"  {dict(done)}, {words.expected.total():,} words")
        words.wait_counted(settle)
        done["words"] = words.expected.total()
    return done
