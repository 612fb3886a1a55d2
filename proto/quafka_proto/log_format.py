"""The bytes of the log on disk. The broker writes them; Spark and tools read them.

All integers are big-endian. A reader refuses a version that it does not know. A change of layout is
a new version; readers continue to read the old ones. In every version the 32 bytes of the header
have the places below, and the version of an entry is no higher than its file's: so an earlier
program can tell a file that it does not know from a damaged one, which it would repair.

Segment file `N.log` (N: twelve decimal digits):

    header, 32 bytes
        0   8 magic b"QUAFKLOG"
        8   1 version, 1
        9   1 kind: 0 entries in append order; 1 rewritten: without dead entries, the others in
              any order, all durable: `durable position` has no meaning
       10   6 zero
       16   8 segment number
       24   4 salt: a random number, the same in both files of a segment
       28   4 CRC-32C of bytes 0-27
    entries, each:
        0   2 marker, 0x5145
        2   1 version, 1
        3   1 flags, 0
        4   4 length of the record batch
        8   4 CRC-32C, initialised with the salt, of bytes 0-7, of bytes 12-67 and of the
              batch's first 21 bytes
       12   8 global message id of the first record
       20   8 virtual offset of the first record
       28   8 durable position: the file was fsynced up to here when the entry was written
       36  16 topic hash
       52   4 org id
       56   4 partition
       60   4 generation of the topic
       64   4 record count
       68     the record batch: 61-byte header and records, as produced

The batch's own CRC-32C covers the batch from byte 21 on, so every byte is covered by a checksum.
The salt distinguishes an entry from a copy of one: a record's value may contain any bytes, and
recovery searches for entries after a torn one.

An entry of org 0, the broker's own, whose batch has no producer id and a base sequence n above 0
begins a group: it and the following n entries are in the log together or not at all.

The entry's record count and the batch's last offset delta are the number of the entry's offsets and
ids. The batch itself has fewer records after compaction, and none if the records were lost to
damage or only the batch's bounds or its producer are needed. In a rewritten segment, offsets from a
partition's log start on without an entry were removed by compaction.

Index file `N.oidx`: the same 32-byte header with magic b"QUAFKIDX", then one row per entry, in the
order of global ids:

        0   8 global message id of the first record
        8   8 virtual offset of the first record
       16   8 position of the entry in the log file
       24  16 topic hash
       40   8 max timestamp, ms
       48   8 producer id, -1: none
       56   4 base sequence
       60   4 org id
       64   4 partition
       68   4 generation
       72   4 record count
       76   4 length of the record batch
       80   2 producer epoch
       82   2 flags: 1 the entry is damaged; of its record batch: 2 transactional, 4 control batch,
              8 control batch that aborts a transaction
       84   4 leader epoch of the record batch; older rows have zero, which is correct: all batches
              had epoch 0 then
       88   4 zero
       92   4 CRC-32C of bytes 0-91
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from quafka_proto.errors import LaterVersion, Malformed
from quafka_proto.layout import Layout
from quafka_proto.primitives import read_varint
from quafka_proto.records import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    CONTROL,
    DELETE_HORIZON,
    PATCHED_SIZE,
    TRANSACTIONAL,
    crc32c,
    read_header,
)

VERSION = 1
LOG_MAGIC = b"QUAFKLOG"
INDEX_MAGIC = b"QUAFKIDX"
ENTRY_START = b"\x51\x45\x01\x00"
"""The first bytes of every entry: marker, version, flags."""
APPENDED, REWRITTEN = 0, 1
"""The kinds of segments."""
ROW_DAMAGED = 1
ROW_TRANSACTIONAL, ROW_CONTROL, ROW_ABORT = 2, 4, 8
"""The flags of an index row; the last three are facts of the record batch."""

_FILE_HEADER = Layout(
    magic="8s", version="B", kind="B", unused="6x", number="Q", salt="I", crc="I"
)  # fmt: skip
_ENTRY_HEAD = Layout(start="4s", length="I", crc="I")
_ENTRY_BODY = Layout(
    global_id="Q",
    base_offset="Q",
    durable_position="Q",
    topic_hash="16s",
    org_id="I",
    partition="I",
    generation="I",
    record_count="I",
)
INDEX_ROW = Layout(
    global_id="Q",
    base_offset="Q",
    position="Q",
    topic_hash="16s",
    max_timestamp="q",
    producer_id="q",
    base_sequence="i",
    org_id="I",
    partition="I",
    generation="I",
    record_count="I",
    length="I",
    producer_epoch="h",
    flags="H",
    leader_epoch="i",
    unused="4x",
    crc="I",
)
FILE_HEADER_SIZE = _FILE_HEADER.size
ENTRY_HEADER_SIZE = _ENTRY_HEAD.size + _ENTRY_BODY.size
INDEX_ROW_SIZE = INDEX_ROW.size
ROW_CRC_AT = INDEX_ROW.offset("crc")
"""The position of an index row's CRC, which covers the bytes before it."""
CHECKED_SIZE = ENTRY_HEADER_SIZE + PATCHED_SIZE
"""The leading bytes of an entry, which its CRC covers."""

_NO_PRODUCER = -1
_MARKER_TYPE_AT = BATCH_HEADER_SIZE + 7
"""In a control batch: after five bytes of lengths and deltas, and the key's version."""

_CRC = struct.Struct(">I")
_FILE_FACTS = _FILE_HEADER.before("crc")
_FILE_CRC_AT = _FILE_HEADER.offset("crc")
_START_AND_LENGTH = _ENTRY_HEAD.before("crc")
_ENTRY_CRC_AT = _ENTRY_HEAD.offset("crc")
_BODY_AT = _ENTRY_HEAD.size
_BODY = _ENTRY_BODY.whole
_BATCH_EPOCH = BATCH_HEADER.part("leader_epoch")
_BATCH_LENGTH = slice(BATCH_HEADER.offset("length"), BATCH_HEADER.end("length"))
_BATCH_MAGIC_AND_CRC = slice(BATCH_HEADER.offset("magic"), PATCHED_SIZE)
_PLACED = struct.Struct(_BODY.format + "q4si5s")
"""The checked bytes of an entry after its CRC: its own fields, then those of its batch."""
_ROW = INDEX_ROW.before("crc")


class FileHeader(NamedTuple):
    """The variable fields of a log or index file's header."""

    salt: int
    kind: int


class EntryHeader(NamedTuple):
    """An entry's header; `length` is the size of its record batch."""

    length: int
    global_id: int
    base_offset: int
    durable_position: int
    topic_hash: bytes
    org_id: int
    partition: int
    generation: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return ENTRY_HEADER_SIZE + self.length


class IndexRow(NamedTuple):
    """The index row of an entry."""

    global_id: int
    base_offset: int
    position: int
    topic_hash: bytes
    max_timestamp: int
    producer_id: int
    base_sequence: int
    org_id: int
    partition: int
    generation: int
    record_count: int
    length: int
    producer_epoch: int
    flags: int = 0
    leader_epoch: int = 0

    @property
    def end(self) -> int:
        """The position after the entry."""
        return self.position + ENTRY_HEADER_SIZE + self.length


def encode_file_header(magic: bytes, number: int, salt: int, kind: int = APPENDED) -> bytes:
    """The header of a segment's log or index file."""
    head = _FILE_FACTS.pack(magic, VERSION, kind, number, salt)
    return head + _CRC.pack(crc32c(head))


def check_file_header(data: bytes, magic: bytes, number: int) -> FileHeader:
    """Verify the header of a file.

    Raises:
        LaterVersion: undamaged, and of an unknown version or kind.
        Malformed: cut short, damaged, of another kind of file or segment, or of another segment.
    """
    if len(data) < FILE_HEADER_SIZE:
        raise Malformed("the file header is cut short")
    found, version, kind, found_number, salt = _FILE_FACTS.unpack_from(data)
    if found != magic:
        raise Malformed("the file header has another magic")
    if _CRC.unpack_from(data, _FILE_CRC_AT)[0] != crc32c(data[:_FILE_CRC_AT]):
        raise Malformed("the file header does not match its CRC")
    if version != VERSION:
        raise LaterVersion(f"the file has version {version}; known is {VERSION}")
    if found_number != number:
        raise Malformed(f"the file is segment {found_number}")
    if kind not in (APPENDED, REWRITTEN):
        raise LaterVersion(f"segments of kind {kind} are not known")
    return FileHeader(salt, kind)


def encode_entry_header(
    patched: bytes | bytearray | memoryview,
    *,
    salt: int,
    length: int,
    global_id: int,
    base_offset: int,
    durable_position: int,
    topic_hash: bytes,
    org_id: int,
    partition: int,
    generation: int,
    record_count: int,
) -> bytes:
    """The header for a batch of `length` bytes; `patched` are its first 21 bytes."""
    body = _BODY.pack(
        global_id, base_offset, durable_position, topic_hash, org_id, partition, generation,
        record_count,
    )  # fmt: skip
    head = _START_AND_LENGTH.pack(ENTRY_START, length)
    crc = crc32c(b"".join((head, body, patched[:PATCHED_SIZE])), salt)
    return head + _CRC.pack(crc) + body


class EntryStart:
    """The first bytes of the entries of one batch, which may be in several partitions.

    Transactions end with the same batch in each partition: parts that do not depend on the
    partition are made once.
    """

    __slots__ = ("_batch_length", "_crc", "_head", "_magic_and_crc")

    def __init__(self, patched: bytes | bytearray | memoryview, salt: int, length: int) -> None:
        """`patched`: the first 21 bytes of a batch of `length` bytes."""
        self._head = _START_AND_LENGTH.pack(ENTRY_START, length)
        self._crc = crc32c(self._head, salt)
        self._batch_length = bytes(patched[_BATCH_LENGTH])
        self._magic_and_crc = bytes(patched[_BATCH_MAGIC_AND_CRC])

    def placed(
        self,
        global_id: int,
        offset: int,
        durable_position: int,
        topic_hash: bytes,
        org_id: int,
        partition: int,
        generation: int,
        record_count: int,
        leader_epoch: int,
    ) -> bytes:
        """An entry's header, and the batch's first 21 bytes with its offset and leader epoch."""
        placed = _PLACED.pack(
            global_id, offset, durable_position, topic_hash, org_id, partition, generation,
            record_count, offset, self._batch_length, leader_epoch, self._magic_and_crc,
        )  # fmt: skip
        return self._head + _CRC.pack(crc32c(placed, self._crc)) + placed


def encode_copied_header(
    row: IndexRow, patched: bytes | bytearray | memoryview, salt: int
) -> bytes:
    """The header of an entry that is copied to a rewritten file, made from its index row."""
    return encode_entry_header(
        patched,
        salt=salt,
        length=row.length,
        global_id=row.global_id,
        base_offset=row.base_offset,
        durable_position=0,
        topic_hash=row.topic_hash,
        org_id=row.org_id,
        partition=row.partition,
        generation=row.generation,
        record_count=row.record_count,
    )


def check_entry_header(data: bytes | memoryview, at: int, salt: int) -> EntryHeader:
    """Verify the header of an entry and the first 21 bytes of its batch.

    Raises:
        Malformed: cut short, not the start of an entry, or another checksum.
    """
    if len(data) - at < ENTRY_HEADER_SIZE + BATCH_HEADER_SIZE:
        raise Malformed("an entry header is cut short")
    start, length = _START_AND_LENGTH.unpack_from(data, at)
    if start != ENTRY_START or length < BATCH_HEADER_SIZE:
        raise Malformed("no entry begins here")
    (crc,) = _CRC.unpack_from(data, at + _ENTRY_CRC_AT)
    head = crc32c(data[at : at + _ENTRY_CRC_AT], salt)
    if crc32c(data[at + _BODY_AT : at + CHECKED_SIZE], head) != crc:
        raise Malformed("an entry header does not match its CRC")
    return EntryHeader(length, *_BODY.unpack_from(data, at + _BODY_AT))


def entry_leader_epoch(entry: bytes | memoryview) -> int:
    """The leader epoch in an entry's record batch, from the entry's first CHECKED_SIZE bytes."""
    epoch: int = _BATCH_EPOCH.unpack_from(entry, ENTRY_HEADER_SIZE)[0]
    return epoch


def check_entry(data: bytes | memoryview, at: int, salt: int) -> EntryHeader:
    """Verify every byte of an entry.

    Raises:
        Malformed: cut short, or another checksum.
    """
    entry = check_entry_header(data, at, salt)
    start = at + ENTRY_HEADER_SIZE
    if len(data) - start < entry.length:
        raise Malformed("an entry is cut short")
    batch = data[start : start + entry.length]
    header = read_header(batch)
    # A producer's batch is dense; a batch for lost records has only offsets.
    if header.length != entry.length or header.last_offset_delta + 1 != entry.record_count:
        raise Malformed("an entry and its record batch differ")
    if header.crc != crc32c(batch[PATCHED_SIZE:]):
        raise Malformed("a record batch does not match its CRC")
    return entry


def row_of(entry: EntryHeader, position: int, batch: bytes | bytearray | memoryview) -> IndexRow:
    """The index row of an entry at `position`, from the headers of the entry and its batch."""
    header = read_header(batch)
    return IndexRow(
        entry.global_id,
        entry.base_offset,
        position,
        entry.topic_hash,
        header.max_timestamp,
        header.producer_id,
        header.base_sequence,
        entry.org_id,
        entry.partition,
        entry.generation,
        entry.record_count,
        entry.length,
        header.producer_epoch,
        row_flags(header.attributes, batch),
        header.leader_epoch,
    )


def row_flags(attributes: int, batch: bytes | bytearray | memoryview) -> int:
    """The flags of a batch's row. Only for control batches is more than the header read."""
    if not attributes & TRANSACTIONAL:
        return 0
    if not attributes & CONTROL:
        return ROW_TRANSACTIONAL
    at = _marker_type_at(batch) if attributes & DELETE_HORIZON else _MARKER_TYPE_AT
    aborts = batch[at : at + 2] == b"\0\0"
    return ROW_TRANSACTIONAL | ROW_CONTROL | (ROW_ABORT if aborts else 0)


def _marker_type_at(batch: bytes | bytearray | memoryview) -> int:
    """The position of a marker's type, after a timestamp delta of any length."""
    try:
        _, at = read_varint(batch, BATCH_HEADER_SIZE)
        _, at = read_varint(batch, at + 1)
    except (Malformed, IndexError):
        return len(batch)
    return at + 4  # after the offset delta, the key's length and version


def group_size(row: IndexRow) -> int:
    """The number of following entries that are in the log together with this one; see above."""
    if row.org_id or row.producer_id != _NO_PRODUCER:
        return 0
    return max(0, row.base_sequence)


def encode_row(row: IndexRow) -> bytes:
    """The row's 96 bytes."""
    body = _ROW.pack(*row)
    return body + _CRC.pack(crc32c(body))


def encode_rows(rows: Iterable[IndexRow]) -> bytes:
    """The adjacent bytes of the rows."""
    pack, pack_crc = _ROW.pack, _CRC.pack
    encoded: list[bytes] = []
    for row in rows:
        body = pack(*row)
        encoded += (body, pack_crc(crc32c(body)))
    return b"".join(encoded)


def decode_row(data: bytes | bytearray | memoryview, at: int = 0) -> IndexRow:
    """Verify and read a row.

    Raises:
        Malformed: cut short, or another CRC.
    """
    if len(data) - at < INDEX_ROW_SIZE:
        raise Malformed("an index row is cut short")
    body = data[at : at + ROW_CRC_AT]
    if _CRC.unpack_from(data, at + ROW_CRC_AT)[0] != crc32c(body):
        raise Malformed("an index row does not match its CRC")
    return IndexRow(*_ROW.unpack_from(body))
