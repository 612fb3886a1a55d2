"""Decodes the batches of a fetch in a thread, and keeps the wanted records."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from quafka_client.filters import Wanted
from quafka_client.records import FetchedBatches
from quafka_console.data.messages.records import (
    SHOWN_BYTES,
    Outcome,
    ReadRecord,
    kept,
    kept_headers,
)
from quafka_loop import clock
from quafka_proto.errors import Malformed
from quafka_proto.record_codec import Record, iter_records, read_marker
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)

Place = tuple[int, int, int]
"""Where a record is in the order of a reading."""
_BREATH = 5e-5


@dataclass(slots=True)
class Progress:
    """How far a reading has come. Set `stopped` to end it; what was found is returned.

    Attributes:
        scanned: records that were looked at.
        size: their bytes, as they are stored.
        unreadable: batches that are damaged, or too large.
        limited: the reading's limit was reached before the end.
    """

    scanned: int = 0
    size: int = 0
    found: int = 0
    unreadable: int = 0
    limited: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What is wanted of each batch.

    Attributes:
        wanted: None: all records.
        committed: only what consumers with isolation.level=read_committed get.
        most: bytes that are kept of each key and value, and of the headers.
    """

    wanted: Wanted | None = None
    committed: bool = False
    most: int = SHOWN_BYTES


@dataclass(slots=True)
class Best:
    """The records with the least places: at most `count`, and of about `most` bytes."""

    count: int
    most: int
    size: int = 0
    cut: bool = False
    """Whether records were left out for their bytes."""
    _heap: list[tuple[Place, ReadRecord]] = field(default_factory=list[tuple[Place, ReadRecord]])

    def takes(self, place: Place) -> bool:
        """Whether a record of this place would be kept."""
        return not self.full or place < self.last

    @property
    def full(self) -> bool:
        """Whether a further record is kept only in place of another."""
        return len(self._heap) >= self.count or self.cut

    @property
    def last(self) -> Place:
        """The greatest place that is kept."""
        a, b, c = self._heap[0][0]
        return -a, -b, -c

    def add(self, place: Place, record: ReadRecord) -> None:
        """Keep it, and let the last ones go if they are too many."""
        a, b, c = place
        heapq.heappush(self._heap, ((-a, -b, -c), record))
        self.size += record.kept
        while len(self._heap) > self.count or (self.size > self.most and len(self._heap) > 1):
            self.cut |= self.size > self.most
            self.size -= heapq.heappop(self._heap)[1].kept

    def records(self) -> list[ReadRecord]:
        """By their places."""
        return [record for _, record in sorted(self._heap, key=lambda each: each[0], reverse=True)]


@dataclass(slots=True)
class Part:
    """A range of a partition that is read. `at`: the next offset; `time`: the greatest so far."""

    number: int
    at: int
    end: int
    time: int = -(1 << 62)
    matched: int = 0


def decode(
    fetched: FetchedBatches,
    part: Part,
    choice: Choice,
    best: Best,
    progress: Progress,
    *,
    latest: bool,
) -> None:
    """Keep the wanted records of [at, end) in `best`, and move the part on.

    `latest`: the latest records are the best, else the earliest. A batch that is damaged or too
    large is counted and passed over.
    """
    rest = fetched.batches
    aborted = _Aborted(fetched.aborted)
    began = part.at
    while len(rest) >= BATCH_HEADER_SIZE and part.at < part.end and not progress.stopped:
        header = read_header(rest)
        if not BATCH_HEADER_SIZE <= header.length <= len(rest):
            break  # Kafka may truncate the last batch
        if header.base_offset >= part.end:
            part.at = part.end
            break
        batch, rest = rest[: header.length], rest[header.length :]
        first, part.at = part.at, max(part.at, header.last_offset + 1)
        progress.size += header.length
        outcome = aborted.outcome(header) if fetched.committed else Outcome.HELD
        if choice.committed and (header.attributes & CONTROL or outcome is Outcome.ABORTED):
            progress.scanned += max(0, header.record_count)
            continue
        try:
            _records(batch, header, first, part, outcome, choice, best, progress, latest)
        except Malformed:
            progress.unreadable += 1
    if part.at == began and not progress.stopped:
        part.at = part.end  # nothing more is there


def _records(
    batch: memoryview, header: BatchHeader, first: int, part: Part, outcome: Outcome,
    choice: Choice, best: Best, progress: Progress, latest: bool,
) -> None:  # fmt: skip
    control = header.attributes & CONTROL
    for record in iter_records(batch, pause=_breathe):
        offset = record.offset
        if not first <= offset < part.end:
            continue
        progress.scanned += 1
        part.time = max(part.time, record.timestamp)
        if choice.wanted is not None and not choice.wanted(record):
            continue
        part.matched += 1
        progress.found += 1
        if latest:
            place = (-record.timestamp, -offset, part.number)
        else:
            place = (part.time, part.number, offset)
        if best.takes(place):
            marker = read_marker(record) if control else None
            mark = "" if marker is None else marker.type.name
            best.add(place, _kept(record, part.number, mark, outcome, choice.most))


def _kept(record: Record, partition: int, mark: str, outcome: Outcome, most: int) -> ReadRecord:
    return ReadRecord(
        partition, record.offset, record.timestamp, kept(record.key, most),
        kept(record.value, most), kept_headers(record.headers, most), len(record.headers), mark,
        outcome,
    )  # fmt: skip


class _Aborted:
    """The producers whose aborted transactions have begun, as in Kafka's consumer."""

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._later = list(reversed(transactions))
        self._producers: set[int] = set()

    def outcome(self, header: BatchHeader) -> Outcome:
        """That of a batch, which is later than those before."""
        while self._later and self._later[-1][1] <= header.last_offset:
            self._producers.add(self._later.pop()[0])
        if header.attributes & CONTROL:
            self._producers.discard(header.producer_id)
            return Outcome.NONE
        if not header.attributes & TRANSACTIONAL:
            return Outcome.NONE
        return Outcome.ABORTED if header.producer_id in self._producers else Outcome.COMMITTED


def _breathe() -> None:
    """Yield the interpreter to the event loop."""
    clock.sleep(_BREATH)
