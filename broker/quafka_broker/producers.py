"""Idempotent producers: a batch sent twice is stored once (KIP-98, KIP-360).

Per partition and producer id the last five batches are remembered, those still on their way to
the log included. What is remembered is made from the log's index rows and kept in its checkpoint,
so it survives restarts, and retention, which removes the rows. Pure: no I/O; callers bring the
time.

| the producer | its batch | answer |
| --- | --- | --- |
| known | repeats one of the last five | the offset of the first copy, or that it is in doubt |
| known | is not the next | OUT_OF_ORDER_SEQUENCE_NUMBER |
| known | has an older epoch | INVALID_PRODUCER_EPOCH |
| known | has a newer epoch, and a sequence above 0 | OUT_OF_ORDER_SEQUENCE_NUMBER |
| never known | has a sequence above 0 | OUT_OF_ORDER_SEQUENCE_NUMBER: an earlier one is missing |
| perhaps known once | has a sequence above 0 | UNKNOWN_PRODUCER_ID: it begins a new epoch |
| any | is none of these | it is stored |

Kafka stores any sequence of a producer that it does not know; then, if the first batch fails, the
second overtakes it. Here that is so only for one that is known to have been forgotten, and for
topics that have been created again; and what fails must come again before what follows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from time import time_ns
from typing import NamedTuple

from quafka_broker.virtual_topics import VirtualTopicId
from quafka_broker.wal.errors import InDoubtError
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from quafka_proto.records import BatchHeader

_REMEMBERED = 5  # the most that a producer may have in flight (Kafka's limit)
_SEQUENCES = 1 << 31
NO_PRODUCER = -1
_NO_LIMIT = 1 << 63

Pending = asyncio.Future[list[int]]


@dataclass(slots=True, eq=False)
class Batch:
    """A remembered batch: its sequence numbers, its greatest timestamp and, once it is in the
    log, its first offset."""

    first: int
    last: int
    timestamp: int
    offset: int | None = None
    pending: Pending | None = None


@dataclass(slots=True)
class _Producer:
    epoch: int
    used_ms: int
    batches: list[Batch] = field(default_factory=list[Batch])
    before: _Producer | None = None
    """What was known of an older epoch; it counts again if nothing of this one is stored."""


class ProducerState(NamedTuple):
    """What is remembered of a producer in one partition, as it is kept in a checkpoint.

    `batches`: first and last sequence, greatest timestamp, and offset of each; oldest first.
    """

    producer_id: int
    epoch: int
    used_ms: int
    batches: tuple[tuple[int, int, int, int], ...]


class SequenceError(Exception):
    """The batch must not be stored; `code` is what Kafka answers."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def _now_ms() -> int:
    return time_ns() // 1_000_000


class Producers:
    """All producers of all partitions."""

    def __init__(self, limit: int = 100_000, now_ms: Callable[[], int] = _now_ms) -> None:
        """Beyond `limit` the producers that have been silent for longest are forgotten."""
        self._producers: dict[tuple[VirtualTopicId, int], _Producer] = {}  # by last use
        self._ids: dict[VirtualTopicId, set[int]] = {}
        # Those without a stored batch to go by, and the sequence that must come next; None: any
        # may, for it has been silent for so long that what came before is forgotten.
        self._lapsed: dict[tuple[VirtualTopicId, int], int | None] = {}
        self._limit = limit
        self._now_ms = now_ms
        self.forgotten_below = 0
        """Any producer with an id below may have been known once."""
        self.ours_below = _NO_LIMIT
        """So may any with an id from here on: another broker gave it, and nobody knows when."""

    def __len__(self) -> int:
        """How many are remembered; one that writes to two partitions counts twice."""
        return len(self._producers)

    # --- checks -----------------------------------------------------------------------------

    def duplicate_of(self, topic: VirtualTopicId, header: BatchHeader) -> Batch | None:
        """The remembered batch that this one repeats; None for one that comes next.

        Raises:
            SequenceError: it must not be stored; see above.
        """
        key = (topic, header.producer_id)
        self._settle_done(key)
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
        sequence = header.base_sequence
        if not sequence:
            return
        key = topic, header.producer_id
        if key in self._lapsed:
            expected = self._lapsed[key]
            if expected in (None, sequence):
                return
            raise SequenceError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} came where {expected}, which failed, is next",
            )
        if topic.generation:
            return  # it may have begun with the topic that had this name before
        if not self.forgotten_below <= header.producer_id < self.ours_below:
            raise SequenceError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"nothing is known any more of what came before sequence {sequence}",
            )
        raise SequenceError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"a producer's first batch has sequence {sequence}",
        )

    def _next_or_repeated(self, producer: _Producer, header: BatchHeader) -> Batch | None:
        last = _last_sequence(header.base_sequence, header.record_count)
        for batch in producer.batches:
            if (batch.first, batch.last) == (header.base_sequence, last):
                return batch
        expected = (producer.batches[-1].last + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise SequenceError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} came where {expected} is next",
            )
        return None

    # --- batches ----------------------------------------------------------------------------

    def begin(self, topic: VirtualTopicId, header: BatchHeader, pending: Pending) -> None:
        """A batch is on its way to the log; `pending` tells where it went, or that it did not."""
        last = _last_sequence(header.base_sequence, header.record_count)
        batch = Batch(header.base_sequence, last, header.max_timestamp, pending=pending)
        self._remember(topic, header.producer_id, header.producer_epoch, batch)
        key = topic, header.producer_id
        # Not left to whoever waits for the answer: that caller may be gone by then.
        pending.add_done_callback(lambda done: self._settle(key, batch, done))

    def restore(self, row: IndexRow) -> None:
        """Remember what the log holds."""
        if row.producer_id == NO_PRODUCER:
            return
        topic = VirtualTopicId(row.org_id, row.topic_hash, row.partition, row.generation)
        last = _last_sequence(row.base_sequence, row.record_count)
        batch = Batch(row.base_sequence, last, row.max_timestamp, row.base_offset)
        self._remember(topic, row.producer_id, row.producer_epoch, batch)

    def _settle_done(self, key: tuple[VirtualTopicId, int]) -> None:
        """Callbacks that have not run yet: what was refused must not count, the rest must."""
        producer = self._producers.get(key)
        for batch in list(producer.batches) if producer is not None else ():
            if batch.pending is not None and batch.pending.done():
                self._settle(key, batch, batch.pending)

    def _settle(
        self, key: tuple[VirtualTopicId, int], batch: Batch, done: asyncio.Future[list[int]]
    ) -> None:
        owner = self._producers.get(key)
        while owner is not None and batch not in owner.batches:
            owner = owner.before
        error = None if done.cancelled() else done.exception()
        if isinstance(error, InDoubtError):
            return  # it may be in the log: no other batch must take its place
        if error is None and not done.cancelled():
            batch.offset, batch.pending = done.result()[0], None
            if owner is not None:
                owner.before = None
            return
        # It did not get into the log; nor did those behind it, which the log refuses with it.
        if owner is None:
            return
        while owner.batches and owner.batches.pop() is not batch:
            pass
        known: _Producer | None = self._producers[key]
        while known is not None and not known.batches:
            known = known.before
        if known is None:
            self._drop(key)
            self._lapse(key, batch.first)
        else:
            self._producers[key] = known

    def _remember(self, topic: VirtualTopicId, producer_id: int, epoch: int, batch: Batch) -> None:
        key = (topic, producer_id)
        now = self._now_ms()
        producer = self._producers.pop(key, None)
        if producer is None or producer.epoch != epoch:
            producer = _Producer(epoch, now, before=producer if batch.pending else None)
        producer.used_ms = now
        producer.batches.append(batch)
        # Those on their way may yet be refused, or not be in a checkpoint: they push none out.
        stored = sum(known.pending is None for known in producer.batches)
        del producer.batches[: max(0, stored - _REMEMBERED)]
        self._put(key, producer)

    def _put(self, key: tuple[VirtualTopicId, int], producer: _Producer) -> None:
        self._lapsed.pop(key, None)
        self._producers[key] = producer
        self._ids.setdefault(key[0], set()).add(key[1])
        if len(self._producers) > self._limit:
            self._drop_oldest()

    # --- forgetting -------------------------------------------------------------------------

    def expire(self, used_before_ms: int) -> int:
        """Forget producers not used since then (Kafka's `producer.id.expiration.ms`); how many."""
        count = 0
        while self._producers:
            oldest = next(iter(self._producers.values()))
            if oldest.used_ms >= used_before_ms or oldest.batches[-1].pending is not None:
                break
            self._drop_oldest()
            count += 1
        return count

    def forget(self, topics: Iterable[VirtualTopicId]) -> None:
        """Partitions have been deleted."""
        for topic in topics:
            for producer_id in self._ids.pop(topic, ()):
                del self._producers[topic, producer_id]

    def keep(self, live: Collection[VirtualTopicId]) -> None:
        """Forget the producers of every partition but these. Called once all are loaded."""
        self.forget([topic for topic in self._ids if topic not in live])
        by_use = sorted(self._producers.items(), key=lambda item: item[1].used_ms)
        self._producers = dict(by_use)

    def _drop_oldest(self) -> None:
        key = next(iter(self._producers))
        self._drop(key)
        self._lapse(key, None)

    def _lapse(self, key: tuple[VirtualTopicId, int], expected: int | None) -> None:
        self._lapsed[key] = expected
        if len(self._lapsed) > self._limit:
            key = next(iter(self._lapsed))
            if key[1] < self.ours_below:
                self.forgotten_below = max(self.forgotten_below, key[1] + 1)
            del self._lapsed[key]

    def _drop(self, key: tuple[VirtualTopicId, int]) -> None:
        topic, producer_id = key
        del self._producers[key]
        ids = self._ids[topic]
        ids.discard(producer_id)
        if not ids:
            del self._ids[topic]

    # --- checkpoint -------------------------------------------------------------------------

    def dump(self, topic: VirtualTopicId) -> list[ProducerState]:
        """What is remembered of a partition's producers and is in the log, for a checkpoint."""
        states: list[ProducerState] = []
        for producer_id in list(self._ids.get(topic, ())):
            self._settle_done((topic, producer_id))
        for producer_id in self._ids.get(topic, ()):
            producer: _Producer | None = self._producers[topic, producer_id]
            while producer is not None:
                stored = tuple(
                    (batch.first, batch.last, batch.timestamp, batch.offset)
                    for batch in producer.batches
                    if batch.offset is not None
                )
                if stored:
                    state = ProducerState(producer_id, producer.epoch, producer.used_ms, stored)
                    states.append(state)
                    break
                producer = producer.before
        return states

    def load(self, topic: VirtualTopicId, states: Iterable[ProducerState]) -> None:
        """Remember what `dump` gave."""
        for producer_id, epoch, used_ms, batches in states:
            remembered = [Batch(*batch) for batch in batches]
            self._put((topic, producer_id), _Producer(epoch, used_ms, remembered))


def _last_sequence(first: int, count: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (first + count - 1) % _SEQUENCES
