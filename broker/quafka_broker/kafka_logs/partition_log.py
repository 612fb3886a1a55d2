"""A partition of Kafka's log folders, read in place.

`PartitionLog` reads a folder of a stopped or a running Kafka. All methods block, so they belong in
threads. Reads may run in several threads at a time, and during `refresh`: each uses one immutable
`LogView`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from quafka_broker.kafka_logs.batch_file import BatchFile, Placed, open_batches
from quafka_broker.kafka_logs.errors import KafkaLogError, OffsetOutOfRangeError
from quafka_broker.kafka_logs.files import changed, size_of
from quafka_broker.kafka_logs.log_view import LogView, PlacedBatch, TimeAndOffset
from quafka_broker.kafka_logs.segments import KafkaSegment, list_files
from quafka_broker.kafka_logs.tail import recover
from quafka_broker.kafka_logs.text_files import read_leader_epochs
from quafka_broker.kafka_logs.transactions import (
    OpenTransactions,
    indexed,
    newest_snapshot,
    overlapping,
)
from quafka_loop import clock, threads
from quafka_proto.compression import DECOMPRESSED_LIMIT
from quafka_proto.errors import BatchError, Malformed
from quafka_proto.kafka_log_format import KafkaAbortedTransaction
from quafka_proto.message_sets import stored_batch
from quafka_proto.record_codec import iter_records
from quafka_proto.records import MAGIC, base_offset, end_offset

LEADER_EPOCHS = "leader-epoch-checkpoint"
_TICK_NS = 50_000_000
_ENDS = 256
_ABORTED_IN_MEMORY = 1_000
_LOOKS = 3
_CHUNK = 1 << 20


class PartitionLog:
    """One partition's folder.

    `checkpointed_start` and `recovery_point` are from the log folder's checkpoints. Kafka has
    synced everything before the recovery point; after an unclean end, later bytes may be torn. So
    with `clean` false, all batches after it are verified once.
    """

    def __init__(
        self,
        path: Path,
        *,
        checkpointed_start: int = 0,
        recovery_point: int | None = None,
        clean: bool = False,
    ) -> None:
        """Opens the partition. Raises KafkaLogError."""
        self.path = path
        self._start = checkpointed_start
        self._refreshing = threads.Lock()
        self._transactions = OpenTransactions(0)
        self._ends: dict[int, tuple[int, int]] = {}
        self._seen: tuple[int, int] | None = None
        self._last: Placed | None = None
        self._truncations = 0
        self.view = _repeated(lambda: self._opened(recovery_point, clean))

    # --- bounds -----------------------------------------------------------------------------

    @property
    def log_start(self) -> int:
        """The first offset that may be read."""
        return self.view.log_start

    @property
    def log_end(self) -> int:
        """The offset after the last whole, valid batch."""
        return self.view.log_end

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the log end."""
        return self.view.last_stable_offset

    # --- reading ----------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end: int | None = None) -> list[PlacedBatch]:
        """Read verified batches from this offset on, whole and of format 2.

        They have at most `max_bytes`, but at least one is returned, and all begin before `end`
        (None: the log end). Compaction leaves gaps: the first batch may begin after the offset, and
        an empty list means that there are no more batches before `end`.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
            KafkaLogError: the batch is damaged, or Kafka has just removed its segment; `refresh`
                shows which.
        """
        view = self.view
        if not view.log_start <= offset <= view.log_end:
            raise OffsetOutOfRangeError(f"{offset}: {view.log_start} to {view.log_end}")
        end = view.log_end if end is None else min(end, view.log_end)
        found: list[PlacedBatch] = []
        for segment in view.segments_from(offset):
            if segment.base_offset >= end or (found and max_bytes <= 0):
                break
            max_bytes -= self._read_segment(segment, offset, max_bytes, end, found)
        return found

    def every_batch(self) -> Iterator[PlacedBatch]:
        """Iterate over all batches from the log start; a mebibyte of them is in memory.

        Raises:
            OffsetOutOfRangeError, KafkaLogError: see `read`.
        """
        offset = self.log_start
        while offset < self.log_end:
            batches = self.read(offset, _CHUNK)
            if not batches:
                return
            yield from batches
            offset = batches[-1].next_offset

    def _read_segment(
        self, segment: KafkaSegment, offset: int, room: int, end: int, found: list[PlacedBatch]
    ) -> int:
        """Append batches of a segment; returns their bytes, or all of `room` when it is full."""
        with open_batches(segment.path, segment.size) as file:
            inode, likely = self._ends.get(offset, (0, 0))
            known = likely if inode == file.inode else None
            position = segment.position_of(file, offset, known)
            used = 0
            while position is not None and position < segment.size:
                try:
                    if found and file.header(position).length > room - used:
                        used = room
                        break
                    pieces = file.read(position, room - used)
                except KafkaLogError:
                    if found:
                        return room
                    raise
                for placed, data in pieces:
                    batch = _converted(segment.path, placed.position, placed.header.magic, data)
                    if base_offset(batch.data) >= end or (found and used + len(batch.data) > room):
                        return room
                    used += len(batch.data)
                    found.append(batch)
                    position = placed.end
            if found and position is not None:
                self._remember(found[-1].next_offset, (file.inode, position))
        return used

    def _remember(self, offset: int, place: tuple[int, int]) -> None:
        """Remember the end of a read: readers continue there, and the index is sparse."""
        self._ends[offset] = place
        if len(self._ends) > _ENDS:
            with suppress(KeyError, RuntimeError):  # another thread did so
                del self._ends[next(iter(self._ends))]

    # --- by time ----------------------------------------------------------------------------

    def offset_at(self, timestamp: int, end: int | None = None) -> TimeAndOffset | None:
        """The first record before `end` with this timestamp or a later one, or None.

        Raises:
            KafkaLogError
        """
        view = self.view
        end = view.log_end if end is None else end
        for segment in view.segments_from(view.log_start):
            with open_batches(segment.path, segment.size) as file:
                for placed in segment.batches_since(file, timestamp):
                    found = self._first_since(file, placed.position, timestamp, view.log_start)
                    if found is not None:
                        return found if found.offset < end else None
        return None

    def newest(self) -> TimeAndOffset | None:
        """The first record with the highest timestamp, or None.

        Raises:
            KafkaLogError
        """
        view = self.view
        newest: TimeAndOffset | None = None
        for segment in view.segments_from(view.log_start):
            with open_batches(segment.path, segment.size) as file:
                placed = segment.newest(file)
                if placed is None or (newest and placed.header.max_timestamp <= newest.timestamp):
                    continue
                time = placed.header.max_timestamp
                found = self._first_since(file, placed.position, time, view.log_start)
                newest = found or newest
        return newest

    @staticmethod
    def _first_since(
        file: BatchFile, position: int, timestamp: int, log_start: int
    ) -> TimeAndOffset | None:
        placed, data = file.read(position, 0)[0]
        batch = _converted(file.path, position, placed.header.magic, data)
        epoch = placed.header.leader_epoch if placed.header.magic == MAGIC else -1
        try:
            for record in iter_records(batch.data):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return TimeAndOffset(record.timestamp, record.offset, epoch)
        except Malformed as e:
            raise KafkaLogError(file.path, str(e), position) from e
        return None

    # --- transactions -----------------------------------------------------------------------

    def aborted(self, first: int, end: int) -> list[KafkaAbortedTransaction]:
        """The aborted transactions with records from `first` on and before `end`, by marker.

        Raises:
            KafkaLogError: an index of aborted transactions is damaged.
        """
        view = self.view
        found: list[KafkaAbortedTransaction] = []
        for segment in view.segments_from(first):
            if segment.base_offset >= view.scanned_from:
                break
            for row in indexed(segment.transaction_index, first):
                if row.last_offset >= view.scanned_from:
                    break
                if row.first_offset < end:
                    found.append(row)
                # The last stable offset ascends: no later row begins before `end`.
                if row.last_stable_offset >= end:
                    return found
        found += overlapping(view.aborted, first, end)
        return found

    # --- following --------------------------------------------------------------------------

    def refresh(self, checkpointed_start: int | None = None) -> bool:
        """Follow the changes by a running Kafka; returns whether the view changed.

        Costs two stat calls while nothing has changed. `checkpointed_start` is the log start in the
        log folder's checkpoint, if it was read again.

        Raises:
            KafkaLogError: the folder cannot be read; the view stays as it was.
        """
        with self._refreshing:
            before = self.view
            stamp = self._stamp(before)
            start_moved = checkpointed_start not in (None, self._start)
            if stamp is not None and stamp == self._seen and not start_moved:
                return False
            if checkpointed_start is not None:
                self._start = checkpointed_start
            same_names = bool(stamp and self._seen and stamp[0] == self._seen[0])
            view = _repeated(lambda: self._followed(before, same_names=same_names))
            self._seen = stamp
            if view == before:
                return False
            self.view = view
            return True

    def _stamp(self, view: LogView) -> tuple[int, int] | None:
        """A value that changes with the files and the last segment's size; None: look again."""
        try:
            when = changed(self.path)
            size = size_of(view.segments[-1].path) if view.segments else 0
        except KafkaLogError:
            return None
        # A second change within the same clock tick of the file system would not be visible.
        return None if clock.time_ns() - when < _TICK_NS else (when, size)

    def _followed(self, before: LogView, *, same_names: bool) -> LogView:
        if not before.segments:
            return self._opened(None, False)
        known = before.segments[-1]
        if same_names:
            logs = [(known.base_offset, known.path)]
            segments = list(before.segments[:-1])
        else:
            logs = list_files(self.path).logs
            # The cleaner may have replaced any of the earlier segments.
            segments = _sealed([each for each in logs if each[0] <= known.base_offset])
        last = dict(logs).get(known.base_offset)
        if last is None or not self._continues(last, known.size):
            self._truncations += 1
            return self._opened(None, False)
        end = before.log_end
        for base, path in [each for each in logs if each[0] >= known.base_offset]:
            start = known.size if base == known.base_offset else 0
            tail, end = self._tail(path, base, start, max(end, base))
            if segments:
                segments[-1] = replace(segments[-1], next_offset=base)
            segments.append(tail)
        if len(segments) > 1 and len(self._transactions.aborted) > _ABORTED_IN_MEMORY:
            self._transactions.forget(segments[-1].base_offset)
        return self._viewed(tuple(segments), end)

    def _continues(self, path: Path, size: int) -> bool:
        """Whether a segment still has its former last batch, at its end or followed by others.

        Kafka may have truncated the log, and then written more than it had cut off.
        """
        if size_of(path) < size:
            return False
        if not size or self._last is None:
            return True
        with open_batches(path) as file:
            try:
                return file.header(self._last.position) == self._last.header
            except KafkaLogError:
                return False

    # --- opening ----------------------------------------------------------------------------

    def _opened(self, recovery_point: int | None, clean: bool) -> LogView:
        files = list_files(self.path)
        if not files.logs:
            self._transactions = OpenTransactions(self._start)
            return self._viewed((), self._start)
        first = files.logs[0][0]
        segments = _sealed([*files.logs, files.logs[-1]])
        segments, end, self._last = recover(segments, recovery_point, clean)
        snapshot = newest_snapshot(files.snapshots, end)
        if snapshot is None or snapshot[0] < first:
            self._transactions = OpenTransactions(first)
        else:
            self._transactions = OpenTransactions(*snapshot)
        for segment in segments:
            if segment.next_offset > self._transactions.offset:
                with open_batches(segment.path, segment.size) as file:
                    batches = segment.batches_from(file, self._transactions.offset)
                    self._transactions.advance(file, batches)
        return self._viewed(tuple(segments), end)

    def _tail(self, path: Path, base: int, start: int, end: int) -> tuple[KafkaSegment, int]:
        """Scan a segment that has grown, from `start` on; returns the segment and the log end."""
        valid = start
        with open_batches(path) as file:
            try:
                for placed in file.walk(start, verify=True):
                    self._transactions.advance(file, iter((placed,)))
                    valid, end = placed.end, placed.header.last_offset + 1
                    self._last = placed
            except KafkaLogError:
                pass  # not complete yet
        return KafkaSegment(path, base, end, valid), end

    def _viewed(self, segments: tuple[KafkaSegment, ...], end: int) -> LogView:
        first = segments[0].base_offset if segments else self._start
        start = max(self._start, first)
        end = max(end, start)
        epochs = tuple(
            each
            for each in read_leader_epochs(self.path / LEADER_EPOCHS)
            if each.start_offset < end or each.start_offset == start
        )
        state = self._transactions
        stable = max(start, state.last_stable(end))
        return LogView(
            segments, start, end, stable, epochs, tuple(state.aborted), state.since,
            dict(state.first_offsets), self._truncations,
        )  # fmt: skip


def _repeated(look: Callable[[], LogView]) -> LogView:
    """Repeat a look at the folder if Kafka removes a file meanwhile."""
    for _ in range(_LOOKS):
        try:
            return look()
        except KafkaLogError as e:
            if e.position is not None:
                raise
    return look()


def _sealed(logs: list[tuple[int, Path]]) -> list[KafkaSegment]:
    """All segments but the last, each ending at the next one."""
    return [
        KafkaSegment(path, base, after, size_of(path))
        for (base, path), (after, _) in pairwise(logs)
    ]


def _converted(path: Path, position: int, magic: int, data: memoryview) -> PlacedBatch:
    if magic == MAGIC:
        return PlacedBatch(data, end_offset(data), path, position)
    try:
        batch = memoryview(stored_batch(data, DECOMPRESSED_LIMIT))
    except BatchError as e:
        raise KafkaLogError(path, str(e), position) from e
    return PlacedBatch(batch, end_offset(batch), None, -1)
