"""One partition in the fetch cache: its watermarks, and its record batches by offset. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_gateway.fetch.aborted import NONE, Aborted, concerning, joined
from quafka_gateway.fetch.produce_acks import NEVER, Moment
from quafka_mesh_ops.ops.base import Buffer

_READERS = 32


class PartitionKey(NamedTuple):
    """One partition of one incarnation of a topic: a re-created topic has another id."""

    topic_id: bytes
    partition: int


@dataclass(slots=True, eq=False)
class CachedChunk:
    """Adjacent batches, kept and evicted together. Offsets [first, end).

    `size`: the bytes of all batches; `in_files`: of these, the bytes that are not in memory.
    `aborted`: the aborted transactions that concern the chunk. None: they are not known, as some of
    its transactions were open when it was read, or the read was read_uncommitted.
    """

    partition: CachedPartition
    first: int
    end: int
    starts: list[int]
    batches: list[Buffer]
    size: int
    in_files: int = 0
    aborted: Aborted | None = NONE
    was_read: bool = False

    def end_of(self, number: int) -> int:
        """The offset after one of the batches."""
        return self.starts[number + 1] if number + 1 < len(self.starts) else self.end

    def serves(self, isolation_level: int) -> bool:
        """Whether a consumer of this isolation level may have the batches."""
        return not isolation_level or self.aborted is not None


@dataclass(slots=True, eq=False)
class CachedPartition:
    """One partition.

    Attributes:
        received_at: loop time of the newest answer with the watermarks.
        requested_at: loop time at which the latest of the answered ops was sent.
        includes_acks: the moment up to which the watermarks include acknowledged produces.
        high_watermark, last_stable_offset, log_start: only grow within a leader epoch, so answers
            may come in any order.
        epochs: the leader epochs that the broker has accepted from consumers.
        dropped: the cache has another object for the partition, or none.
        largest: bytes of the largest batch so far.
        chunks: ascending; `firsts` are their first offsets.
        undecided: the number of chunks whose aborted transactions are not known.
        readers: the offset of each sequential reader's next fetch, and its read-ahead in bytes.
    """

    key: PartitionKey
    name: str = ""
    leader_epoch: int = -1
    received_at: float = -1.0
    requested_at: float = -1.0
    includes_acks: Moment = NEVER
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_start: int = 0
    epochs: set[int] = field(default_factory=set[int])
    dropped: bool = False
    largest: int = 0
    chunks: list[CachedChunk] = field(default_factory=list[CachedChunk])
    firsts: list[int] = field(default_factory=list[int])
    undecided: int = 0
    readers: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])

    def readable_to(self, isolation_level: int) -> int:
        """The first offset that a consumer may not read."""
        return self.last_stable_offset if isolation_level else self.high_watermark

    def cached_from(self, offset: int, enough: int, isolation_level: int = 0) -> tuple[int, int]:
        """The end of the contiguous batches from `offset` on, and their bytes.

        Stops counting at `enough` bytes. Under read_committed, only batches whose aborted
        transactions are known count.
        """
        at = bisect_right(self.firsts, offset) - 1
        size = 0
        while 0 <= at < len(self.chunks) and size < enough:
            chunk = self.chunks[at]
            if not chunk.first <= offset < chunk.end or not chunk.serves(isolation_level):
                break
            offset = chunk.end
            size += chunk.size
            at += 1
        return offset, size

    def aborted_in(self, first: int, end: int) -> Aborted:
        """The aborted transactions that concern [first, end), which is in decided chunks."""
        at = max(0, bisect_right(self.firsts, first) - 1)
        found: list[Aborted] = []
        while at < len(self.chunks) and self.firsts[at] < end:
            aborted = self.chunks[at].aborted
            if aborted:
                found.append(concerning(aborted, first, end))
            at += 1
        return joined(found)

    def raise_watermarks(self, high_watermark: int, last_stable_offset: int) -> None:
        """Take over watermarks of the broker, unless later ones are known."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        self.last_stable_offset = max(self.last_stable_offset, last_stable_offset)

    def extend_down(self, at: int, first: int) -> None:
        """Let a chunk begin at a lower offset: no record is in between."""
        chunk = self.chunks[at]
        chunk.first = chunk.starts[0] = self.firsts[at] = min(chunk.first, first)

    def expect_reader(self, offset: int, window: int) -> None:
        """Expect a fetch of `offset` next, with a read-ahead of `window` bytes."""
        self.readers[offset] = max(window, self.readers.get(offset, 0))
        self.readers.move_to_end(offset)
        if len(self.readers) > _READERS:
            self.readers.popitem(last=False)
