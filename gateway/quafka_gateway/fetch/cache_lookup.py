"""What the cache has for each partition of a fetch, within the limits of the fetch. Pure.

A partition of a fetch, if its watermarks are fresh, is one of three:

- *cached*: batches from its offset on are in the cache (`answer`);
- *missing*: there are batches that the consumer may read, and the cache does not have them, or,
  under read_committed, does not know their aborted transactions;
- unknown: only the broker can answer, with an error or, at the tail, with a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cached_partition import CachedPartition
from quafka_mesh_ops.ops.base import Buffer
from quafka_mesh_ops.ops.records import MOST_BATCHES, FetchOp, FetchOpResp, FetchOps

_WORTHWHILE = 64 << 10
"""Fewer bytes than this that end before the high watermark do not count as cached."""


@dataclass(slots=True)
class PartitionLookup:
    """One partition of a fetch.

    Attributes:
        size: bytes of the answer's records.
        end: the offset after the cached batches; -1: nothing was looked up.
        missing: the cache lacks the batches at `end`.
        at_tail: the fetch offset is the first that the consumer may not read.
        stale: the watermarks must be refreshed first.
    """

    op: FetchOp
    partition: CachedPartition | None = None
    answer: FetchOpResp | None = None
    size: int = 0
    end: int = -1
    missing: bool = False
    at_tail: bool = False
    stale: bool = False


@dataclass(slots=True)
class _Room:
    """What an answer may still hold; `at_least_one`: one batch however large."""

    bytes: int
    batches: int
    at_least_one: bool


def look_up(
    cache: FetchCache, op: FetchOps, allowance: int, is_fresh: Callable[[CachedPartition], bool]
) -> list[PartitionLookup]:
    """All partitions of a fetch, in their order, with at most `allowance` bytes of records.

    `is_fresh` is not called for partitions at the tail: the broker answers those.
    """
    room = _Room(allowance, MOST_BATCHES, op.at_least_one)
    found: list[PartitionLookup] = []
    for wanted in op.partitions:
        part = PartitionLookup(wanted, cache.find(wanted))
        found.append(part)
        if part.partition is not None:
            tail = part.partition.readable_to(op.isolation_level)
            part.at_tail = wanted.fetch_offset == tail
            part.stale = not part.at_tail and not is_fresh(part.partition)
            if not part.stale:
                _read_cached(cache, part, part.partition, op.isolation_level, room)
        if part.answer is not None:
            room.bytes -= part.size
            room.batches -= len(part.answer.records)
            room.at_least_one = room.at_least_one and not part.size
        elif not part.at_tail:
            # Its records come before those of later partitions (KIP-74).
            room.bytes -= min(wanted.max_bytes, max(room.bytes, 0))
            room.at_least_one = False
    return found


def nothing_cached(op: FetchOps) -> list[PartitionLookup]:
    """All partitions of a fetch that may not be answered from memory."""
    return [PartitionLookup(wanted) for wanted in op.partitions]


def is_enough(op: FetchOps, found: Iterable[PartitionLookup]) -> bool:
    """Whether the cached records satisfy the fetch's min_bytes, or fill an answer."""
    size = batches = 0
    for part in found:
        if part.answer is not None:
            size += part.size
            batches += len(part.answer.records)
    if size >= min(op.min_bytes, op.max_bytes):
        return size > 0
    return batches >= MOST_BATCHES


def cached_answer(
    partition: CachedPartition, isolation_level: int, batches: list[Buffer], first: int, end: int
) -> FetchOpResp:
    """An answer of these batches, of the offsets [first, end), and the cached watermarks."""
    return FetchOpResp(
        batches,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start,
        last_stable_offset=partition.last_stable_offset,
        aborted_transactions=list(partition.aborted_in(first, end)) if isolation_level else None,
        leader_epoch=partition.leader_epoch,
    )


def _read_cached(
    cache: FetchCache,
    part: PartitionLookup,
    partition: CachedPartition,
    isolation_level: int,
    room: _Room,
) -> None:
    wanted = part.op
    limit, at_least_one = max(0, min(wanted.max_bytes, room.bytes)), room.at_least_one
    upto = partition.readable_to(isolation_level)
    if not partition.log_start <= wanted.fetch_offset < upto:
        return
    if wanted.current_leader_epoch not in partition.epochs or wanted.last_fetched_epoch >= 0:
        return
    first = wanted.fetch_offset
    batches, size, end = cache.read(
        partition,
        first,
        upto,
        limit,
        at_least_one=at_least_one,
        most=room.batches,
        isolation_level=isolation_level,
    )
    part.end = end
    ended_by_limit = partition.cached_from(end, 1, isolation_level)[1] > 0
    if ended_by_limit or end >= upto or (batches and size >= _WORTHWHILE):
        part.answer = cached_answer(partition, isolation_level, batches, first, end)
        part.size = size
    elif limit or at_least_one:
        part.missing = True
    else:  # the answer has no room for its records
        part.answer = cached_answer(partition, isolation_level, [], first, first)
