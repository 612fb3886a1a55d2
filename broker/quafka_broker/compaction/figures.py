"""The compaction of whole topics, for metrics and the status page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from quafka_broker.compaction.compactor import Compactor
from quafka_broker.topics.topic import Topic
from quafka_loop.slices import Slices

_PARTITIONS_PER_SLICE = 200


class TopicCompaction(NamedTuple):
    """The compaction of a topic: sums of its partitions' status.

    Attributes:
        clean_bytes, dirty_bytes: bytes that a pass has covered, and bytes that the next may
            compact.
        due: partitions that the next pass includes.
        last_ms: the end of the last pass over any partition, in ms since the epoch; -1 without one.
        bytes_before, bytes_after: bytes that the last passes have examined and kept.
    """

    topic: Topic
    clean_bytes: int
    dirty_bytes: int
    due: int
    last_ms: int
    bytes_before: int
    bytes_after: int

    @property
    def ratio(self) -> float:
        """The share of bytes that the last passes have kept; 1 without a pass."""
        return self.bytes_after / self.bytes_before if self.bytes_before else 1.0


async def compacted_topics(compactor: Compactor, topics: Iterable[Topic]) -> list[TopicCompaction]:
    """The compaction of each compacted topic, in slices."""
    found: list[TopicCompaction] = []
    slices = Slices(_PARTITIONS_PER_SLICE)
    for topic in topics:
        clean = dirty = due = before = after = 0
        last_ms = -1
        for number in range(topic.partitions):
            status = compactor.status(topic, number)
            if status is None:
                break
            clean, dirty, due = (
                clean + status.clean_bytes, dirty + status.dirty_bytes, due + status.due
            )  # fmt: skip
            if status.last is not None:
                last_ms = max(last_ms, status.last.at_ms)
                before, after = before + status.last.bytes_before, after + status.last.bytes_after
            await slices.done()
        else:
            found.append(TopicCompaction(topic, clean, dirty, due, last_ms, before, after))
        await slices.done()
    return found
