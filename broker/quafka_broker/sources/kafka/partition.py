"""One partition in a folder of Kafka, for ops.

Records are returned as Kafka stored them: batches of format 2 byte for byte, older messages as
batches. Offsets have gaps where Kafka has compacted. The high watermark is the end of the last
whole batch in the folder.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from quafka_broker.kafka_logs.errors import KafkaLogError, OffsetOutOfRangeError
from quafka_broker.kafka_logs.log_view import LogView, PlacedBatch, TimeAndOffset
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_broker.partitions.errors import CorruptError, OffsetGoneError, StorageError
from quafka_broker.partitions.leader_epochs import UNDEFINED, EpochEnd
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producer_state import Batch
from quafka_broker.partitions.time_search import Stamp
from quafka_broker.sources.kafka.followed import Followed, NothingFrom
from quafka_broker.sources.kafka.follower import KafkaFollower
from quafka_broker.sources.source import (
    FoundBatches,
    ProduceFacts,
    Reading,
    RecordsRefusedError,
    Unready,
)
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.runs import Room
from quafka_loop import clock
from quafka_mesh_ops.ops.records import AbortedByOffset
from quafka_proto.errors import ErrorCode
from quafka_proto.record_codec import iter_records
from quafka_proto.records import BatchHeader, read_header

_PIECE = 256 << 10
_PAUSE_SECONDS = 50e-6

T = TypeVar("T")


class KafkaPartition:
    """One partition; `Followed` has its state."""

    __slots__ = ("_each", "_follower")

    deletes_records = False

    def __init__(self, follower: KafkaFollower, each: Followed) -> None:
        self._follower = follower
        self._each = each

    @property
    def id(self) -> PartitionId:
        """The partition's name."""
        return self._each.id

    # --- bounds -----------------------------------------------------------------------------

    def unready(self, offset: int = -1) -> Unready | None:
        """A future until the folder has been looked at; KAFKA_STORAGE_ERROR if that failed."""
        return self._follower.unready(self._each, offset)

    def expect_growth(self) -> None:
        """Look at the folder regularly."""
        self._follower.watch(self._each)

    @property
    def log_start(self) -> int:
        """The first offset that can be read; -1 if unknown."""
        view = self._each.view
        return -1 if view is None else view.log_start

    @property
    def high_watermark(self) -> int:
        """The offset after the last whole batch; -1 if unknown."""
        view = self._each.view
        return -1 if view is None else view.log_end

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark; -1 if unknown."""
        view = self._each.view
        return -1 if view is None else view.last_stable_offset

    @property
    def size(self) -> int:
        """Bytes of the segments."""
        view = self._each.view
        return 0 if view is None else view.size

    def end(self, committed: bool) -> int:
        """The end of reads, below the high watermark if compaction has removed the last records."""
        end = self.last_stable_offset if committed else self.high_watermark
        nothing = self._each.nothing_from
        if nothing is not None and nothing.view is self._each.view:
            return min(end, nothing.offset) if committed or not nothing.committed else end
        return end

    async def records_from(self, offset: int) -> int:
        """The number of offsets from this one on; compaction may have removed some records."""
        return max(0, self.high_watermark - offset)

    # --- leader epochs ----------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The last epoch in the folder; -1 if Kafka had no epochs yet (before 0.11)."""
        epochs = self._view.epochs if self._each.view is not None else ()
        return epochs[-1].epoch if epochs else -1

    def check_epoch(self, current: int) -> ErrorCode:
        """UNKNOWN_LEADER_EPOCH for an epoch newer than those in the folder.

        Metadata has no epochs for these topics, so clients use the epochs of records, and an older
        epoch does not mean an old leader.
        """
        known = self.leader_epoch
        newer = 0 <= known < current
        return ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.NONE

    def epoch_at(self, offset: int) -> int:
        """The epoch of a record; -1 if unknown."""
        epochs = self._view.epochs
        at = bisect_right(epochs, offset, key=lambda each: each.start_offset) - 1
        return epochs[at].epoch if at >= 0 else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The end of an epoch by `leader-epoch-checkpoint`, as in Kafka."""
        view = self._view
        if not view.epochs or not 0 <= epoch <= view.epochs[-1].epoch:
            return UNDEFINED
        at = bisect_right(view.epochs, epoch, key=lambda each: each.epoch)
        if at == len(view.epochs):
            return EpochEnd(epoch, view.log_end)
        known = view.epochs[at - 1].epoch if at else epoch
        return EpochEnd(known, view.epochs[at].start_offset)

    # --- reading ----------------------------------------------------------------------------

    def readable(self, offset: int, enough: int, most: int, committed: bool) -> tuple[int, int]:
        """An estimate: the bytes of segments, in proportion to their offsets."""
        view, end = self._view, self.end(committed)
        found = 0.0
        for segment in view.segments_from(offset):
            first, last = max(offset, segment.base_offset), min(end, segment.next_offset)
            span = segment.next_offset - segment.base_offset
            if last > first:
                found += segment.size * (last - first) / span
            if found >= enough:
                return enough, 1
        return max(1, int(found)), 1

    async def read(self, offset: int, room: Room, reading: Reading) -> FoundBatches:
        """Read whole batches; a segment that Kafka has just removed is looked for once more."""
        times = reading.times
        if times is not None:
            times.began = times.indexed = clock.time_ns()
            times.from_disk = True
        end = self.end(reading.committed)
        view = self._view
        found = await self._retried(partial(_read, offset, room, end, reading.committed))
        if not found.records and room.at_least_one and view is self._each.view:
            self._each.nothing_from = NothingFrom(view, offset, reading.committed)
        if times is not None:
            times.read = clock.time_ns()
        return found

    async def first_from(self, timestamp: int) -> Stamp | None:
        """The first record with a timestamp at or above this one."""
        return _stamp(await self._retried(lambda log: log.offset_at(timestamp)))

    async def latest(self) -> Stamp | None:
        """The record with the highest timestamp."""
        return _stamp(await self._retried(PartitionLog.newest))

    async def timestamp_of(self, offset: int, *, exact: bool) -> int | None:
        """The timestamp of the first record from this offset on, or of its batch."""
        return await self._retried(partial(_timestamp, offset, exact))

    @property
    def _log(self) -> PartitionLog:
        assert self._each.log is not None, "used before it was ready"
        return self._each.log

    @property
    def _view(self) -> LogView:
        assert self._each.view is not None, "used before it was ready"
        return self._each.view

    async def _retried(self, job: Callable[[PartitionLog], T]) -> T:
        """Run a reading job in a thread; after a look, repeat it if the folder has changed.

        Raises:
            CorruptError: a batch is damaged.
            StorageError: the files cannot be read.
            OffsetGoneError: the offset is now out of range.
        """
        loop = asyncio.get_running_loop()
        try:
            try:
                return await loop.run_in_executor(self._follower.threads, job, self._log)
            except KafkaLogError:
                await self._follower.look_again(self._each)
                return await loop.run_in_executor(self._follower.threads, job, self._log)
        except OffsetOutOfRangeError as e:
            raise OffsetGoneError(str(e)) from e
        except KafkaLogError as e:
            raise (StorageError if e.position is None else CorruptError)(str(e)) from e

    # --- writing ----------------------------------------------------------------------------

    def append(
        self,
        batch: tuple[BatchHeader, memoryview],
        writes: list[WriteTimes] | None,
        request: ProduceFacts | None = None,
    ) -> asyncio.Future[list[int]] | Batch:
        """Refuse the batch: only Kafka may write to its folders."""
        message = f"topic {self._each.topic!r} is read only: it is served from Kafka's log folder"
        raise RecordsRefusedError(ErrorCode.POLICY_VIOLATION, message)


def _read(offset: int, room: Room, end: int, committed: bool, log: PartitionLog) -> FoundBatches:
    batches = _batches(offset, room, end, log)
    aborted: list[AbortedByOffset] = []
    if committed and batches:
        aborted = [
            AbortedByOffset(each.producer_id, each.first_offset, each.last_offset)
            for each in log.aborted(offset, batches[-1].next_offset)
        ]
    return FoundBatches([batch.data for batch in batches], aborted=aborted)


def _batches(offset: int, room: Room, end: int, log: PartitionLog) -> list[PlacedBatch]:
    """Read batches within the room, in pieces, so that the event loop runs in between."""
    found: list[PlacedBatch] = []
    size, at = 0, offset
    while len(found) < room.batches and (size < room.bytes or not found):
        try:
            piece = log.read(at, min(room.bytes - size, _PIECE), end)[: room.batches - len(found)]
        except (KafkaLogError, OffsetOutOfRangeError):
            if not found:
                raise
            break
        more = sum(len(batch.data) for batch in piece)
        # A piece has at least one batch, however large.
        if not piece or (size + more > room.bytes and (found or not room.at_least_one)):
            break
        found += piece
        size += more
        at = piece[-1].next_offset
        clock.sleep(_PAUSE_SECONDS)
    return found


def _timestamp(offset: int, exact: bool, log: PartitionLog) -> int | None:
    batches: list[PlacedBatch] = log.read(offset, 0)
    if not batches:
        return None
    if not exact:
        return read_header(batches[0].data).max_timestamp
    records = iter_records(batches[0].data)
    return next((record.timestamp for record in records if record.offset >= offset), None)


def _stamp(found: TimeAndOffset | None) -> Stamp | None:
    return None if found is None else Stamp(found.offset, found.timestamp)
