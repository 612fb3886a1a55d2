"""Index rows of a snapshot's pieces, in numpy, and the partitions that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_quafka.errors import QuafkaError
from quafka_objects.store import ObjectStore
from quafka_proto.log_format import INDEX_ROW, INDEX_ROW_SIZE, ROW_CRC_AT
from quafka_proto.records import crc32c
from quafka_proto.snapshot_format import SegmentPiece
from quafka_proto.varints import Bytes, Longs
from quafka_proto.zone_format import ZONE

_ROW = np.dtype(INDEX_ROW.columns)
ZONES = np.dtype(ZONE.joined("key", "topic_hash", "generation").columns)
"""Zones as columns; `key` is that of `PartitionRange.key`."""
_KEY_SIZE = ZONE.offset("batches")
_HASH = slice(INDEX_ROW.offset("topic_hash"), INDEX_ROW.end("topic_hash"))
_NUMBERS = slice(INDEX_ROW.offset("org_id"), INDEX_ROW.end("generation"))

Rows = NDArray[np.void]
Keys = NDArray[np.bytes_]


@dataclass(frozen=True)
class PartitionRange:
    """A partition to read, and its offsets: from `start` up to, not including, `end`."""

    topic: str
    partition: int
    org: int
    topic_hash: bytes
    generation: int
    start: int
    end: int

    @property
    def key(self) -> bytes:
        """The partition's key in entries, rows and zones."""
        numbers = (self.org, self.partition, self.generation)
        return self.topic_hash + b"".join(number.to_bytes(4, "big") for number in numbers)


def rows_in(data: bytes) -> Rows:
    """Index rows as columns; their CRCs are not verified."""
    return np.frombuffer(data, _ROW)


def read_rows(
    store: ObjectStore, piece: SegmentPiece, first: int, end: int
) -> tuple[Rows, list[int]]:
    """Index rows of a piece, and the numbers of those that do not match their CRCs.

    Raises:
        QuafkaError: the index file is cut short.
    """
    start = piece.index_offset + INDEX_ROW_SIZE * first
    data = store.read(piece.index, start, INDEX_ROW_SIZE * (end - first))
    if len(data) != INDEX_ROW_SIZE * (end - first):
        raise QuafkaError(f"{piece.index} is cut short: the rows {first} to {end} are missing")
    rows = rows_in(data)
    size = INDEX_ROW_SIZE
    wrong = [
        number
        for number, crc in enumerate(rows["crc"].tolist())
        if crc32c(data[number * size : number * size + ROW_CRC_AT]) != crc
    ]
    return rows, wrong


def keys_of(rows: Rows) -> Keys:
    """The partition of each row, as `PartitionRange.key`."""
    data: Bytes = rows.view(np.uint8).reshape(len(rows), INDEX_ROW_SIZE)
    keys = np.concatenate([data[:, _HASH], data[:, _NUMBERS]], axis=1)
    return np.ascontiguousarray(keys).view(f"S{_KEY_SIZE}")[:, 0]


def which_range(keys: Keys, ranges: Sequence[PartitionRange]) -> Longs:
    """For each key the index of its range; -1 if it has none."""
    wanted = np.array([range_.key for range_ in ranges], f"S{_KEY_SIZE}")
    order = np.argsort(wanted)
    at = np.searchsorted(wanted[order], keys)
    at[at == len(order)] = 0
    found: Longs = order[at].astype(np.int64)
    found[wanted[found] != keys] = -1
    return found
