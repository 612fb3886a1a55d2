"""Zones files of snapshots: the contents of a piece of the log by partition.

With the zones a reader skips index rows that it does not need. A zones file, all integers
big-endian:

    header, 20 bytes
        0   8 magic b"QUAFKZON"
        8   1 version, 1
        9   3 zero
       12   4 number of zones
       16   4 CRC-32C of bytes 0-15 and of all zones
    zones of 88 bytes, ascending by their first 28 bytes:
        0  16 topic hash
       16   4 org id
       20   4 partition
       24   4 generation
       28   4 number of batches
       32   8 offset of the first record
       40   8 offset after the last record
       48   8 number of records
       56   8 bytes of the record batches
       64   8 max timestamp, ms: no record is later; -1: no record has one
       72   4 number of its first index row in the piece
       76   4 number after its last index row; rows of other partitions lie between
       80   8 zero

A reader refuses a version that it does not know.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from quafka_proto.errors import Malformed
from quafka_proto.layout import Layout
from quafka_proto.log_format import INDEX_ROW, INDEX_ROW_SIZE, ROW_CRC_AT
from quafka_proto.records import crc32c

VERSION = 1
ZONES_MAGIC = b"QUAFKZON"
_ZONES_HEADER = Layout(magic="8s", version="B", unused="3x", count="I", crc="I")
ZONE = Layout(
    topic_hash="16s",
    org_id="I",
    partition="I",
    generation="I",
    batches="I",
    first_offset="Q",
    end_offset="Q",
    records="Q",
    bytes="Q",
    max_timestamp="q",
    first_row="I",
    end_row="I",
    unused="8x",
)
ZONES_HEADER_SIZE = _ZONES_HEADER.size
ZONE_SIZE = ZONE.size
_ZONES_HEAD = _ZONES_HEADER.before("crc")
_ZONE = ZONE.whole
_CRC = struct.Struct(">I")
_KEY = ZONE.before("batches")
_ROW = INDEX_ROW.joined("owner", "org_id", "generation").part_of_each(
    "base_offset", "topic_hash", "max_timestamp", "owner", "record_count", "length", "crc"
)
"""The fields of an index row from which zones are made."""


class Zone(NamedTuple):
    """The records of one partition of a virtual topic in a piece."""

    topic_hash: bytes
    org_id: int
    partition: int
    generation: int
    batches: int
    first_offset: int
    end_offset: int
    records: int
    bytes: int
    max_timestamp: int
    first_row: int
    end_row: int


class ZoneBuilder:
    """Builds the zones of a piece from its index rows, in their order."""

    def __init__(self) -> None:
        # By the bytes of topic hash, org, partition and generation, which are equal in rows and
        # zones.
        self._found: dict[bytes, list[int]] = {}
        self._number = 0

    def add(self, rows: bytes | memoryview) -> None:
        """Verify and add the next rows.

        Raises:
            Malformed: a row does not match its CRC, or is cut short.
        """
        if len(rows) % INDEX_ROW_SIZE:
            raise Malformed("an index row is cut short")
        found, number, at = self._found, self._number, 0
        for offset, hash_, time, rest, count, length, crc in _ROW.iter_unpack(rows):
            if crc32c(rows[at : at + ROW_CRC_AT]) != crc:
                raise Malformed("an index row does not match its CRC")
            zone = found.get(hash_ + rest)
            if zone is None:
                zone = found[hash_ + rest] = [0, offset, 0, 0, 0, -1, number, 0]
            at += INDEX_ROW_SIZE
            number += 1
            zone[0] += 1
            if offset < zone[1]:
                zone[1] = offset
            if offset + count > zone[2]:
                zone[2] = offset + count
            zone[3] += count
            zone[4] += length
            if time > zone[5]:
                zone[5] = time
            zone[7] = number
        self._number = number

    def zones(self) -> list[Zone]:
        """The zones of all rows so far."""
        return [Zone(*_KEY.unpack(key), *values) for key, values in sorted(self._found.items())]


def zones_of(rows: bytes | memoryview) -> list[Zone]:
    """Verify index rows, and build their zones.

    Raises:
        Malformed: a row does not match its CRC.
    """
    builder = ZoneBuilder()
    builder.add(rows)
    return builder.zones()


def encode_zones(zones: Sequence[Zone]) -> bytes:
    """A zones file."""
    head = _ZONES_HEAD.pack(ZONES_MAGIC, VERSION, len(zones))
    body = b"".join(_ZONE.pack(*zone) for zone in zones)
    return b"".join((head, _CRC.pack(crc32c(body, crc32c(head))), body))


def decode_zones(data: bytes | memoryview) -> list[Zone]:
    """Read a zones file.

    Raises:
        Malformed: not a zones file, damaged, cut short, or of an unknown version.
    """
    return [Zone(*values) for values in _ZONE.iter_unpack(check_zones(data))]


def check_zones(data: bytes | memoryview) -> memoryview:
    """Verify a zones file. Returns its zones, 88 bytes each, for readers of columns.

    Raises:
        Malformed: not a zones file, damaged, cut short, or of an unknown version.
    """
    view = memoryview(data)
    if len(view) < ZONES_HEADER_SIZE:
        raise Malformed("the zones file is cut short")
    magic, version, count = _ZONES_HEAD.unpack_from(view)
    if magic != ZONES_MAGIC:
        raise Malformed("the zones file has another magic")
    if version != VERSION:
        raise Malformed(f"the zones file has version {version}; known is {VERSION}")
    body = view[ZONES_HEADER_SIZE:]
    if len(body) != ZONE_SIZE * count:
        raise Malformed("the zones file is cut short")
    (crc,) = _CRC.unpack_from(view, _ZONES_HEAD.size)
    if crc32c(body, crc32c(view[: _ZONES_HEAD.size])) != crc:
        raise Malformed("the zones file does not match its CRC")
    return body
