"""The fetch cache: record batches of partitions, within a bound in bytes. Pure.

Batches are immutable: a topic's id, a partition and an offset name the same bytes for as long as
the leader epoch is the same. A new leader epoch invalidates everything about a partition. Callers
first check whether the gateway may *serve* from the cache (`lease`).

Consumers of both isolation levels share the batches. Each chunk has the aborted transactions that
concern it. A chunk that was read before all its transactions had ended is *undecided*: it serves
read_uncommitted consumers alone, until an answer under read_committed covers it.

Chunks that were read once are evicted before those that were read again, so that a catch-up of
gigabytes does not evict what many consumers read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Sequence

from quafka_gateway.fair_budget import FairBudget, OrgShare
from quafka_gateway.fetch.aborted import NONE, Aborted, concerning, joined
from quafka_gateway.fetch.cached_partition import CachedChunk, CachedPartition, PartitionKey
from quafka_gateway.fetch.file_slice import (
    LogFile,
    base_offset,
    end_offset,
    file_bytes,
    is_in_file,
)
from quafka_gateway.fetch.produce_acks import NEVER, Moment
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import MOST_BATCHES, FetchOp, FetchOpResp
from quafka_proto.records import BATCH_HEADER, TRANSACTIONAL

_OFFSETS = BATCH_HEADER.part("base_offset", "attributes", "last_offset_delta")
_CHUNK_OVERHEAD = 1_024
_BATCH_OVERHEAD = 128
"""Bytes of Python objects per batch, and per aborted transaction, approximately: small batches must
not escape the bound."""
_SMALL_CHUNK = 64 << 10
_AGAIN_SHARE = 0.75
"""Share of the bytes for chunks that were read again, as far as it leaves _ROOM_AHEAD."""
_ROOM_AHEAD = 32 << 20
"""Bytes that only chunks that were not read again may use, such as those of the read-ahead."""


class FetchCache:
    """Partitions by id and by name, and their batches within a bound in bytes."""

    def __init__(self, limit: int, share: OrgShare | None = None) -> None:
        """`share`: the org's share of a bound that all orgs have together, instead of `limit`."""
        self._room = (share or FairBudget(limit).open()).part(self._evict_one)
        self._partitions: dict[PartitionKey, CachedPartition] = {}
        self._names: dict[tuple[str, int], CachedPartition] = {}
        # Both from the least to the most recently used.
        self._once: OrderedDict[CachedChunk, None] = OrderedDict()
        self._again: OrderedDict[CachedChunk, None] = OrderedDict()
        self._again_size = 0

    @property
    def size(self) -> int:
        """Bytes of the batches and of the objects around them."""
        return self._room.held

    @property
    def _again_limit(self) -> int:
        room = self._room.size
        return max(0, min(int(room * _AGAIN_SHARE), room - _ROOM_AHEAD))

    def find(self, op: FetchOp) -> CachedPartition | None:
        """The partition that an op addresses, if it is here."""
        if op.topic_id:
            found = self._partitions.get(PartitionKey(op.topic_id, op.partition))
            return found if found is None or not op.topic or op.topic == found.name else None
        return self._names.get((op.topic, op.partition))

    def find_by_id(self, topic_id: bytes, partition: int) -> CachedPartition | None:
        """The partition of the topic with this id, if it is here."""
        return self._partitions.get(PartitionKey(topic_id, partition))

    def store(
        self,
        op: FetchOp,
        answer: FetchOpResp,
        received_at: float,
        *,
        requested_at: float = -1.0,
        includes_acks: Moment = NEVER,
        alone: bool = True,
    ) -> None:
        """Keep the watermarks and the batches of an answer without an error.

        `requested_at`, `includes_acks`: when the op was sent, as loop time and as a moment.
        `alone`: no other partition's batches share the piece of memory that holds these.
        """
        topic_id = op.topic_id or answer.topic_id
        if not topic_id:
            return
        key = PartitionKey(topic_id, op.partition)
        partition = self._partitions.get(key)
        if partition is not None and answer.leader_epoch != partition.leader_epoch:
            if answer.leader_epoch < partition.leader_epoch:
                return  # the answer of an op that was in flight while the epoch changed
            self._drop(partition)
            partition = None
        if partition is None:
            partition = CachedPartition(key, leader_epoch=answer.leader_epoch)
            self._partitions[key] = partition
        if op.topic:
            partition.name = op.topic
            self._names[op.topic, op.partition] = partition
        partition.received_at = received_at
        partition.requested_at = max(partition.requested_at, requested_at)
        partition.includes_acks = max(partition.includes_acks, includes_acks)
        partition.epochs.add(op.current_leader_epoch)
        partition.raise_watermarks(answer.high_watermark, answer.last_stable_offset)
        partition.log_start = max(partition.log_start, answer.log_start_offset)
        if answer.records:
            self._decide(partition, answer)
            self._insert(partition, op.fetch_offset, answer, alone)

    def read(
        self,
        partition: CachedPartition,
        offset: int,
        upto: int,
        limit: int,
        *,
        at_least_one: bool,
        most: int = MOST_BATCHES,
        isolation_level: int = 0,
    ) -> tuple[list[Buffer], int, int]:
        """Whole batches from the one that holds `offset` on, below `upto`, within `limit` bytes
        and `most` batches.

        Returns the batches, their size, and the offset after them. With `at_least_one` the first
        batch is returned however large. Under read_committed, the batches end where aborted
        transactions are not known.
        """
        taken: list[Buffer] = []
        size = 0
        at = bisect_right(partition.firsts, offset) - 1
        while 0 <= at < len(partition.chunks):
            chunk = partition.chunks[at]
            if not chunk.first <= offset < chunk.end or not chunk.serves(isolation_level):
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
                batch, end = chunk.batches[number], chunk.end_of(number)
                full = size + len(batch) > limit or len(taken) >= most
                if end > upto or (full and (taken or not at_least_one)):
                    return taken, size, offset
                taken.append(batch)
                size += len(batch)
                offset = end
            at += 1
        return taken, size, offset

    def mark_read(self, partition: CachedPartition, offset: int, end: int) -> None:
        """Record that a consumer has read [offset, end).

        Chunks that begin there count as read again if it is not their first time.
        """
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
        again_limit = self._again_limit
        while self._again_size > again_limit:
            chunk, _ = self._again.popitem(last=False)
            self._again_size -= _cost(chunk)
            self._once[chunk] = None

    def drop(self, topic: str, topic_id: bytes, partition: int) -> None:
        """Drop a partition; -1: all partitions of the topic."""
        if partition >= 0:
            known = self._partitions.get(PartitionKey(topic_id, partition))
            named = self._names.get((topic, partition))
            dropped = [found for found in (known, named) if found is not None]
        else:
            dropped = [known for key, known in self._partitions.items() if key.topic_id == topic_id]
            dropped += [known for name, known in self._names.items() if name[0] == topic]
        for found in dropped:
            self._drop(found)

    def drop_files(self, files: Collection[LogFile]) -> None:
        """Drop the batches that are in these files."""
        for chunk in [*self._once, *self._again]:
            if any(is_in_file(b) and b.file in files for b in chunk.batches):
                self._remove(chunk)
                partition = chunk.partition
                at = bisect_left(partition.firsts, chunk.first)
                del partition.chunks[at], partition.firsts[at]

    def clear(self) -> None:
        """Drop everything."""
        for partition in [*self._partitions.values(), *self._names.values()]:
            self._drop(partition)

    def _drop(self, partition: CachedPartition) -> None:
        partition.dropped = True
        for chunk in partition.chunks:
            self._remove(chunk)
        partition.chunks, partition.firsts = [], []
        self._partitions.pop(partition.key, None)
        self._names.pop((partition.name, partition.key.partition), None)

    def _decide(self, partition: CachedPartition, answer: FetchOpResp) -> None:
        """Record the aborted transactions of chunks that were read before they were decided."""
        if not partition.undecided or answer.aborted_transactions is None:
            return
        first = base_offset(answer.records[0])
        end = min(end_offset(answer.records[-1]), answer.last_stable_offset)
        self._split(partition, first)
        self._split(partition, end)
        at = bisect_left(partition.firsts, first)
        while at < len(partition.chunks) and partition.chunks[at].end <= end:
            chunk = partition.chunks[at]
            if chunk.aborted is None:
                lru = self._remove(chunk)
                chunk.aborted = concerning(answer.aborted_transactions, chunk.first, chunk.end)
                self._add(chunk, lru)
            at += 1

    def _split(self, partition: CachedPartition, offset: int) -> None:
        """Let no undecided chunk reach over this offset, at which a batch begins."""
        at = bisect_right(partition.firsts, offset) - 1
        if at < 0:
            return
        chunk = partition.chunks[at]
        number = bisect_left(chunk.starts, offset)
        if chunk.aborted is not None or not 0 < number < len(chunk.starts):
            return
        lru = self._remove(chunk)
        rest = _chunk(partition, chunk.starts[number:], chunk.batches[number:], chunk.end, None)
        rest.was_read = chunk.was_read
        del chunk.starts[number:], chunk.batches[number:]
        chunk.end = rest.first
        chunk.size -= rest.size
        chunk.in_files -= rest.in_files
        partition.chunks.insert(at + 1, rest)
        partition.firsts.insert(at + 1, rest.first)
        self._add(chunk, lru)
        self._add(rest, lru)

    def _insert(
        self, partition: CachedPartition, offset: int, answer: FetchOpResp, alone: bool
    ) -> None:
        """Keep the new batches of an answer to a fetch of `offset`.

        Offsets without records, as compaction leaves them, belong to the batch after them.
        """
        batches = answer.records
        partition.largest = max(partition.largest, *map(len, batches))
        reached = min(offset, base_offset(batches[0]))
        at = bisect_right(partition.firsts, reached) - 1
        begin = partition.chunks[at].end if at >= 0 else 0
        following = partition.firsts[at + 1] if at + 1 < len(partition.firsts) else None
        starts: list[int] = []
        kept: list[Buffer] = []
        is_plain = True
        for batch in batches:
            base, following_base, may_be_transactional = _offsets(batch)
            start = max(begin, min(base, reached))
            if following is not None and base >= following:
                if not kept:
                    partition.extend_down(at + 1, start)
                break
            if base >= begin:
                starts.append(start)
                kept.append(batch)
                is_plain = is_plain and not may_be_transactional
            reached = following_base
        end = reached
        if not kept or sum(map(len, kept)) - file_bytes(kept) > self._room.limit // 4:
            return
        if not alone or len(kept) < len(batches):
            kept = _copies(kept)
        aborted = NONE if is_plain else _known_aborted(answer, starts[0], end)
        chunk = _chunk(partition, starts, kept, end, aborted)
        if at < 0 or not self._append(partition.chunks[at], chunk):
            partition.chunks.insert(at + 1, chunk)
            partition.firsts.insert(at + 1, chunk.first)
            self._add(chunk, self._once)
        self._room.settle()

    def _append(self, before: CachedChunk, chunk: CachedChunk) -> bool:
        """Make one chunk of two, if the first is small and ends where the second begins."""
        if before.end != chunk.first or before.size >= _SMALL_CHUNK:
            return False
        if (before.aborted is None) != (chunk.aborted is None):
            return False
        self._remove(before)
        before.starts += chunk.starts
        before.batches += chunk.batches
        before.size += chunk.size
        before.in_files += chunk.in_files
        before.end = chunk.end
        if chunk.aborted and before.aborted is not None:
            before.aborted = joined((before.aborted, chunk.aborted))
        self._add(before, self._once)
        return True

    def _evict_one(self) -> None:
        # `once` keeps a reserve, for the read-ahead: within it, `again` gives way.
        beyond_reserve = self.size - self._again_size > self._room.size - self._again_limit
        evict_once = self._once and (beyond_reserve or not self._again)
        chunk = next(iter(self._once if evict_once else self._again))
        self._remove(chunk)
        partition = chunk.partition
        at = bisect_left(partition.firsts, chunk.first)
        del partition.chunks[at], partition.firsts[at]

    def _add(self, chunk: CachedChunk, lru: OrderedDict[CachedChunk, None]) -> None:
        lru[chunk] = None
        cost = _cost(chunk)
        self._room.hold(cost)
        if lru is self._again:
            self._again_size += cost
        chunk.partition.undecided += chunk.aborted is None

    def _remove(self, chunk: CachedChunk) -> OrderedDict[CachedChunk, None]:
        """Returns where it was."""
        lru = self._lru(chunk)
        del lru[chunk]
        cost = _cost(chunk)
        self._room.hold(-cost)
        if lru is self._again:
            self._again_size -= cost
        chunk.partition.undecided -= chunk.aborted is None
        return lru

    def _lru(self, chunk: CachedChunk) -> OrderedDict[CachedChunk, None]:
        return self._again if chunk in self._again else self._once


def _offsets(batch: Buffer) -> tuple[int, int, bool]:
    """A batch's offsets [base, end), and whether it may be of a transaction."""
    if is_in_file(batch):
        return batch.base_offset, batch.end_offset, True
    base, attributes, delta = _OFFSETS.unpack_from(batch)
    return base, base + delta + 1, bool(attributes & TRANSACTIONAL)


def _known_aborted(answer: FetchOpResp, first: int, end: int) -> Aborted | None:
    """The aborted transactions of a part of an answer; None: they are not known."""
    if answer.aborted_transactions is None or end > answer.last_stable_offset:
        return None
    return concerning(answer.aborted_transactions, first, end)


def _chunk(
    partition: CachedPartition,
    starts: list[int],
    batches: list[Buffer],
    end: int,
    aborted: Aborted | None,
) -> CachedChunk:
    size = sum(map(len, batches))
    return CachedChunk(
        partition, starts[0], end, starts, batches, size, file_bytes(batches), aborted
    )


def _copies(batches: Sequence[Buffer]) -> list[Buffer]:
    """Copies of the batches, so that the larger piece of memory that holds them is not kept."""
    return [batch if file_bytes((batch,)) else bytes(batch) for batch in batches]


def _cost(chunk: CachedChunk) -> int:
    objects = _BATCH_OVERHEAD * (len(chunk.batches) + len(chunk.aborted or ()))
    return chunk.size - chunk.in_files + _CHUNK_OVERHEAD + objects
