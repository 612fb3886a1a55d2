"""A reader's view of a partition: its bounds at one moment, and the returned batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.segments import KafkaSegment
from quafka_broker.kafka_logs.text_files import EpochStart
from quafka_proto.kafka_log_format import KafkaAbortedTransaction


class PlacedBatch(NamedTuple):
    """A verified record batch of format 2.

    Attributes:
        data: the batch.
        next_offset: the offset after its last one.
        path: the `.log` file that contains it, byte for byte; None: it was converted from messages
            of format 0 or 1.
        position: its position in that file.
    """

    data: memoryview
    next_offset: int
    path: Path | None
    position: int


class TimeAndOffset(NamedTuple):
    """A record with its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int
    """-1: the record is of format 0 or 1."""


@dataclass(frozen=True)
class LogView:
    """The partition at one moment.

    Attributes:
        segments: ascending by offset.
        log_start: the first offset that may be read.
        log_end: the offset after the last whole, valid batch.
        last_stable_offset: the first offset of an open transaction, or the log end.
        epochs: the starts of leader epochs; empty before Kafka 0.11.
        aborted: the aborted transactions since `scanned_from`, by marker.
        scanned_from: the offset from which batches were scanned for transactions.
        open_transactions: the first offset of each producer's open transaction.
        truncations: how often the log was found truncated, even if it has grown since.
    """

    segments: tuple[KafkaSegment, ...]
    log_start: int
    log_end: int
    last_stable_offset: int
    epochs: tuple[EpochStart, ...]
    aborted: tuple[KafkaAbortedTransaction, ...]
    scanned_from: int
    open_transactions: Mapping[int, int]
    truncations: int = 0

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def segments_from(self, offset: int) -> tuple[KafkaSegment, ...]:
        """The segments that may contain an offset, and later ones."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].next_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return self.segments[low:]
