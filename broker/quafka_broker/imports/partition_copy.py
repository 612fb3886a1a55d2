"""Copies one partition of Kafka's folders to a partition of our log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import NamedTuple

from quafka_broker.imports.errors import ImportRefusedError
from quafka_broker.imports.pieces import Piece, PieceChunk, chunks, first_offset
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.producers import NO_PRODUCER, Producers
from quafka_broker.state import BrokerState
from quafka_broker.topics.topic import Topic
from quafka_proto.log_format import IndexRow
from quafka_proto.records import PATCHED_SIZE, BatchHeader, read_header

_READ_BYTES = 1 << 20
_APPENDS_AHEAD = 8

Copied = Callable[[int], None]
"""Called with numbers of bytes that were copied."""


class Counts(NamedTuple):
    """The copied records, and bytes of Kafka's files."""

    records: int
    bytes: int


class PartitionCopy:
    """A partition of Kafka and the partition of ours that becomes its copy.

    An interrupted copy continues at our high watermark: an append is in the log as a whole or not
    at all, so no record is copied twice.
    """

    def __init__(
        self,
        state: BrokerState,
        topic: Topic,
        number: int,
        log: PartitionLog,
        end: int,
        committed: Collection[int],
    ) -> None:
        """`end`: where to stop. `committed`: see `chunks`."""
        self._state = state
        self._topic = topic
        self._number = number
        self._source = log
        self._end = end
        self._committed = committed
        self.name = f"{topic.name}-{number}"

    @property
    def _target(self) -> Partition:
        return self._state.log.partitions.get(self._topic.partition_id(self._number))

    @property
    def size(self) -> int:
        """The approximate bytes of the segments that are not copied yet."""
        segments = self._source.view.segments_from(self._target.high_watermark)
        return sum(segment.size for segment in segments)

    async def begin(self) -> None:
        """Set the first offset of an empty partition; check that another one can continue.

        Raises:
            ImportRefusedError: our partition and Kafka's have different records.
            KafkaLogError, StorageError
        """
        at = self._target.high_watermark
        if not at or at < self._source.log_start:
            await self._begin_at(await asyncio.to_thread(first_offset, self._source))
            return
        if at > self._source.log_end:
            raise ImportRefusedError(
                f"{self.name} ends at offset {at} here, and at {self._source.log_end} in Kafka"
            )
        if self._target.log_start < at and not await self._is_copied(at - 1):
            raise ImportRefusedError(f"{self.name} has other records here than in Kafka")

    async def copy(self, copied: Copied) -> Counts:
        """Copy the missing records. Durable on return.

        Raises:
            ImportRefusedError: Kafka has rewritten a batch of which a part was copied.
            KafkaLogError, StorageError
        """
        records = size = 0
        wal = self._state.log
        ahead: deque[asyncio.Future[list[int]]] = deque()
        following = chunks(self._source, self._target.high_watermark, self._end, self._committed)
        chunk = await asyncio.to_thread(next, following, None)
        while chunk is not None:
            if chunk.pieces:
                await wal.queue.wait_for_room()
                ahead.append(self._append(chunk))
            if len(ahead) >= _APPENDS_AHEAD:
                await ahead.popleft()
            records += chunk.records
            size += chunk.source_bytes
            copied(chunk.source_bytes)
            chunk = await asyncio.to_thread(next, following, None)
        while ahead:
            await ahead.popleft()
        await self._begin_at(self._source.log_start)
        return Counts(records, size)

    async def compare(self, compared: Copied) -> None:
        """Read the whole partition here and in Kafka's folders, and compare them.

        Raises:
            ImportRefusedError: they differ.
            KafkaLogError, StorageError
        """
        start, at = self._target.log_start, await asyncio.to_thread(first_offset, self._source)
        ours = self._stored_records()
        following = chunks(self._source, at, self._end, self._committed)
        while (chunk := await asyncio.to_thread(next, following, None)) is not None:
            for header, batch in chunk.pieces:
                first, at = at, at + header.record_count
                if at <= start or not read_header(batch).record_count:
                    continue
                if await anext(ours, None) != (first, bytes(batch[PATCHED_SIZE:])):
                    raise ImportRefusedError(f"{self.name} differs from Kafka's at offset {first}")
            compared(chunk.source_bytes)
        if await anext(ours, None) is not None:
            raise ImportRefusedError(f"{self.name} has records that Kafka does not have")
        expected = max(self._source.log_start, 0), max(self._end, self._source.log_start)
        found = self._target.log_start, self._target.high_watermark
        if found != expected:
            raise ImportRefusedError(f"{self.name} has the offsets {found}, not {expected}")

    # --- pieces -----------------------------------------------------------------------------

    def _append(self, chunk: PieceChunk) -> asyncio.Future[list[int]]:
        target = self._target
        remember = partial(_remember, self._state.producers, target, chunk.pieces)
        return self._state.log.queue.append(target, chunk.pieces, settle=remember)

    async def _begin_at(self, offset: int) -> None:
        if offset > self._target.log_start:
            await self._state.topics.delete_records({self._topic: {self._number: offset}})

    async def _is_copied(self, offset: int) -> bool:
        """Whether the batch at an offset here is the one that Kafka has or had."""
        ours = read_header((await self._stored(offset, 0))[0])
        if not ours.record_count or ours.base_offset < self._source.log_start:
            return True
        found = await asyncio.to_thread(self._source.read, offset, 0)
        header = read_header(found[0].data) if found else None
        if header is None or header.base_offset > offset:  # compaction has removed it
            return "compact" in self._topic.configs.get("cleanup.policy", "")
        return _facts(ours) == _facts(header)

    async def _stored_records(self) -> AsyncIterator[tuple[int, bytes]]:
        """The offset and the verified bytes of each of our batches with records."""
        at = self._target.log_start
        while at < self._target.high_watermark:
            for batch in await self._stored(at, _READ_BYTES):
                header = read_header(batch)
                at = header.last_offset + 1
                if header.record_count:
                    yield header.base_offset, bytes(batch[PATCHED_SIZE:])

    async def _stored(self, offset: int, size: int) -> list[memoryview]:
        """Our batches from this offset on."""
        target = self._target
        first = max(offset, target.log_start)
        return await self._state.log.reader.read(target, first, size, at_least_one=True)


def _facts(header: BatchHeader) -> BatchHeader:
    """The parts of a batch that an import never changes."""
    return header._replace(length=0, leader_epoch=0, crc=0, attributes=0)


def _remember(
    producers: Producers, target: Partition, pieces: list[Piece], outcome: Outcome
) -> None:
    """Remember the producers of appended batches, like a start that reads them."""
    if not isinstance(outcome, list):
        return
    id_ = target.id
    for (header, _), offset in zip(pieces, outcome, strict=True):
        if header.producer_id != NO_PRODUCER:
            row = IndexRow(
                0, offset, 0, id_.topic_hash, header.max_timestamp, header.producer_id,
                header.base_sequence, id_.org_id, id_.partition, id_.generation,
                header.record_count, header.length, header.producer_epoch,
            )  # fmt: skip
            producers.restore_row(row)
