"""A partition's segments: lists their files, and finds offsets and times in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.batch_file import BatchFile, Placed, open_batches
from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import names_in
from quafka_broker.kafka_logs.folder_names import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    segment_name,
    segment_offset,
)
from quafka_broker.kafka_logs.index_files import offset_hint, time_hint

_END_OF_TIME = 1 << 63


@dataclass(frozen=True, slots=True)
class KafkaSegment:
    """One `.log` file with its indexes. Methods block and may run in any thread.

    Attributes:
        path: the `.log` file.
        base_offset: the offset in the file's name; its first batch may begin later.
        next_offset: the base offset of the next segment; for the last one, the log end.
        size: the valid bytes.
    """

    path: Path
    base_offset: int
    next_offset: int
    size: int

    @property
    def transaction_index(self) -> Path:
        """Its `.txnindex`, which may be missing."""
        return self._beside(TXN_INDEX)

    def batches_from(self, file: BatchFile, offset: int) -> Iterator[Placed]:
        """The batches that end at or after an offset. Raises KafkaLogError."""
        for placed in file.walk(self._start(file, offset)):
            if placed.header.last_offset >= offset:
                yield placed

    def position_of(self, file: BatchFile, offset: int, likely: int | None = None) -> int | None:
        """The position of the first batch that ends at or after an offset, or None.

        `likely`: a position where a batch with exactly this offset may begin.

        Raises:
            KafkaLogError: a damaged batch precedes it.
        """
        if likely is not None and self._begins(file, likely, offset):
            return likely
        found = next(self.batches_from(file, offset), None)
        return None if found is None else found.position

    def batches_since(self, file: BatchFile, timestamp: int) -> Iterator[Placed]:
        """The batches with a max timestamp of at least this. Raises KafkaLogError."""
        hint = time_hint(self._beside(TIME_INDEX), self.base_offset, timestamp)
        start = 0
        if hint is not None and hint.offset < self.next_offset:
            placed = next(self.batches_from(file, hint.offset), None)
            # A correct row names a batch with that max timestamp.
            if placed is not None and placed.header.max_timestamp == hint.timestamp:
                start = placed.position
        for placed in file.walk(start):
            if placed.header.max_timestamp >= timestamp:
                yield placed

    def newest(self, file: BatchFile) -> Placed | None:
        """The first batch with the highest timestamp; None: no batch has one.

        Raises:
            KafkaLogError
        """
        hint = time_hint(self._beside(TIME_INDEX), self.base_offset, _END_OF_TIME)
        found: Placed | None = None
        for placed in self.batches_since(file, -1 if hint is None else hint.timestamp):
            if placed.header.max_timestamp > (found.header.max_timestamp if found else -1):
                found = placed
        return found

    def _begins(self, file: BatchFile, position: int, offset: int) -> bool:
        try:
            return position < self.size and file.header(position).base_offset == offset
        except KafkaLogError:
            return False

    def last_indexed(self, file: BatchFile) -> int:
        """The position of the last batch that the index names."""
        return self._start(file, _END_OF_TIME)

    def _start(self, file: BatchFile, offset: int) -> int:
        """A position at or before the batch of an offset."""
        hint = offset_hint(self._beside(INDEX), self.base_offset, offset)
        if hint is None or hint.position >= self.size:
            return 0
        try:
            header = file.header(hint.position)
        except KafkaLogError:
            return 0
        within = header.base_offset <= hint.offset <= header.last_offset
        return hint.position if within else 0

    def _beside(self, suffix: str) -> Path:
        # While Kafka swaps in a cleaned segment, all its files have a second suffix.
        swapped = SWAP if self.path.name.endswith(SWAP) else ""
        return self.path.with_name(segment_name(self.base_offset, suffix) + swapped)


class SegmentFiles(NamedTuple):
    """The files of a partition folder."""

    logs: list[tuple[int, Path]]
    """Base offset and `.log` file, ascending."""
    snapshots: list[tuple[int, Path]]
    """Offset and `.snapshot` file, ascending."""


def list_files(folder: Path) -> SegmentFiles:
    """The segments of a folder, and its snapshots of producers.

    A crash of Kafka's log cleaner can leave `.log.swap` files. They replace all segments in their
    range, unless there is a `.log.cleaned` at or below them: then the cleaning was incomplete.

    Raises:
        KafkaLogError: the folder cannot be read.
    """
    logs: dict[int, Path] = {}
    swaps: dict[int, Path] = {}
    snapshots: dict[int, Path] = {}
    cleaned = _END_OF_TIME
    for name in names_in(folder):
        found = segment_offset(name)
        if found is None:
            continue
        offset, suffix = found
        if suffix == LOG + CLEANED:
            cleaned = min(cleaned, offset)
        for wanted, files in ((LOG, logs), (LOG + SWAP, swaps), (SNAPSHOT, snapshots)):
            if suffix == wanted:
                files[offset] = folder / name
    for offset, path in swaps.items():
        if offset < cleaned:
            _swap_in(logs, offset, path)
    return SegmentFiles(sorted(logs.items()), sorted(snapshots.items()))


def _swap_in(logs: dict[int, Path], offset: int, path: Path) -> None:
    last = offset
    with open_batches(path) as file:
        for placed in file.walk(0):
            last = placed.header.last_offset
    for replaced in [base for base in logs if offset <= base <= last]:
        del logs[replaced]
    logs[offset] = path
