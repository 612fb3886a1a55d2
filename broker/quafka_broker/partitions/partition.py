"""A partition of a virtual topic: the global ids of its records, and their offsets.

A partition has no file of its own. It is the set of the global ids of its records, a Roaring
bitmap. A record's virtual offset is the log start base plus the rank of its id in the set. Ids are
assigned in append order, so ranks follow the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.gaps import NO_GAPS, Gaps, Range
from quafka_broker.partitions.ids import GlobalIds
from quafka_broker.partitions.sparse_index import SparseIndex
from quafka_broker.partitions.transactions import (
    AbortedRange,
    PartitionTransactions,
    TransactionsState,
)
from quafka_proto.log_format import ROW_TRANSACTIONAL, IndexRow
from quafka_proto.records import BATCH_HEADER_SIZE


@lru_cache(maxsize=1 << 16)
def topic_hash(org_id: int, topic: str) -> bytes:
    """Blake3 of the org id (8 bytes, big-endian) and the topic's name in UTF-8, cut to 128 bits.

    The leading org id is a salt: equal names of two orgs have unrelated hashes.
    """
    return blake3(org_id.to_bytes(8, "big") + topic.encode()).digest()[:16]


class PartitionId(NamedTuple):
    """Names one partition of one incarnation of a topic.

    `generation` distinguishes a topic from deleted topics of the same name.
    """

    org_id: int
    topic_hash: bytes
    partition: int
    generation: int

    @property
    def key(self) -> str:
        """Rafka's key: "{org_id}-{topic_hash_decimal}-{partition}"."""
        return f"{self.org_id}-{int.from_bytes(self.topic_hash, 'big')}-{self.partition}"


def partition_of(row: IndexRow) -> PartitionId:
    """The partition that an entry belongs to."""
    return PartitionId(row.org_id, row.topic_hash, row.partition, row.generation)


class PartitionState(NamedTuple):
    """A partition as a checkpoint keeps it. `ids`: see `GlobalIds.serialize`.

    `transactions` and `gaps` are missing in checkpoints of versions without them.
    """

    log_start: int
    high_watermark: int
    ids: bytes
    batches: bytes
    transactions: TransactionsState | None = None
    gaps: bytes = b""


class Partition:
    """One partition's durable records.

    Invariant: `high_watermark == log_start + number of ids`. The high watermark moves only when
    records are durable (or, with a laxer `wal.fsync`, written). One thread changes a partition;
    other threads may read `log_start` and `global_id_at` meanwhile.
    """

    __slots__ = ("_start", "batches", "gaps", "high_watermark", "id", "transactions")

    def __init__(self, id: PartitionId, log_start: int = 0) -> None:  # noqa: A002
        self.id = id
        # The base and the ids that count from it are replaced together: a reader in another thread
        # sees both from before a change, or both from after it.
        self._start = (log_start, GlobalIds())
        self.high_watermark = log_start
        self.batches = SparseIndex()
        self.transactions: PartitionTransactions | None = None
        """None until the partition has a transactional batch."""
        self.gaps = NO_GAPS
        """The offsets whose batches compaction has removed. The last batch is always kept."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark."""
        transactions = self.transactions
        first = transactions.first_open if transactions is not None else None
        return self.high_watermark if first is None else max(first, self.log_start)

    def aborted(self, start: int, end: int) -> list[AbortedRange]:
        """The aborted transactions that may have records in [start, end)."""
        return [] if self.transactions is None else self.transactions.aborted(start, end)

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        return self._start[0]

    def add(self, row: IndexRow) -> None:
        """Append a batch. Its ids are dense from `row.global_id` on, and above all others."""
        self._start[1].add_range(row.global_id, row.global_id + row.record_count)
        newest = row.max_timestamp if row.length > BATCH_HEADER_SIZE else -1
        self.batches.add(self.high_watermark, row.record_count, newest, row.length)
        if row.flags & ROW_TRANSACTIONAL:
            self._known_transactions().add(row)
        self.high_watermark += row.record_count

    def _known_transactions(self) -> PartitionTransactions:
        if self.transactions is None:
            self.transactions = PartitionTransactions()
        return self.transactions

    def add_lost(self, first_id: int, count: int) -> None:
        """Append records that are lost to damage: they keep their ids and offsets."""
        self._start[1].add_range(first_id, first_id + count)
        self.high_watermark += count

    def add_gap(self, first_id: int, count: int) -> None:
        """Append records that compaction has removed: they keep their ids and offsets."""
        self.gaps = self.gaps.joined([(self.high_watermark, self.high_watermark + count)])
        self.add_lost(first_id, count)

    def add_gap_before(self, first_id: int, count: int) -> None:
        """Add records that compaction has removed before all others."""
        base = self.log_start
        self.add_lost_before([(first_id, first_id + count)])
        self.gaps = self.gaps.joined([(base - count, base)])

    def compacted(self, ranges: Iterable[Range]) -> None:
        """Record that the batches of these offsets, below the high watermark, have been removed."""
        gaps = self.gaps.joined(ranges)
        self.take_gaps(gaps, self.markers_in(gaps))

    def markers_in(self, gaps: Gaps) -> list[int]:
        """The markers of aborted transactions that are in gaps. Safe in any thread."""
        return [] if self.transactions is None else self.transactions.markers_in(gaps)

    def take_gaps(self, gaps: Gaps, markers: Iterable[int]) -> None:
        """Take over all gaps, which include the known ones, and the `markers_in` them.

        An aborted transaction without its marker is dropped: consumers would mistake the producer's
        next transaction for it.
        """
        self.gaps = gaps.from_offset(self.log_start)
        if self.transactions is not None:
            self.transactions.drop_markers(markers)

    def add_lost_before(self, ids: Iterable[tuple[int, int]]) -> None:
        """Add lost records before all others, by ranges [first, end) of ids below theirs."""
        base, others = self._start
        every = others.copy_from(0)
        for first, end in ids:
            every.add_range(first, end)
            base -= end - first
        self._start = (base, every)

    def advance_log_start(self, offset: int) -> None:
        """Drop the records below `offset`; no other record's offset changes.

        An offset up to the log start changes nothing. An offset above the high watermark also moves
        the high watermark: the records in between existed, and are gone.
        """
        base, ids = self._start
        if offset <= base:
            return
        if offset >= self.high_watermark:
            self._start = (offset, GlobalIds())
            self.high_watermark = offset
        else:
            self._start = (offset, ids.copy_from(ids[offset - base]))
        self.batches.drop_below(offset)
        self.gaps = self.gaps.from_offset(offset)
        if self.transactions is not None:
            self.transactions.drop_below(offset)
            if not self.transactions:
                self.transactions = None

    def global_id_at(self, offset: int) -> int:
        """The id of the record at a virtual offset.

        Raises:
            OffsetGoneError: the offset is below the log start.
            IndexError: the offset is not below the high watermark.
        """
        base, ids = self._start
        if offset < base:
            raise OffsetGoneError(f"offset {offset} is below the log start {base}")
        return ids[offset - base]

    def offsets_between(self, first_id: int, end_id: int) -> tuple[int, int]:
        """The offsets [first, end) of the records with ids in [first_id, end_id)."""
        base, ids = self._start
        below = ids.rank(first_id - 1) if first_id else 0
        return base + below, base + (ids.rank(end_id - 1) if end_id else 0)

    def first_offset_from(self, global_id: int) -> int:
        """The offset of the first record with at least this id, or the high watermark."""
        base, ids = self._start
        return base + (ids.rank(global_id - 1) if global_id else 0)

    @property
    def ids(self) -> GlobalIds:
        """The ids of the records. Appending changes the set; moving the log start replaces it."""
        return self._start[1]

    @property
    def first_id(self) -> int | None:
        """The id of the first record; None in an empty partition."""
        ids = self._start[1]
        return ids[0] if ids else None

    @property
    def next_id(self) -> int:
        """The id after that of the last record; 0 in an empty partition."""
        ids = self._start[1]
        return ids[-1] + 1 if ids else 0

    def dump(self) -> PartitionState:
        """The whole state, for a checkpoint."""
        base, ids = self._start
        transactions = self.transactions.dump() if self.transactions else None
        return PartitionState(
            base, self.high_watermark, ids.serialize(), self.batches.dump(), transactions,
            self.gaps.dump(),
        )  # fmt: skip

    @classmethod
    def load(cls, id: PartitionId, state: PartitionState) -> Partition:  # noqa: A002
        """Load the result of `dump`.

        Raises:
            ValueError: the state is inconsistent.
        """
        partition = cls(id, state.log_start)
        partition._start = (state.log_start, GlobalIds.deserialize(state.ids))
        partition.high_watermark = state.high_watermark
        partition.batches = SparseIndex.load(state.batches)
        if state.transactions is not None:
            transactions = TransactionsState._make(state.transactions)
            partition.transactions = PartitionTransactions.load(transactions)
        partition.gaps = Gaps.load(state.gaps)
        if partition.high_watermark != state.log_start + len(partition._start[1]):
            raise ValueError(f"the ids of partition {id.key} do not match its watermarks")
        return partition
