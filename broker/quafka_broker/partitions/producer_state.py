"""The remembered state of idempotent producers: their batches, and the form in checkpoints."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_broker.partitions.errors import StorageError
from quafka_broker.partitions.outcome import Outcome
from quafka_broker.partitions.partition import PartitionId
from quafka_proto.errors import ErrorCode

ProducerKey = tuple[PartitionId, int]
"""A partition and a producer id."""
_SENT_AGAIN_MS = 10_000


@dataclass(slots=True, eq=False)
class Batch:
    """A remembered batch: its sequence numbers, highest timestamp and first offset.

    `offset` is None until the batch is in the log. `failure`: why that may never happen.
    """

    first: int
    last: int
    timestamp: int
    offset: int | None = None
    failure: StorageError | None = None
    _waiting: tuple[asyncio.Future[None], ...] = ()

    async def stored(self) -> int:
        """Wait until the batch is in the log; returns its offset.

        Raises:
            InDoubtError: it may or may not be in the log.
            StorageError: it is not in the log.
        """
        if self.offset is None and self.failure is None:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting = (*self._waiting, waiting)
            await waiting
        if self.offset is not None:
            return self.offset
        raise type(self.failure or StorageError())(str(self.failure))

    def settle(self, outcome: Outcome) -> None:
        """Set the offset or the failure; waiters continue in the next turn of the loop."""
        if isinstance(outcome, StorageError):
            self.failure = outcome
        else:
            self.offset = outcome[0]
        waiting, self._waiting = self._waiting, ()
        for each in waiting:
            if not each.done():
                each.set_result(None)


@dataclass(slots=True)
class Producer:
    """A producer in one partition, in one producer epoch, which a marker may have begun."""

    epoch: int
    used_ms: int
    batches: list[Batch] = field(default_factory=list[Batch])
    before: Producer | None = None
    """The state in the older epoch; valid again if no batch of this epoch is stored."""


class ProducerPartitionState(NamedTuple):
    """A producer's state in one partition, as a checkpoint keeps it.

    `batches`: first and last sequence, highest timestamp, and offset of each, oldest first.
    """

    producer_id: int
    epoch: int
    used_ms: int
    batches: tuple[tuple[int, int, int, int], ...]


class Failed(NamedTuple):
    """A batch whose write has failed: its epoch and first sequence, and when that was."""

    epoch: int
    sequence: int
    at_ms: int

    def is_awaited(self, now_ms: int) -> bool:
        """Whether the client may still send it again: clients wait for less than ten seconds."""
        return now_ms - self.at_ms <= _SENT_AGAIN_MS


@dataclass(slots=True)
class OrgProducers:
    """The producers of an org.

    Attributes:
        known: by last use.
        lapsed: producers without a stored batch to compare with, and the next sequence; None: any
            sequence, because the producer has expired.
        failed: the first failed batch of producers that have not sent it again.
        refused: producers that may have been evicted and were refused, with their epoch.
        evicted_below: the ids of all evicted producers are below this one.
    """

    known: dict[ProducerKey, Producer] = field(default_factory=dict[ProducerKey, Producer])
    lapsed: dict[ProducerKey, int | None] = field(default_factory=dict[ProducerKey, "int | None"])
    failed: dict[ProducerKey, Failed] = field(default_factory=dict[ProducerKey, Failed])
    refused: dict[ProducerKey, int] = field(default_factory=dict[ProducerKey, int])
    evicted_below: int = 0


class SequenceError(Exception):
    """The batch must not be stored; `code` is Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
