"""Record batches that lie in one buffer, and their headers, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_quafka.damage import BatchDamage
from quafka_proto.records import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    LEAST_RECORD,
    LENGTH_FROM,
    MAGIC,
)
from quafka_proto.varints import Bytes, Flags, Longs

_HEADER = np.dtype(BATCH_HEADER.columns)

BatchHeaders = NDArray[np.void]
"""The fields have the names of `BATCH_HEADER`."""


@dataclass(frozen=True)
class Batches:
    """Record batches that lie in one buffer, and the partition of each.

    `ranges` are indexes into `names`, the topic and partition of everything that is read. Records
    with offsets in [`froms`, `untils`) of their batch are wanted.
    """

    data: Bytes
    starts: Longs
    lengths: Longs
    ranges: Longs
    froms: Longs
    untils: Longs
    names: Sequence[tuple[str, int]]

    def only(self, wanted: Flags | Longs) -> Batches:
        """Some of the batches."""
        return Batches(
            self.data, self.starts[wanted], self.lengths[wanted], self.ranges[wanted],
            self.froms[wanted], self.untils[wanted], self.names,
        )  # fmt: skip

    def headers(self) -> BatchHeaders:
        """The headers of all batches, unchecked."""
        at = self.starts[:, None] + np.arange(BATCH_HEADER_SIZE)
        return self.data.take(at, mode="clip").view(_HEADER)[:, 0]

    def view_of(self, batch: int) -> memoryview:
        """The bytes of one batch."""
        start = int(self.starts[batch])
        return self.data.data[start : start + int(self.lengths[batch])]


def well_formed(batches: Batches, headers: BatchHeaders, damages: list[BatchDamage]) -> Flags:
    """Which batches have a header that can be right. CRCs are checked with the bodies."""
    lengths = headers["length"].astype(np.int64) + LENGTH_FROM
    counts, last = headers["record_count"], headers["last_offset_delta"]
    good: Flags = (lengths == batches.lengths) & (headers["magic"] == MAGIC)
    good &= (counts >= 0) & (counts.astype(np.int64) <= last.astype(np.int64) + 1)
    good &= can_hold_records(headers) | (headers["attributes"] & COMPRESSION_MASK != 0)
    damages += [
        damage_of(batches, headers, int(batch), "its header is garbled")
        for batch in np.flatnonzero(~good)
    ]
    return good


def can_hold_records(headers: BatchHeaders) -> Flags:
    """Which batches are long enough for their record count, if they are not compressed.

    Early brokers stored any count unchecked. Only decompressing shows a compressed batch's count.
    """
    bodies = headers["length"].astype(np.int64) + LENGTH_FROM - BATCH_HEADER_SIZE
    found: Flags = headers["record_count"].astype(np.int64) * LEAST_RECORD <= bodies
    return found


def damage_of(batches: Batches, headers: BatchHeaders, batch: int, reason: str) -> BatchDamage:
    """The damage of one batch, at the first offset that is wanted of it."""
    topic, partition = batches.names[int(batches.ranges[batch])]
    offset = max(int(headers["base_offset"][batch]), int(batches.froms[batch]))
    return BatchDamage(topic, partition, offset, reason)
