"""Partitions of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from quafka_broker.partitions import time_search
from quafka_broker.partitions.leader_epochs import EpochEnd
from quafka_broker.partitions.outcome import Settle
from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.partitions.producer_state import Batch
from quafka_broker.partitions.producers import NO_PRODUCER, Producers
from quafka_broker.partitions.time_search import Stamp
from quafka_broker.places.places import Places
from quafka_broker.sources.source import FoundBatches, ProduceFacts, Reading, RecordsRefusedError
from quafka_broker.topics.topic import Topic
from quafka_broker.wal.commit_group import WriteTimes
from quafka_broker.wal.log import Log
from quafka_broker.wal.runs import Room, below
from quafka_mesh_ops.ops.records import AbortedByOffset
from quafka_proto.errors import ErrorCode
from quafka_proto.records import TRANSACTIONAL, BatchHeader, base_offset


class TransactionAdmission(Protocol):
    """Decides which batches of transactional producers may be written."""

    def concerns(self, header: BatchHeader) -> bool:
        """Whether `admit` must be called."""
        ...

    def admit(
        self, header: BatchHeader, partition: Partition, topic: str, request: ProduceFacts | None
    ) -> Callable[[Settle], Settle] | None:
        """None, or a wrapper of `settle` for a batch of a transaction.

        Raises:
            RecordsRefusedError: the batch must not be written.
        """
        ...


class WalSource:
    """The log, its producers, and its files for gateways on this host."""

    def __init__(
        self, wal: Log, producers: Producers, places: Places, transactions: TransactionAdmission
    ) -> None:
        self.log = wal
        self.producers = producers
        self.places = places
        self.transactions = transactions

    @property
    def leader_epoch(self) -> int:
        """The log's current epoch."""
        return self.log.epochs.current

    def unchangeable(self, topic: Topic) -> str:
        """Nothing prevents changes."""
        return ""

    def partition(self, topic: Topic, number: int) -> WalPartition:
        """A partition, empty if nothing was ever appended."""
        return WalPartition(self, self.log.partitions.get(topic.partition_id(number)), topic.name)

    def bounds(self, topic: Topic, number: int) -> tuple[int, int]:
        """Log start and high watermark."""
        return self.log.partitions.offsets(topic.partition_id(number))


class WalPartition:
    """A partition of the log: always ready; the log's commits wake its parked fetches."""

    __slots__ = ("_partition", "_topic", "_wal")

    deletes_records = True

    def __init__(self, wal: WalSource, partition: Partition, topic: str) -> None:
        self._wal = wal
        self._partition = partition
        self._topic = topic

    @property
    def id(self) -> PartitionId:
        """The partition's name."""
        return self._partition.id

    # --- bounds -----------------------------------------------------------------------------

    def unready(self, offset: int = -1) -> None:
        """Never."""

    def expect_growth(self) -> None:
        """Do nothing."""

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        return self._partition.log_start

    @property
    def high_watermark(self) -> int:
        """The offset after the last durable record."""
        return self._partition.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark."""
        return self._partition.last_stable_offset

    @property
    def size(self) -> int:
        """Bytes of the batches; up to 64 deleted ones may be included."""
        return self._partition.batches.size

    def end(self, committed: bool) -> int:
        """The end of reads."""
        return self.last_stable_offset if committed else self._partition.high_watermark

    async def records_from(self, offset: int) -> int:
        """The number of records from this offset on."""
        return max(0, self._partition.high_watermark - offset)

    # --- leader epochs ----------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The log's current epoch."""
        return self._wal.log.epochs.current

    def check_epoch(self, current: int) -> ErrorCode:
        """The answer to a client whose leader epoch is `current`."""
        return self._wal.log.epochs.check(current)

    def epoch_at(self, offset: int) -> int:
        """The epoch of a record. Raises OffsetGoneError."""
        return self._wal.log.epochs.epoch_at(self._partition, offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The end of an epoch."""
        return self._wal.log.epochs.end_of(self._partition, epoch)

    # --- reading ----------------------------------------------------------------------------

    def readable(self, offset: int, enough: int, most: int, committed: bool) -> tuple[int, int]:
        """Bytes and number of whole batches; see `Reader.readable`."""
        return self._wal.log.reader.readable(self._partition, offset, enough, most)

    async def read(self, offset: int, room: Room, reading: Reading) -> FoundBatches:
        """Read batches by value, or by place if the gateway may read the files."""
        partition = self._partition
        if partition.transactions is None or not reading.committed:
            return await self._read(offset, room, reading, partition.high_watermark)
        stable = partition.last_stable_offset
        found = await self._read(offset, room, reading, stable)
        end = min(stable, found.end) if found.count else offset
        return replace(found, aborted=self._aborted(offset, end))

    async def _read(self, offset: int, room: Room, reading: Reading, end: int) -> FoundBatches:
        """Batches below `end`, which is the base offset of a batch."""
        reader, partition = self._wal.log.reader, self._partition
        if reading.place is None:
            batches = await reader.read_within(partition, offset, room, reading.times)
            return FoundBatches([batch for batch in batches if base_offset(batch) < end])
        runs = await reader.locate(partition, offset, room, reading.times)
        runs = below(runs, end)
        places = reading.place(runs)
        if places is not None:
            return FoundBatches([], places, [row for run in runs for row in run.rows])
        return FoundBatches(list(await reader.read_runs(partition, offset, runs, reading.times)))

    def _aborted(self, start: int, end: int) -> list[AbortedByOffset]:
        return [
            AbortedByOffset(each.producer_id, each.first_offset, each.last_offset)
            for each in self._partition.aborted(start, end)
        ]

    async def first_from(self, timestamp: int) -> Stamp | None:
        """The first record with a timestamp at or above this one."""
        return await time_search.first_from(self._wal.log.reader, self._partition, timestamp)

    async def latest(self) -> Stamp | None:
        """The record with the highest timestamp."""
        return await time_search.latest(self._wal.log.reader, self._partition)

    async def timestamp_of(self, offset: int, *, exact: bool) -> int | None:
        """The timestamp of a record."""
        reader = self._wal.log.reader
        return await time_search.timestamp_of(reader, self._partition, offset, exact=exact)

    # --- writing ----------------------------------------------------------------------------

    def append(
        self,
        batch: tuple[BatchHeader, memoryview],
        writes: list[WriteTimes] | None,
        request: ProduceFacts | None = None,
    ) -> asyncio.Future[list[int]] | Batch:
        """Queue a batch for the log, unless its producer has sent it before."""
        wal, header = self._wal, batch[0]
        if header.producer_id == NO_PRODUCER:
            if header.attributes & TRANSACTIONAL:
                raise RecordsRefusedError(
                    ErrorCode.INVALID_TXN_STATE, "a transactional batch has no producer id"
                )
            return wal.log.queue.append(self._partition, [batch], writes=writes)
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise RecordsRefusedError(
                ErrorCode.INVALID_RECORD,
                "an idempotent producer's id, epoch or sequence is negative",
            )
        counted = None
        if wal.transactions.concerns(header):
            counted = wal.transactions.admit(header, self._partition, self._topic, request)
        repeated = wal.producers.duplicate_of(self._partition.id, header)
        if repeated is not None:
            return repeated
        settle = wal.producers.begin_append(self._partition.id, header)
        if counted is not None:
            settle = counted(settle)
        return wal.log.queue.append(self._partition, [batch], writes=writes, settle=settle)
