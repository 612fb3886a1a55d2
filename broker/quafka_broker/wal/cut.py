"""A cut: the log at one instant, for snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.partitions.transactions import PartitionTransactions
from quafka_broker.wal.contents import Contents
from quafka_broker.wal.segment import Segment


class SegmentCut(NamedTuple):
    """A segment up to position `end`, with `rows` index rows. A sealed segment never grows."""

    number: int
    salt: int
    kind: int
    end: int
    rows: int
    sealed: bool


class LogCut(NamedTuple):
    """A durable prefix of the log.

    Attributes:
        end_id: the global ids of all records in the cut are below it.
        partitions: each with its log start and high watermark.
        lost: ranges of offsets lost to damage.
        transactions: copies, for partitions with open or aborted ones.
        gone: the number of offsets in gaps, for partitions that have any.
    """

    end_id: int
    segments: list[SegmentCut]
    partitions: list[tuple[PartitionId, int, int]]
    lost: dict[PartitionId, list[tuple[int, int]]]
    transactions: dict[PartitionId, PartitionTransactions]
    gone: dict[PartitionId, int]


def cut_segments(segments: Sequence[Segment]) -> list[SegmentCut]:
    """The segments that have entries."""
    last = segments[-1].number
    return [
        SegmentCut(s.number, s.salt, s.kind, s.end, s.entries, s.number != last)
        for s in segments
        if s.entries
    ]


def cut_contents(contents: Contents) -> LogCut:
    """The log as readers see it now. An append is visible as a whole or not at all."""
    segments = cut_segments(contents.segments)
    partitions = [(p.id, p.log_start, p.high_watermark) for p in contents.partitions.values()]
    transactions = {
        p.id: p.transactions.copy() for p in contents.partitions.values() if p.transactions
    }
    lost = contents.quarantine.lost()
    gone = {p.id: p.gaps.offsets for p in contents.partitions.values() if p.gaps}
    return LogCut(contents.next_id, segments, partitions, lost, transactions, gone)
