"""The interface between ops and records: one partition, wherever its records are stored.

Ops, sessions, caches, parked fetches, lag and groups use a partition only through
`PartitionSource`. `sources/wal.py` implements it for the log. Other sources read records of other
systems: their bounds may be known only after a request that is slow or fails, their offsets may
have gaps, and they may be read only. Synchronous methods of a source never block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quafka_broker.partitions.leader_epochs import EpochEnd
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.producer_state import Batch
from quafka_broker.partitions.time_search import Stamp
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.reader import ReadTimes
from quafka_broker.wal.runs import EntryRun, Room
from quafka_loop.slices import Slices
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.places import ObjectPlace
from quafka_mesh_ops.ops.records import AbortedByOffset
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from quafka_proto.records import BatchHeader, base_offset, end_offset

ASK_SECONDS = 5.0
"""The longest wait of one op for the bounds of its partitions."""
_PARTITIONS_PER_SLICE = 200


@dataclass(slots=True)
class RecordsRefusedError(Exception):
    """The records for this partition are refused."""

    code: ErrorCode
    message: str = ""


class ProduceFacts(NamedTuple):
    """The facts of a produce request that concern transactions; see the mesh op."""

    org: int
    transactional_id: str
    implicit: bool
    connection: bytes
    home: str = ""


class Reading(NamedTuple):
    """The parameters of a read.

    Attributes:
        committed: whether to read only decided records: those below the last stable offset, with
            their aborted transactions.
        times: receives the times of the steps.
        place: returns the places of runs for a gateway that takes places instead of bytes; None if
            the runs must be sent by value.
    """

    committed: bool = False
    times: ReadTimes | None = None
    place: Callable[[Sequence[EntryRun]], list[ObjectPlace] | None] | None = None


@dataclass(frozen=True, slots=True)
class FoundBatches:
    """The batches found by a read: their bytes, or their places and rows.

    `aborted`: the aborted transactions with records in them, for a read of committed records.
    """

    records: list[Buffer]
    places: list[ObjectPlace] | None = None
    rows: Sequence[IndexRow] = ()
    aborted: Sequence[AbortedByOffset] = ()

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(map(len, self.records)) + sum(row.length for row in self.rows)

    @property
    def count(self) -> int:
        """The number of batches."""
        return len(self.records) + len(self.rows)

    @property
    def end(self) -> int:
        """The offset after the last batch. There must be one."""
        if self.rows:
            return self.rows[-1].base_offset + self.rows[-1].record_count
        return end_offset(self.records[-1])

    def offsets(self, most: int) -> list[int]:
        """The base offsets of the first batches."""
        if self.rows:
            return [row.base_offset for row in self.rows[:most]]
        return [base_offset(batch) for batch in self.records[:most]]


Unready = ErrorCode | asyncio.Future[None]
"""Why a partition cannot be read now: an error, or a request that is not yet answered."""


class PartitionSource(Protocol):
    """One partition. All methods are for the event loop.

    The bounds are the last known ones; -1 if unknown. Reads and searches are allowed only after
    `unready` has returned None, in the same turn of the loop.
    """

    deletes_records: bool
    """Whether clients may delete records, by `TopicChanges`."""

    @property
    def id(self) -> PartitionId:
        """The name of the partition for parked fetches and caches."""
        ...

    # --- bounds -----------------------------------------------------------------------------

    def unready(self, offset: int = -1) -> Unready | None:
        """None if the bounds are known and records from `offset` on can be read without delay.

        Otherwise an error that clients retry, while the source is known to be unavailable; or the
        future of a request that has been sent. The future never raises. It ends when the request is
        answered or has failed, and the source then wakes the partition's parked fetches.
        """
        ...

    def expect_growth(self) -> None:
        """Wake the parked fetch (`Waiters.wake`) when the partition grows, moves or fails.

        This lasts while `Waiters.waits_for` is true for the partition.
        """
        ...

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset after the last durable record."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an undecided transaction, or the high watermark."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the batches as stored; 0 if unknown."""
        ...

    def end(self, committed: bool) -> int:
        """The end of reads: the last stable offset or the high watermark.

        Lower if the source knows that no record is left in between: a fetch there must park.
        """
        ...

    async def records_from(self, offset: int) -> int | None:
        """The number of records from this offset on; None if the source does not know.

        Raises:
            StorageError: the source is unavailable.
        """
        ...

    # --- leader epochs ----------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch."""
        ...

    def check_epoch(self, current: int) -> ErrorCode:
        """The answer to a client whose leader epoch is `current`; -1: the client sends none."""
        ...

    def epoch_at(self, offset: int) -> int:
        """The epoch of a record; at the high watermark, that of the next record.

        Raises:
            OffsetGoneError: the offset is below the log start.
        """
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The highest epoch up to this one, and its end; see `LeaderEpochs.end_of`."""
        ...

    # --- reading ----------------------------------------------------------------------------

    def readable(self, offset: int, enough: int, most: int, committed: bool) -> tuple[int, int]:
        """Bytes and number of whole batches from `offset` on, up to `enough` bytes or `most`.

        An estimate if the values are not in memory: a fetch is answered when they are large enough.

        Raises:
            StorageError: reading would fail.
            OffsetGoneError: the log start is above `offset`.
        """
        ...

    async def read(self, offset: int, room: Room, reading: Reading) -> FoundBatches:
        """Read whole batches, from the one that contains `offset` or, in a gap, follows it.

        Raises:
            CorruptError: the first batch is lost to damage. A later lost batch ends the answer.
            StorageError: the records cannot be read; clients retry.
            OffsetGoneError: the log start is above `offset`.
        """
        ...

    async def first_from(self, timestamp: int) -> Stamp | None:
        """The first record with a timestamp at or above this one.

        Raises:
            StorageError, Malformed: the records cannot be read.
        """
        ...

    async def latest(self) -> Stamp | None:
        """The first record with the highest timestamp.

        Raises:
            StorageError, Malformed: the records cannot be read.
        """
        ...

    async def timestamp_of(self, offset: int, *, exact: bool) -> int | None:
        """The timestamp of the record at an offset, or of its batch; None if it is lost.

        Raises:
            StorageError, Malformed: the records cannot be read.
            OffsetGoneError: the log start is above the offset.
        """
        ...

    # --- writing ----------------------------------------------------------------------------

    def append(
        self,
        batch: tuple[BatchHeader, memoryview],
        writes: list[WriteTimes] | None,
        request: ProduceFacts | None = None,
    ) -> asyncio.Future[list[int]] | Batch:
        """Begin to store a checked batch; records are in the order of the calls.

        Returns a future of the batch's offset, or the equal batch that an idempotent producer has
        sent before. The future ends when the batch is durable, or raises StorageError, or one of
        the errors below if only the source's store can detect them; cancelling it does not withdraw
        the batch. `writes` receives the times of the write. `request` is set if the batch is in a
        request of a transactional producer.

        Raises:
            SequenceError: the batch is not the producer's next one.
            RecordsRefusedError: the partition does not take such a batch.
        """
        ...


class BadSourceError(ValueError):
    """A source that the broker cannot use; the message gives the reason without any secret."""


class TopicSource(Protocol):
    """One kind of source: the partitions of all of its topics."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of all partitions, for Metadata; -1: each has its own."""
        ...

    def unchangeable(self, topic: Topic) -> str:
        """Why clients may not delete or alter this topic; empty if they may."""
        ...

    def partition(self, topic: Topic, number: int) -> PartitionSource:
        """A partition of the topic."""
        ...

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """The last known log start and high watermark of a partition; both 0 if unknown."""
        ...


class Waiters(Protocol):
    """Parked fetches as seen by sources."""

    def wake(self, partitions: Iterable[PartitionId]) -> None:
        """Wake the fetches of partitions that have grown, have another log start, or have failed.

        Also when a request of `PartitionSource.unready` has been answered.
        """
        ...

    def waits_for(self, partition: PartitionId) -> bool:
        """Whether a fetch is parked for this partition."""
        ...


def error_of(unready: Unready | None) -> ErrorCode:
    """The answer to a client for a partition that cannot be read now; NONE if it can be."""
    if unready is None:
        return ErrorCode.NONE
    return ErrorCode.KAFKA_STORAGE_ERROR if isinstance(unready, asyncio.Future) else unready


async def ask_all(
    partitions: Iterable[PartitionSource | None], seconds: float = ASK_SECONDS
) -> None:
    """Request the bounds of all partitions at once, and wait until they are known or have failed.

    After `seconds`, unanswered requests are no longer awaited.
    """
    asked: set[asyncio.Future[None]] = set()
    slices = Slices(_PARTITIONS_PER_SLICE)
    for partition in partitions:
        unready = None if partition is None else partition.unready()
        if isinstance(unready, asyncio.Future):
            asked.add(unready)
        await slices.done()
    if asked:
        await asyncio.wait(asked, timeout=seconds)
