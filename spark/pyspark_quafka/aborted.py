"""Which batches belong to aborted transactions, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_quafka.batches import Batches, BatchHeaders
from quafka_proto.records import TRANSACTIONAL
from quafka_proto.snapshot_format import SnapshotManifest
from quafka_proto.varints import Flags, Longs

Transactions = NDArray[np.int64]
"""Rows of producer id, first offset and last offset, ascending by last offset."""


@dataclass(frozen=True, eq=False)
class ScanAborts:
    """The aborted transactions of the partitions that a scan reads.

    A producer has one transaction at a time, so those of one producer in one partition do not
    overlap. Only the last one that begins at or before a batch can contain it.

    Attributes:
        producers: the producer ids, ascending, each once.
        firsts: the first offsets, ascending, each once.
        keys: ascending; of range, producer and first offset, the last two by their ranks.
        lasts: the last offset of each key's transaction.
    """

    producers: Longs
    firsts: Longs
    keys: Longs
    lasts: Longs

    def having(self, batches: Batches, headers: BatchHeaders) -> Flags:
        """Which batches belong to one of the transactions."""
        found: Flags = headers["attributes"] & TRANSACTIONAL != 0
        chosen = np.flatnonzero(found)
        producer = headers["producer_id"].astype(np.int64)[chosen]
        at = np.searchsorted(self.producers, producer)
        at[at == len(self.producers)] = 0
        known = self.producers[at] == producer
        base = headers["base_offset"].astype(np.int64)[chosen]
        begun = np.searchsorted(self.firsts, base, "right")
        owners = _owners(batches.ranges[chosen], at, self.producers)
        number = np.searchsorted(self.keys, owners * _ranks(self.firsts) + begun, "right") - 1
        own = (number >= 0) & (self.keys[number] // _ranks(self.firsts) == owners)
        found[chosen] = known & own & (base <= self.lasts[number])
        return found


def _owners(ranges: Longs, producers: Longs, known: Longs) -> Longs:
    owners: Longs = ranges.astype(np.int64) * len(known) + producers
    return owners


def _ranks(firsts: Longs) -> int:
    return len(firsts) + 1


def by_partition(manifest: SnapshotManifest) -> dict[bytes, Transactions]:
    """The aborted transactions of each partition that has any, by `PartitionRange.key`."""
    found: dict[bytes, Transactions] = {}
    for topic in manifest.topics:
        for partition in topic.partitions:
            if partition.aborted:
                numbers = (topic.org, partition.partition, topic.generation)
                key = b"".join(number.to_bytes(4, "big") for number in numbers)
                rows = np.array(partition.aborted, np.int64)
                rows = rows[np.argsort(rows[:, 2], kind="stable")]
                found[bytes.fromhex(topic.topic_hash) + key] = rows
    return found


def aborted_in(
    known: Mapping[bytes, Transactions], ranges: Sequence[tuple[bytes, int, int]]
) -> ScanAborts | None:
    """The transactions that have offsets in the ranges: keys, first offsets and ends.

    None if there are none.
    """
    numbers: list[Longs] = []
    some: list[Transactions] = []
    for number, (key, start, end) in enumerate(ranges):
        rows = known.get(key)
        if rows is not None:
            rows = rows[int(np.searchsorted(rows[:, 2], start)) :]
            rows = rows[rows[:, 1] < end]
            some.append(rows)
            numbers.append(np.full(len(rows), number, np.int64))
    if not sum(map(len, some)):
        return None
    found: Transactions = np.concatenate(some)
    producer, first, last = found[:, 0], found[:, 1], found[:, 2]
    producers, firsts = np.unique(producer), np.unique(first)
    at = np.searchsorted(producers, producer)
    owners = _owners(np.concatenate(numbers), at, producers)
    keys: Longs = owners * _ranks(firsts) + np.searchsorted(firsts, first, "right")
    order = np.argsort(keys)
    return ScanAborts(producers, firsts, keys[order], last[order])
