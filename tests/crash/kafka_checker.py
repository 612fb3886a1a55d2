"""Checks the observations of Kafka clients, as Jepsen's Kafka workload does (jepsen.tests.kafka).

Every value is unique: it has its producer and number. Producers report the values that they
send and the acknowledgements, consumers report each poll. At the end everything is read once from
the start. Partitions are dense (no compaction, no transactions): any missing offset is a skip.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_SHOWN = 20


class Seen(NamedTuple):
    """One record of a poll."""

    partition: int
    offset: int
    value: bytes


@dataclass
class _Partition:
    values: dict[int, bytes] = field(default_factory=dict[int, bytes])
    offsets: dict[bytes, int] = field(default_factory=dict[bytes, int])
    acked: set[bytes] = field(default_factory=set[bytes])
    read: set[bytes] = field(default_factory=set[bytes])


class Checker:
    """Takes reports from any thread. `problems` counts anomalies by Jepsen's names."""

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self.examples: list[str] = []
        self.sent = self.acked = self.polled = 0
        self.given_up: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._partitions: dict[int, _Partition] = {}
        self._known: set[bytes] = set()
        self._acked_up_to: dict[tuple[str, int], int] = {}
        self._positions: dict[tuple[str, int], int] = {}

    def send(self, value: bytes) -> None:
        """A producer is about to send a value."""
        with self._lock:
            self.sent += 1
            self._known.add(value)

    def ack(self, producer: str, partition: int, offset: int, value: bytes) -> None:
        """A value was acknowledged at an offset. A producer reports its values in order."""
        with self._lock:
            self.acked += 1
            self._place(partition, offset, value, f"{producer}'s acknowledgement")
            self._of(partition).acked.add(value)
            last = self._acked_up_to.get((producer, partition), -1)
            if offset <= last:
                self._problem("nonmonotonic send", f"{producer} {partition}: {offset} after {last}")
            self._acked_up_to[producer, partition] = offset

    def ack_somewhere(self, partition: int, value: bytes) -> None:
        """A value was acknowledged without an offset: librdkafka does so if the answer was lost and
        the next batch in the sequence was accepted."""
        with self._lock:
            self.acked += 1
            self._of(partition).acked.add(value)

    def give_up(self, producer: str, reason: object) -> None:
        """A producer gave a value up: it may be stored or not, but not twice."""
        with self._lock:
            self.given_up[f"{producer}: {reason}"] += 1

    def poll(self, consumer: str, records: Sequence[Seen]) -> None:
        """A poll returned records. A consumer without a seek continues at its position."""
        within: set[int] = set()
        with self._lock:
            self.polled += len(records)
            for partition, offset, value in records:
                self._place(partition, offset, value, f"{consumer}'s poll")
                self._of(partition).read.add(value)
                if value not in self._known:
                    self._problem("made up", f"{partition}@{offset}: {value!r}")
                where = "inside a poll" if partition in within else "between polls"
                self._move(consumer, partition, offset, where)
                within.add(partition)

    def finish(self, ends: dict[int, int]) -> None:
        """Everything up to these offsets has been read from the start."""
        with self._lock:
            for number, partition in self._partitions.items():
                for value in sorted(partition.acked - partition.read):
                    at = partition.offsets.get(value)
                    beyond = at is not None and at >= ends.get(number, 0)
                    kind = "unseen" if beyond else "lost write"
                    self._problem(kind, f"{number}@{at}: {value!r}")

    def _of(self, partition: int) -> _Partition:
        return self._partitions.setdefault(partition, _Partition())

    def _place(self, partition: int, offset: int, value: bytes, who: str) -> None:
        """A value and an offset belong together, for good."""
        known = self._of(partition)
        at = known.offsets.setdefault(value, offset)
        if at != offset:
            self._problem("duplicate", f"{partition}: {value!r} at {at} and, in {who}, {offset}")
        there = known.values.setdefault(offset, value)
        if there != value:
            what = f"{partition}@{offset}: {there!r} and, in {who}, {value!r}"
            self._problem("inconsistent offset", what)

    def _move(self, consumer: str, partition: int, offset: int, where: str) -> None:
        expected = self._positions.get((consumer, partition), 0)
        if offset < expected:
            self._problem(f"nonmonotonic {where}", f"{consumer} {partition}: {offset}")
        elif offset > expected:
            self._problem(f"skip {where}", f"{consumer} {partition}: {expected} to {offset}")
        self._positions[consumer, partition] = offset + 1

    def _problem(self, kind: str, what: str) -> None:
        self.problems[kind] += 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"{kind}: {what}")
