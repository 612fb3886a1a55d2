"""Writes record batches to one stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.partitions.producer_state import Failed, SequenceError
from quafka_broker.partitions.producers import NO_PRODUCER
from quafka_broker.sources.redis.batches import Encoder
from quafka_broker.sources.redis.entry_ids import EntryId
from quafka_broker.sources.redis.fields import Format
from quafka_broker.sources.redis.requests import Appended, ProducedBatch, RedisProducer
from quafka_broker.sources.redis.server import RedisServer
from quafka_broker.sources.source import RecordsRefusedError
from quafka_loop import clock
from quafka_proto.errors import ErrorCode
from quafka_proto.records import CONTROL, TRANSACTIONAL, BatchHeader

_FAILED_PRODUCERS = 1_000


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """A topic's configs for its streams.

    Attributes:
        cluster: distinguishes our producer ids from those of other clusters in the same stream.
        append_time: records carry the times of their entries.
    """

    encoder: Encoder
    cluster: bytes
    append_time: bool
    producer_expiry_ms: int
    replicas: int


class StreamWriter:
    """Appends to one stream; keeps the order of an idempotent producer's batches."""

    def __init__(
        self,
        stream: bytes,
        server: RedisServer,
        config: StreamConfig,
        written: Callable[[int], None],
    ) -> None:
        """`written` is called with the end of each added batch."""
        self._stream = stream
        self._server = server
        self._config = config
        self._written = written
        self._failed: dict[int, Failed] = {}

    def append(self, batch: tuple[BatchHeader, memoryview]) -> asyncio.Future[list[int]]:
        """Queue a batch for the stream; returns a future of its offset.

        The future raises StorageError, or SequenceError or RecordsRefusedError if Redis detects
        them.
        """
        header, records = batch
        self._check(header)
        produced_by = RedisProducer()
        if header.producer_id != NO_PRODUCER:
            self._check_order(header)
            last = (header.base_sequence + header.record_count - 1) % (1 << 31)
            name = b"%b:%d" % (self._config.cluster, header.producer_id)
            produced_by = RedisProducer(name, header.producer_epoch, header.base_sequence, last)
        config = self._config
        produced = ProducedBatch(
            self._stream, bytes(records), config.encoder.offsets.per_ms, produced_by,
            config.producer_expiry_ms, config.append_time, config.replicas,
        )  # fmt: skip
        try:
            pending = self._server.append(produced)
        except StorageError as e:
            self._remember_failure(header)
            raise RecordsRefusedError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        result: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        pending.add_done_callback(lambda done: self._settle(header, done, result))
        return result

    def _check(self, header: BatchHeader) -> None:
        if self._config.encoder.format is not Format.AUTO:
            raise RecordsRefusedError(
                ErrorCode.POLICY_VIOLATION,
                f"the topic is read only: its source has format={self._config.encoder.format}",
            )
        if header.attributes & (TRANSACTIONAL | CONTROL):
            raise RecordsRefusedError(
                ErrorCode.INVALID_TXN_STATE, "a topic from Redis takes no transactions"
            )
        if header.producer_id == NO_PRODUCER:
            return
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise RecordsRefusedError(
                ErrorCode.INVALID_RECORD,
                "an idempotent producer's id, epoch or sequence is negative",
            )

    def _check_order(self, header: BatchHeader) -> None:
        """Refuse a batch that would overtake a failed one of its producer.

        With a retriable error, as long as that one may be sent again: see `Producers`.
        """
        failed = self._failed.get(header.producer_id)
        if failed is None:
            return
        if header.producer_epoch == failed.epoch and header.base_sequence > failed.sequence:
            awaited = failed.is_awaited(_now_ms())
            raise SequenceError(
                ErrorCode.KAFKA_STORAGE_ERROR
                if awaited
                else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} came where {failed.sequence}, which failed, is "
                "next",
            )
        del self._failed[header.producer_id]

    def _remember_failure(self, header: BatchHeader) -> None:
        if header.producer_id == NO_PRODUCER:
            return
        epoch, sequence = header.producer_epoch, header.base_sequence
        failed = self._failed.get(header.producer_id)
        if failed is not None and failed.epoch == epoch:
            sequence = min(failed.sequence, sequence)
        self._failed[header.producer_id] = Failed(epoch, sequence, _now_ms())
        if len(self._failed) > _FAILED_PRODUCERS:
            del self._failed[next(iter(self._failed))]

    def _settle(
        self,
        header: BatchHeader,
        done: asyncio.Future[Appended],
        result: asyncio.Future[list[int]],
    ) -> None:
        """Convert the outcome of an append to the batch's offset or an error."""
        error = done.exception()
        if error is None:
            outcome = done.result()
            if outcome.outcome in ("added", "repeated"):
                self._added(header, outcome, result)
                return
            error = _refusal(header, outcome)
        elif isinstance(error, StorageError):
            self._remember_failure(header)
        if not result.done():
            result.set_exception(error)
            result.exception()  # retrieved: the producer may be gone

    def _added(
        self, header: BatchHeader, outcome: Appended, result: asyncio.Future[list[int]]
    ) -> None:
        try:
            entry = EntryId.parse(outcome.detail.encode())
            base = self._config.encoder.offsets.offset_of(entry)
        except ValueError as e:  # the source has other `bits` than the batch's first writer
            if not result.done():
                result.set_exception(InDoubtError(str(e)))
                result.exception()
            return
        self._written(base + header.record_count)
        if not result.done():
            result.set_result([base])


def _now_ms() -> int:
    return int(clock.monotonic() * 1000)


def _refusal(header: BatchHeader, outcome: Appended) -> SequenceError:
    sequence = header.base_sequence
    if outcome.outcome == "epoch":
        return SequenceError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {header.producer_epoch} has been replaced by {outcome.detail}",
        )
    if outcome.outcome == "unknown":
        return SequenceError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"the batches before sequence {sequence} are not known in Redis",
        )
    return SequenceError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {sequence} came where {outcome.detail} is next",
    )
