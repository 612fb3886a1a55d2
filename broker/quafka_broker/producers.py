"""Idempotent producers: a batch sent twice is stored once (KIP-98, KIP-360).

Per partition and producer id the last five batches are remembered, those still on their way to
the log included. The state is a function of the log's index rows, so it survives restarts.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from quafka_broker.virtual_topics import VirtualTopicId
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from quafka_proto.records import BatchHeader

_REMEMBERED = 5  # the most that a producer may have in flight (Kafka's limit)
_SEQUENCES = 1 << 31
NO_PRODUCER = -1


@dataclass(slots=True, eq=False)
class Batch:
    """A remembered batch: its sequence numbers and, once it is in the log, its first offset."""

    first: int
    last: int
    offset: int | None = None
    pending: asyncio.Future[list[int]] | None = None


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[Batch] = field(default_factory=lambda: deque[Batch](maxlen=_REMEMBERED))


class SequenceError(Exception):
    """The batch must not be stored; `code` is what Kafka answers."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Producers:
    """All producers of all partitions."""

    def __init__(self, limit: int = 100_000) -> None:
        """Beyond `limit` the producers that have been silent for longest are forgotten."""
        self._producers: dict[tuple[VirtualTopicId, int], _Producer] = {}
        self._limit = limit
        self._forgetful = False

    def duplicate_of(self, topic: VirtualTopicId, header: BatchHeader) -> Batch | None:
        """The remembered batch that this one repeats; None for one that comes next.

        Raises:
            SequenceError: OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_PRODUCER_EPOCH for a
                producer that has been replaced.
        """
        key = (topic, header.producer_id)
        producer = self._producers.get(key)
        if producer is not None:
            # A failed batch's callback may not have run yet, and what it refused must not count.
            for batch in list(producer.batches):
                if batch.pending is not None and batch.pending.done():
                    self._settle(key, batch, batch.pending)
            producer = self._producers.get(key)
        if producer is None:
            self._check_first(topic, header)
            return None
        if header.producer_epoch < producer.epoch:
            raise SequenceError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {header.producer_epoch} has been replaced by {producer.epoch}",
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence:
                raise SequenceError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"a new epoch begins with sequence {header.base_sequence}",
                )
            return None
        return self._next_or_repeated(producer, header)

    def _check_first(self, topic: VirtualTopicId, header: BatchHeader) -> None:
        """A producer begins with 0, or an append that failed would let the next one overtake it.

        Only where what was known has been forgotten may any sequence follow, as in Kafka.
        """
        forgotten = self._forgetful or topic.generation > 0
        if header.base_sequence and not forgotten:
            raise SequenceError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"a producer's first batch has sequence {header.base_sequence}",
            )

    def _next_or_repeated(self, producer: _Producer, header: BatchHeader) -> Batch | None:
        last = _last_sequence(header.base_sequence, header.record_count)
        for batch in producer.batches:
            if (batch.first, batch.last) == (header.base_sequence, last):
                return batch
        if producer.batches:
            expected = (producer.batches[-1].last + 1) % _SEQUENCES
            if header.base_sequence != expected:
                raise SequenceError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"sequence {header.base_sequence} came where {expected} is next",
                )
        return None

    def begin(
        self, topic: VirtualTopicId, header: BatchHeader, pending: asyncio.Future[list[int]]
    ) -> None:
        """A batch is on its way to the log; `pending` tells where it went, or that it did not."""
        last = _last_sequence(header.base_sequence, header.record_count)
        batch = Batch(header.base_sequence, last, pending=pending)
        self._remember(topic, header.producer_id, header.producer_epoch, batch)
        key = (topic, header.producer_id)
        # Not left to whoever waits for the answer: that caller may be gone by then.
        pending.add_done_callback(lambda done: self._settle(key, batch, done))

    def _settle(
        self, key: tuple[VirtualTopicId, int], batch: Batch, done: asyncio.Future[list[int]]
    ) -> None:
        if not done.cancelled() and done.exception() is None:
            batch.offset, batch.pending = done.result()[0], None
            return
        # It did not get into the log; nor did those behind it, which the log refuses with it.
        producer = self._producers.get(key)
        if producer is None or batch not in producer.batches:
            return
        while producer.batches and producer.batches.pop() is not batch:
            pass
        if not producer.batches:
            del self._producers[key]

    def restore(self, row: IndexRow) -> None:
        """Remember what the log holds."""
        if row.producer_id == NO_PRODUCER:
            return
        topic = VirtualTopicId(row.org_id, row.topic_hash, row.partition, row.generation)
        last = _last_sequence(row.base_sequence, row.record_count)
        batch = Batch(row.base_sequence, last, offset=row.base_offset)
        self._remember(topic, row.producer_id, row.producer_epoch, batch)

    def _remember(self, topic: VirtualTopicId, producer_id: int, epoch: int, batch: Batch) -> None:
        key = (topic, producer_id)
        producer = self._producers.pop(key, None)
        if producer is None or producer.epoch != epoch:
            producer = _Producer(epoch)
        producer.batches.append(batch)
        self._producers[key] = producer  # the dict is in order of last use
        if len(self._producers) > self._limit:
            del self._producers[next(iter(self._producers))]
            self._forgetful = True

    def forget(self, topics: Collection[VirtualTopicId]) -> None:
        """Partitions have been deleted."""
        for key in [key for key in self._producers if key[0] in topics]:
            del self._producers[key]

    def keep(self, live: Collection[VirtualTopicId]) -> None:
        """Forget the producers of every partition but these."""
        for key in [key for key in self._producers if key[0] not in live]:
            del self._producers[key]


def _last_sequence(first: int, count: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (first + count - 1) % _SEQUENCES
