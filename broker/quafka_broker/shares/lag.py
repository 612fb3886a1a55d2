"""The lag of share groups."""

from __future__ import annotations

from quafka_broker.shares.table import SharePartition
from quafka_broker.sources.source import PartitionSource


def start_of(share: SharePartition, source: PartitionSource) -> int:
    """The first offset that the group has not finished."""
    return max(share.window.start, source.log_start)


def lag_of(share: SharePartition, source: PartitionSource) -> int:
    """The lag as in Kafka (KIP-1226): without the finished records above the start.

    -1 while the source does not know its bounds.
    """
    if source.high_watermark < 0:
        return -1
    start = start_of(share, source)
    done = sum(here.end - max(here.first, start) for here in share.window.done_from(start))
    return max(0, source.high_watermark - start - done)
