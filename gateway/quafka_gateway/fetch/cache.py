"""Record batches that were read before, and what is known of their partitions. Pure.

Batches are immutable: a topic's id, a partition and an offset name the same bytes for as long as
the leader epoch is the same; with a new one, nothing that was known of a partition counts. Whether
they may still be *served* is another question, which only the broker answers (`read_lease`): the
caller asks the lease before it asks this.

What was read once, as all that a catch-up reads, goes before what was read again: a catch-up of
gigabytes does not drive out what many consumers read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_gateway.fetch.acknowledged import NEVER, Moment
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import MOST_BATCHES, FetchOp, FetchOpResp
from quafka_proto.records import BATCH_HEADER, TRANSACTIONAL, base_offset

_OFFSETS = BATCH_HEADER.part("base_offset", "attributes", "last_offset_delta")
_CHUNK_OVERHEAD = 1_024
_BATCH_OVERHEAD = 128
"""Bytes that Python's objects take, about: small batches must not escape the bound."""
_SMALL_CHUNK = 64 << 10
_READERS = 32
_AGAIN_SHARE = 0.75
_ROOM_AHEAD = 32 << 20
"""For what was read again: so much of the bytes, but not of those that reading ahead needs."""


class PartitionKey(NamedTuple):
    """One partition of one incarnation of a topic: a topic made anew has another id."""

    topic_id: bytes
    partition: int


@dataclass(slots=True, eq=False)
class Chunk:
    """Batches side by side, kept and dropped together. Offsets [first, end)."""

    partition: CachedPartition
    first: int
    end: int
    starts: list[int]
    batches: list[Buffer]
    size: int
    was_read: bool = False


@dataclass(slots=True, eq=False)
class CachedPartition:
    """What is known of one partition.

    The watermarks only grow (within a leader epoch), so that answers may come in any order;
    `heard` is when one came last (loop time), `asked` when the latest of the questions was sent,
    and `told` the moment up to which acknowledgements are in them (`acknowledged.py`). `epochs`:
    what consumers may believe to be the leader epoch, because the broker has let them read with
    it. `readers`: the offset where a reader is expected next, and how far ahead is read for it.
    """

    key: PartitionKey
    name: str = ""
    leader_epoch: int = -1
    heard: float = -1.0
    asked: float = -1.0
    told: Moment = NEVER
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_start: int = 0
    epochs: set[int] = field(default_factory=set[int])
    dropped: bool = False
    largest: int = 0
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    firsts: list[int] = field(default_factory=list[int])
    readers: OrderedDict[int, int] = field(default_factory=OrderedDict[int, int])

    def readable_to(self, isolation_level: int) -> int:
        """The first offset that a consumer may not read."""
        return self.last_stable_offset if isolation_level else self.high_watermark

    def ahead_of(self, offset: int, enough: int) -> tuple[int, int]:
        """Where the batches from `offset` on end, and their bytes; at least `enough` will do."""
        at = bisect_right(self.firsts, offset) - 1
        size = 0
        while 0 <= at < len(self.chunks) and size < enough:
            chunk = self.chunks[at]
            if not chunk.first <= offset < chunk.end:
                break
            offset = chunk.end
            size += chunk.size
            at += 1
        return offset, size

    def grow(self, high_watermark: int, last_stable_offset: int) -> None:
        """The broker has said that the watermarks are there, or beyond."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        self.last_stable_offset = max(self.last_stable_offset, last_stable_offset)

    def expect(self, offset: int, window: int) -> None:
        """A reader will ask for `offset` next."""
        self.readers[offset] = max(window, self.readers.get(offset, 0))
        self.readers.move_to_end(offset)
        if len(self.readers) > _READERS:
            self.readers.popitem(last=False)


class FetchCache:
    """Partitions by id and by name, and their batches up to a bound in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partitions: dict[PartitionKey, CachedPartition] = {}
        self._names: dict[tuple[str, int], CachedPartition] = {}
        # Both: the one that was not used for longest comes first.
        self._once: OrderedDict[Chunk, None] = OrderedDict()
        self._again: OrderedDict[Chunk, None] = OrderedDict()
        self._again_size = 0
        self._again_limit = max(0, min(int(limit * _AGAIN_SHARE), limit - _ROOM_AHEAD))
        self.size = 0
        """Bytes held, with what the objects around them take."""

    def find(self, op: FetchOp) -> CachedPartition | None:
        """What is known of the partition that an op addresses."""
        if op.topic_id:
            found = self._partitions.get(PartitionKey(op.topic_id, op.partition))
            return found if found is None or not op.topic or op.topic == found.name else None
        return self._names.get((op.topic, op.partition))

    def known(self, topic_id: bytes, partition: int) -> CachedPartition | None:
        """What is known of this partition of the topic with this id."""
        return self._partitions.get(PartitionKey(topic_id, partition))

    def learn(
        self,
        op: FetchOp,
        answer: FetchOpResp,
        now: float,
        *,
        asked: float = -1.0,
        told: Moment = NEVER,
        alone: bool = True,
    ) -> None:
        """Keep the watermarks and the batches of an answer without error.

        `asked`, `told`: when the op was sent. `alone`: nobody else's batches came with these, in
        the same piece of memory.
        """
        topic_id = op.topic_id or answer.topic_id
        if not topic_id:
            return
        key = PartitionKey(topic_id, op.partition)
        partition = self._partitions.get(key)
        if partition is not None and answer.leader_epoch != partition.leader_epoch:
            if answer.leader_epoch < partition.leader_epoch:
                return  # it was under way while the epoch changed
            self._forget(partition)
            partition = None
        if partition is None:
            partition = CachedPartition(key, leader_epoch=answer.leader_epoch)
            self._partitions[key] = partition
        if op.topic:
            partition.name = op.topic
            self._names[op.topic, op.partition] = partition
        partition.heard = now
        partition.asked = max(partition.asked, asked)
        partition.told = max(partition.told, told)
        partition.epochs.add(op.current_leader_epoch)
        partition.grow(answer.high_watermark, answer.last_stable_offset)
        partition.log_start = max(partition.log_start, answer.log_start_offset)
        if answer.records:
            self._insert(partition, answer.records if alone else _alone(answer.records))

    def take(
        self,
        partition: CachedPartition,
        offset: int,
        upto: int,
        limit: int,
        *,
        at_least_one: bool,
        most: int = MOST_BATCHES,
    ) -> tuple[list[Buffer], int, int]:
        """Whole batches from the one that holds `offset` on, below `upto`, within `limit` bytes
        and `most` batches.

        Returns them, their size, and the offset behind them. With `at_least_one` the first is
        returned however large.
        """
        taken: list[Buffer] = []
        size = 0
        at = bisect_right(partition.firsts, offset) - 1
        while 0 <= at < len(partition.chunks):
            chunk = partition.chunks[at]
            if not chunk.first <= offset < chunk.end:
                break
            self._lru(chunk).move_to_end(chunk)
            i = bisect_right(chunk.starts, offset) - 1
            many = len(taken) + len(chunk.batches) > most
            if i == 0 and chunk.end <= upto and size + chunk.size <= limit and not many:
                taken += chunk.batches
                size += chunk.size
                offset = chunk.end
                at += 1
                continue
            for number in range(i, len(chunk.batches)):
                batch, end = chunk.batches[number], _end(chunk, number)
                full = size + len(batch) > limit or len(taken) >= most
                if end > upto or (full and (taken or not at_least_one)):
                    return taken, size, offset
                taken.append(batch)
                size += len(batch)
                offset = end
            at += 1
        return taken, size, offset

    def was_read(self, partition: CachedPartition, offset: int, end: int) -> None:
        """A consumer was given [offset, end). Chunks that begin there and were read before count
        as read again."""
        at = bisect_left(partition.firsts, offset)
        while at < len(partition.chunks) and partition.firsts[at] < end:
            chunk = partition.chunks[at]
            if not chunk.was_read:
                chunk.was_read = True
            elif chunk in self._once:
                del self._once[chunk]
                self._again[chunk] = None
                self._again_size += _cost(chunk)
            at += 1
        while self._again_size > self._again_limit:
            chunk, _ = self._again.popitem(last=False)
            self._again_size -= _cost(chunk)
            self._once[chunk] = None

    def drop(self, topic: str, topic_id: bytes, partition: int) -> None:
        """Forget a partition, or with -1 all of the topic's."""
        if partition >= 0:
            known = self._partitions.get(PartitionKey(topic_id, partition))
            named = self._names.get((topic, partition))
            gone = [found for found in (known, named) if found is not None]
        else:
            gone = [known for key, known in self._partitions.items() if key.topic_id == topic_id]
            gone += [known for name, known in self._names.items() if name[0] == topic]
        for found in gone:
            self._forget(found)

    def clear(self) -> None:
        """Forget everything."""
        for partition in [*self._partitions.values(), *self._names.values()]:
            self._forget(partition)

    # --- inside -----------------------------------------------------------------------------

    def _forget(self, partition: CachedPartition) -> None:
        partition.dropped = True
        for chunk in partition.chunks:
            self._remove(chunk)
        partition.chunks, partition.firsts = [], []
        self._partitions.pop(partition.key, None)
        self._names.pop((partition.name, partition.key.partition), None)

    def _insert(self, partition: CachedPartition, batches: Sequence[Buffer]) -> None:
        """Keep the batches that are not there yet; none from a transaction's first batch on."""
        partition.largest = max(partition.largest, *map(len, batches))
        at = bisect_right(partition.firsts, base_offset(batches[0])) - 1
        begin = partition.chunks[at].end if at >= 0 else 0
        following = partition.firsts[at + 1] if at + 1 < len(partition.firsts) else None
        starts: list[int] = []
        kept: list[Buffer] = []
        end = 0
        for batch in batches:
            base, attributes, delta = _OFFSETS.unpack_from(batch)
            if attributes & TRANSACTIONAL or (following is not None and base >= following):
                break
            if kept and base != end:
                break
            if base >= begin:
                starts.append(base)
                kept.append(batch)
                end = base + delta + 1
        if not kept or sum(map(len, kept)) > self._limit // 4:
            return
        if len(kept) < len(batches):
            kept = _alone(kept)
        before = partition.chunks[at] if at >= 0 else None
        if before is not None and before.end == starts[0] and before.size < _SMALL_CHUNK:
            self._remove(before)
            before.starts += starts
            before.batches += kept
            before.size += sum(map(len, kept))
            before.end = end
            chunk = before
        else:
            chunk = Chunk(partition, starts[0], end, starts, kept, sum(map(len, kept)))
            partition.chunks.insert(at + 1, chunk)
            partition.firsts.insert(at + 1, chunk.first)
        self._once[chunk] = None
        self.size += _cost(chunk)
        self._evict()

    def _evict(self) -> None:
        while self.size > self._limit:
            # Not all of what is new, or nobody could be read ahead of.
            many = self.size - self._again_size > self._limit - self._again_limit
            chunk = next(iter(self._once if many or not self._again else self._again))
            self._remove(chunk)
            partition = chunk.partition
            at = bisect_left(partition.firsts, chunk.first)
            del partition.chunks[at], partition.firsts[at]

    def _remove(self, chunk: Chunk) -> None:
        cost = _cost(chunk)
        self.size -= cost
        if chunk in self._again:
            self._again_size -= cost
        del self._lru(chunk)[chunk]

    def _lru(self, chunk: Chunk) -> OrderedDict[Chunk, None]:
        return self._again if chunk in self._again else self._once


def _alone(batches: Sequence[Buffer]) -> list[Buffer]:
    """Copies, where the batches are parts of something larger that would be kept with them."""
    return [bytes(batch) for batch in batches]


def _end(chunk: Chunk, number: int) -> int:
    """The offset behind one of a chunk's batches, which lie side by side."""
    return chunk.starts[number + 1] if number + 1 < len(chunk.starts) else chunk.end


def _cost(chunk: Chunk) -> int:
    return chunk.size + _CHUNK_OVERHEAD + _BATCH_OVERHEAD * len(chunk.batches)
