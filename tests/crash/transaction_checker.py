"""Checks the observations of transactional Kafka clients, as Jepsen's Kafka workload does.

A value belongs to one transaction. A producer reports what it is about to do before it does it, and
the answer behind it; so at each moment a transaction is known to be open, being committed,
committed, being aborted or aborted. If a client never learns how a commit ended, the transaction
may be visible or not, but only as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.crash.kafka_checker import Checker, Seen


class Fate(Enum):
    """What is known of a transaction."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


MAY_BE_VISIBLE = (Fate.COMMITTING, Fate.COMMITTED)


@dataclass(eq=False)
class Transaction:
    """One transaction of a producer; `number` ascends by one per transaction of its producer."""

    producer: str
    number: int
    values: list[bytes] = field(default_factory=list[bytes])
    fate: Fate = Fate.OPEN
    sends_offset: bool = False
    """Whether it commits `number + 1` as its producer's offset in a group."""

    def __str__(self) -> str:
        return f"{self.producer}'s {self.number}, {self.fate.value}"


@dataclass
class _Reading:
    """What a consumer has read of a partition."""

    last: int = -1
    offsets: dict[int, bytes] = field(default_factory=dict[int, bytes])


class TransactionChecker(Checker):
    """Takes reports from any thread. `problems` counts anomalies by name.

    Offsets of a partition are not dense for consumers: markers and aborted records take some. So a
    consumer has skipped a record if the last reader finds it below the consumer's position.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self._of_value: dict[bytes, Transaction] = {}
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._isolation: dict[str, bool] = {}
        self._stable: dict[tuple[str, int], tuple[int, int]] = {}
        self._offsets: dict[str, int] = {}

    # --- what producers report --------------------------------------------------------------

    def begin(self, producer: str, number: int) -> Transaction:
        """A producer begins a transaction."""
        found = Transaction(producer, number)
        with self._lock:
            self.transactions[producer, number] = found
        return found

    def write(self, transaction: Transaction, value: bytes) -> None:
        """A producer is about to send a value within a transaction."""
        self.send(value)
        with self._lock:
            transaction.values.append(value)
            self._of_value[value] = transaction

    def change(self, transaction: Transaction, fate: Fate) -> None:
        """A producer is about to end a transaction, or has the answer."""
        with self._lock:
            transaction.fate = fate

    def misbehaved(self, kind: str, what: str) -> None:
        """A client saw an answer that no server may give."""
        with self._lock:
            self._problem(kind, what)

    # --- what consumers report --------------------------------------------------------------

    def poll_isolated(self, consumer: str, records: Sequence[Seen], *, committed: bool) -> None:
        """A poll of a read_committed or read_uncommitted consumer returned records."""
        self._isolation[consumer] = committed
        self.poll(consumer, records)
        with self._lock:
            for partition, offset, value in records:
                self._readings[consumer, partition].offsets[offset] = value
                transaction = self._of_value.get(value)
                if committed and transaction and transaction.fate not in MAY_BE_VISIBLE:
                    kind = "dirty read" if transaction.fate is Fate.OPEN else "aborted read"
                    self._problem(kind, f"{consumer} {partition}@{offset}: {transaction}")

    def watermarks(self, watcher: str, partition: int, stable: int, high: int) -> None:
        """A watcher saw the last stable offset and the high watermark of a partition."""
        with self._lock:
            before = self._stable.get((watcher, partition), (0, 0))
            now = f"{watcher} {partition}: {(stable, high)} after {before}"
            if stable > high:
                self._problem("stable beyond the end", now)
            if stable < before[0]:
                self._problem("stable went back", now)
            if high < before[1]:
                self._problem("high watermark went back", now)
            self._stable[watcher, partition] = (stable, high)

    def group_offset(self, producer: str, offset: int) -> None:
        """An offset that this producer's transactions commit was fetched; -1: none."""
        with self._lock:
            before = self._offsets.get(producer, -1)
            if offset < before:
                self._problem("offset went back", f"{producer}: {offset} after {before}")
            self._offsets[producer] = offset
            transaction = self.transactions.get((producer, offset - 1))
            if offset >= 0 and (transaction is None or not transaction.sends_offset):
                self._problem("made up offset", f"{producer}: {offset}")
            elif offset >= 0 and transaction and transaction.fate not in MAY_BE_VISIBLE:
                self._problem("dirty offset", str(transaction))

    def fates(self) -> Counter[Fate]:
        """How many transactions are known to be what."""
        with self._lock:
            return Counter(transaction.fate for transaction in self.transactions.values())

    # --- the end ----------------------------------------------------------------------------

    def finish_reading(self, committed: str, uncommitted: str, ends: dict[int, int]) -> None:
        """Both of these consumers have read everything from the start, all clients having stopped.

        The offsets of groups and the watermarks that were reported last are the final ones.
        """
        self.finish(ends)
        with self._lock:
            visible = self._all_of(committed)
            present = self._all_of(uncommitted)
            for number, values in visible.items():
                self._expect_prefix(number, values, present.get(number, {}))
            for number, values in present.items():
                self._check_order(number, values)
            for (consumer, number), reading in self._readings.items():
                final = visible if self._isolation[consumer] else present
                self._compare(consumer, number, reading, final.get(number, {}))
            shown = {value for values in visible.values() for value in values.values()}
            for transaction in self.transactions.values():
                self._check_whole(transaction, shown)
            for producer in {producer for producer, _ in self.transactions}:
                self._check_offset(producer, shown)
            for (watcher, number), (stable, high) in self._stable.items():
                if stable < high:
                    self._problem("stuck", f"{watcher} {number}: {stable} of {high}")

    def _all_of(self, consumer: str) -> dict[int, dict[int, bytes]]:
        return {
            number: reading.offsets
            for (name, number), reading in self._readings.items()
            if name == consumer
        }

    def _expect_prefix(
        self, partition: int, visible: dict[int, bytes], present: dict[int, bytes]
    ) -> None:
        for offset in visible.keys() - present.keys():
            self._problem("only committed readers see it", f"{partition}@{offset}")

    def _check_order(self, partition: int, values: dict[int, bytes]) -> None:
        """Values of one producer lie in the order in which it sent them."""
        last: dict[str, tuple[int, int]] = {}
        for offset in sorted(values):
            transaction = self._of_value.get(values[offset])
            if transaction is None:
                continue
            place = (transaction.number, transaction.values.index(values[offset]))
            if place <= last.get(transaction.producer, (-1, -1)):
                what = f"{partition}@{offset}: {values[offset]!r}"
                self._problem("reordered", what)
            last[transaction.producer] = place

    def _compare(
        self, consumer: str, partition: int, reading: _Reading, final: dict[int, bytes]
    ) -> None:
        for offset in final.keys() - reading.offsets.keys():
            if offset < reading.last:
                self._problem("skip", f"{consumer} {partition}: {offset} before {reading.last}")
        for offset in reading.offsets.keys() - final.keys():
            self._problem("vanished", f"{consumer} {partition}@{offset}")

    def _check_whole(self, transaction: Transaction, shown: set[bytes]) -> None:
        found = sum(value in shown for value in transaction.values)
        if 0 < found < len(transaction.values):
            self._problem("torn", f"{transaction}: {found} of {len(transaction.values)} values")
        elif transaction.values and not found and transaction.fate is Fate.COMMITTED:
            self._problem("lost transaction", str(transaction))

    def _check_offset(self, producer: str, shown: set[bytes]) -> None:
        """The offset is that of the last visible transaction which has one."""
        mine = [t for (name, _), t in self.transactions.items() if name == producer]
        certain = _last(
            t for t in mine if t.fate is Fate.COMMITTED or not shown.isdisjoint(t.values)
        )
        offset = self._offsets.get(producer, -1)
        if offset == certain:
            return
        there = self.transactions.get((producer, offset - 1))
        in_doubt = there and there.fate is Fate.COMMITTING and not there.values
        if offset < certain or not in_doubt:
            self._problem("torn offset", f"{producer}: {offset} instead of {certain}")

    def _move(self, consumer: str, partition: int, offset: int, where: str) -> None:
        reading = self._readings.setdefault((consumer, partition), _Reading())
        if offset <= reading.last:
            self._problem(f"nonmonotonic {where}", f"{consumer} {partition}: {offset}")
        reading.last = max(reading.last, offset)


def _last(transactions: Iterable[Transaction]) -> int:
    """The offset that the last of them commits; -1: none does."""
    return max((t.number + 1 for t in transactions if t.sends_offset), default=-1)
