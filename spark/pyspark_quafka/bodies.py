"""The records of batches, verified by CRC and decompressed into one buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyspark_quafka.batches import Batches, BatchHeaders
from quafka_proto.compression import TooLarge, decompress_into
from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    LEAST_RECORD,
    PATCHED_SIZE,
    crc32c,
)
from quafka_proto.varints import Bytes, Flags, Longs

BATCH_LIMIT = 1 << 30
"""The most bytes that one batch may decompress to: consumers can read as much, a bomb is more."""
_FIRST_ARENA = 16 << 20
_MOST_BYTES = 256 << 20
"""The most bytes decompressed together: positions in Arrow have 31 bits, and memory is finite."""


class TooMuchError(Exception):
    """Batches decompress to more than should be in memory together."""


class Arena:
    """Memory that batches are decompressed into, reused by each call of `decode`: fresh memory
    costs more than decompression."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_ARENA, np.uint8)

    def decompress(self, codec: int, packed: Buffer, at: int, limit: int) -> int:
        """Decompress to position `at`, at most `limit` bytes; returns the number of bytes.

        Raises:
            TooLarge: the data decompresses to more than `limit`.
            Malformed: the data is not of this codec, or the codec is not known.
        """
        while True:
            room = self.data.data[at : at + limit]
            try:
                return decompress_into(codec, packed, room)
            except TooLarge:
                if len(room) == limit:
                    raise
            larger = np.empty(min(2 * len(self.data), at + limit), np.uint8)
            larger[:at] = self.data[:at]
            self.data = larger


@dataclass(frozen=True)
class Bodies:
    """The uncompressed records of batches, in one buffer."""

    data: Bytes
    starts: Longs
    ends: Longs

    def only(self, wanted: Flags) -> Bodies:
        """Those of some batches."""
        return Bodies(self.data, self.starts[wanted], self.ends[wanted])


def read_bodies(
    batches: Batches, headers: BatchHeaders, limit: int, arena: Arena
) -> tuple[Bodies, dict[int, str]]:
    """Check and decompress. Also returns the batches that cannot be read, which are left empty,
    with the reasons.

    Raises:
        TooMuchError: several batches are too large to be decompressed together.
    """
    codecs = headers["attributes"] & COMPRESSION_MASK
    plain = not codecs.any()
    unreadable: dict[int, str] = {}
    starts, ends = batches.starts + BATCH_HEADER_SIZE, batches.starts + batches.lengths
    at = 0
    facts = headers["crc"].tolist(), codecs.tolist(), headers["record_count"].tolist()
    for batch, (crc, codec, count) in enumerate(zip(*facts, strict=True)):
        data = batches.view_of(batch)
        packed = data[BATCH_HEADER_SIZE:]
        try:
            _check_crc(data, crc)
            size = len(packed) if plain else arena.decompress(codec, packed, at, limit)
            _check_size(size, count)
        except Malformed as e:
            unreadable[batch] = str(e)
            size = 0
        if not plain:
            starts[batch], ends[batch] = at, at + size
            at += size
            if at > _MOST_BYTES and batch:
                raise TooMuchError
    return Bodies(batches.data if plain else arena.data[:at], starts, ends), unreadable


def _check_crc(batch: memoryview, crc: int) -> None:
    if crc32c(batch[PATCHED_SIZE:]) != crc:
        raise Malformed("it does not match its CRC")


def _check_size(size: int, count: int) -> None:
    if count * LEAST_RECORD > size:
        raise Malformed(f"{size} bytes cannot hold {count} records")
