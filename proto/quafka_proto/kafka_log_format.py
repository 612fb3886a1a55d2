"""The bytes of Apache Kafka's log folders, except for the record batches of `.log` files.

All integers are big-endian. `N` is the offset of a segment's first record, in twenty digits.

`N.index`, sparse, rows of 8 bytes in ascending order; preallocated with zeros while it is written:

    0   4 offset - N
    4   4 position in `N.log` of the batch with that offset

`N.timeindex`, sparse, rows of 12 bytes in ascending order; preallocated, too:

    0   8 the greatest timestamp up to the offset, ms
    8   4 offset - N of the record with that timestamp

`N.txnindex`, the aborted transactions whose markers are in the segment, rows of 34 bytes:

    0   2 version, 0
    2   8 producer id
   10   8 offset of the transaction's first record
   18   8 offset of the marker that aborted it
   26   8 last stable offset after the abortion

`N.snapshot`, the producers before offset N:

    0   2 version, 1
    2   4 CRC-32C of everything after this field
    6   4 number of entries, of 46 bytes each:
        0   8 producer id
        8   2 epoch
       10   4 last sequence
       14   8 offset of the last record
       22   4 last sequence - first sequence of the last batch
       26   8 timestamp of the last batch, ms
       34   4 epoch of the transaction coordinator
       38   8 offset of the first record of the open transaction, -1: none
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quafka_proto.errors import Malformed
from quafka_proto.layout import Layout
from quafka_proto.message import Buffer
from quafka_proto.records import crc32c

OFFSET_ROW = struct.Struct(">II")
TIME_ROW = struct.Struct(">qI")
_ABORTED_ROW = struct.Struct(">hqqqq")
ABORTED_ROW_SIZE = _ABORTED_ROW.size
_SNAPSHOT_HEAD = Layout(version="h", crc="I", entries="i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SUMMED_FROM = _SNAPSHOT_HEAD.end("crc")
_ABORTED_VERSION, _SNAPSHOT_VERSION = 0, 1


class KafkaAbortedTransaction(NamedTuple):
    """An aborted transaction of a partition; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry(NamedTuple):
    """The state of an idempotent or transactional producer in a partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    open_from: int
    """The offset of the first record of its open transaction; -1: none."""


def aborted_transactions(data: Buffer) -> list[KafkaAbortedTransaction]:
    """The rows of a `.txnindex` file, without a row that is cut short at the end.

    Raises:
        Malformed: a row of another version.
    """
    whole = len(data) - len(data) % ABORTED_ROW_SIZE
    rows: list[KafkaAbortedTransaction] = []
    for version, *row in _ABORTED_ROW.iter_unpack(memoryview(data)[:whole]):
        if version != _ABORTED_VERSION:
            raise Malformed(f"row {len(rows)} has version {version}; known is {_ABORTED_VERSION}")
        rows.append(KafkaAbortedTransaction(*row))
    return rows


def producer_entries(data: Buffer) -> list[ProducerEntry]:
    """The entries of a `.snapshot` file.

    Raises:
        Malformed: cut short, damaged, or of another version.
    """
    head = _SNAPSHOT_HEAD.size
    if len(data) < head:
        raise Malformed("the producer snapshot is cut short")
    version, crc, count = _SNAPSHOT_HEAD.whole.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise Malformed(f"producer snapshots of version {version}; known is {_SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[_SUMMED_FROM:]) != crc:
        raise Malformed("the producer snapshot does not match its CRC")
    if count < 0 or head + count * _SNAPSHOT_ENTRY.size != len(data):
        raise Malformed(f"{len(data)} bytes are not {count} producers")
    return [ProducerEntry(*row) for row in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[head:])]


def encode_producer_entries(entries: list[ProducerEntry]) -> bytes:
    """A `.snapshot` file."""
    rows = b"".join(_SNAPSHOT_ENTRY.pack(*entry) for entry in entries)
    summed = struct.pack(">i", len(entries)) + rows
    return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c(summed)) + summed
