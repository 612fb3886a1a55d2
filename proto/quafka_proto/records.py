"""Record batches, format version 2: the unit of producing, storing and fetching.

The header of a batch, 61 bytes, big-endian:

    offset size field
         0    8 base offset                 (patched by the broker; outside the CRC)
         8    4 length of everything after this field
        12    4 partition leader epoch      (patched by the broker; outside the CRC)
        16    1 magic, 2
        17    4 CRC-32C of everything after this field
        21    2 attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                 6 the base timestamp is the delete horizon of a compacted batch (KIP-534)
        23    4 last offset delta
        27    8 base timestamp, ms
        35    8 max timestamp, ms
        43    8 producer id, -1: none
        51    2 producer epoch
        53    4 base sequence
        57    4 record count
        61      records, compressed according to the attributes
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple, cast

import google_crc32c

from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.layout import Layout
from quafka_proto.message import Buffer

BATCH_HEADER = Layout(
    base_offset="q",
    length="i",
    leader_epoch="i",
    magic="b",
    crc="I",
    attributes="h",
    last_offset_delta="i",
    base_timestamp="q",
    max_timestamp="q",
    producer_id="q",
    producer_epoch="h",
    base_sequence="i",
    record_count="i",
)
BATCH_HEADER_SIZE = BATCH_HEADER.size
PATCHED_SIZE = BATCH_HEADER.end("crc")
"""The leading bytes outside the batch's CRC, including the CRC field itself."""
LEAST_RECORD = 7
"""Bytes of the smallest record: a length and six fields of one byte."""
LENGTH_FROM = BATCH_HEADER.end("length")
"""The leading bytes that the length field excludes."""
MAGIC = 2
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

# The library has no type hints, and accepts only bytes.
_extend = cast("Callable[[int, bytes], int]", getattr(google_crc32c, "extend"))  # noqa: B009

_HEADER = BATCH_HEADER.whole
_LENGTH_AND_MAGIC = BATCH_HEADER.part("length", "magic")
_OFFSETS = BATCH_HEADER.part("base_offset", "last_offset_delta")
_BASE_OFFSET = BATCH_HEADER.part("base_offset")
_CLAIMS = BATCH_HEADER.part("attributes", "record_count")
_CRC_AT = BATCH_HEADER.offset("crc")
_ATTRIBUTES_AT = BATCH_HEADER.offset("attributes")
_MAGIC_AT = BATCH_HEADER.offset("magic")
_MAX_TIMESTAMP_AT = BATCH_HEADER.offset("max_timestamp")
_LEADER_EPOCH_AT = BATCH_HEADER.offset("leader_epoch")
_LEADER_EPOCH = struct.Struct(">i")
_LAST_COMPRESSION = 4  # none, gzip, snappy, lz4, zstd


class BatchHeader(NamedTuple):
    """A batch's header; `length` is the batch's whole size in bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The compression type."""
        return self.attributes & COMPRESSION_MASK

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed it."""
        return self.base_offset + self.last_offset_delta


def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C of `data`, continuing from `crc`."""
    return _extend(crc, data if isinstance(data, bytes) else bytes(data))


def read_header(batch: Buffer) -> BatchHeader:
    """Read the header of a batch. Checks only that there are enough bytes.

    Raises:
        Malformed: fewer than 61 bytes.
    """
    if len(batch) < BATCH_HEADER_SIZE:
        raise Malformed(f"a record batch of {len(batch)} bytes has no header")
    base, length, *rest = _HEADER.unpack_from(batch)
    return BatchHeader(base, length + LENGTH_FROM, *rest)


def claims(batch: Buffer) -> tuple[int, int]:
    """The codec and the number of records that a batch claims, of at least 61 bytes."""
    attributes, count = _CLAIMS.unpack_from(batch)
    return attributes & COMPRESSION_MASK, count


def packed_records(batch: Buffer) -> int:
    """The number of records that a compressed batch claims; 0 for any other bytes."""
    if (
        len(batch) < BATCH_HEADER_SIZE
        or batch[_MAGIC_AT] != MAGIC
        or not batch[_ATTRIBUTES_AT + 1] & COMPRESSION_MASK
    ):
        return 0
    _, count = claims(batch)
    return max(0, count)


def is_transactional(batch: Buffer) -> bool:
    """Whether a batch belongs to a transaction. False for fewer bytes than a header.

    False for message sets, too: they have a timestamp where a batch has its attributes.
    """
    return (
        len(batch) >= BATCH_HEADER_SIZE
        and batch[_MAGIC_AT] == MAGIC
        and bool(batch[_ATTRIBUTES_AT + 1] & TRANSACTIONAL)
    )


def base_offset(batch: Buffer) -> int:
    """The offset of a batch's first record."""
    offset: int = _BASE_OFFSET.unpack_from(batch)[0]
    return offset


def end_offset(batch: Buffer) -> int:
    """The offset after a batch's last record."""
    base, delta = _OFFSETS.unpack_from(batch)
    end: int = base + delta + 1
    return end


def whole_batch(records: Buffer) -> BatchHeader:
    """The header of the single batch that a producer may send for a partition.

    Checks that the bytes are one batch, of format 2, and of the length in its header.
    `checked_part` checks the rest.

    Raises:
        BatchError: CORRUPT_MESSAGE or INVALID_RECORD.
    """
    size = len(records)
    if size < _LENGTH_AND_MAGIC.size:
        raise BatchError(ErrorCode.INVALID_RECORD, f"a record batch of {size} bytes")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(records)
    if magic in (0, 1):
        raise BatchError(ErrorCode.INVALID_RECORD, f"message format {magic} instead of 2")
    if magic != MAGIC or length + LENGTH_FROM < BATCH_HEADER_SIZE:
        raise BatchError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of format {magic} and length {length}"
        )
    if length + LENGTH_FROM > size:
        raise BatchError(ErrorCode.INVALID_RECORD, "the record batch is cut short")
    if length + LENGTH_FROM < size:
        raise BatchError(
            ErrorCode.INVALID_RECORD, "a produce has one record batch for each partition"
        )
    return read_header(records)


def checked_part(records: Buffer, header: BatchHeader) -> bytes:
    """The bytes of a `whole_batch` from PATCHED_SIZE on, with a correct CRC and a valid header.

    `record_check` checks the records.

    Raises:
        BatchError: CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP or
            INVALID_RECORD.
    """
    part = bytes(memoryview(records)[PATCHED_SIZE:])
    if crc32c(part) != header.crc:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match")
    if header.base_offset:
        raise BatchError(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, not 0")
    _check_claims(header)
    return part


def split_batches(records: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Split batches of our own internal topics, and check their headers and CRCs.

    Raises:
        BatchError: with CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT (an older format),
            UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP or INVALID_RECORD.
    """
    view = memoryview(records)
    batches: list[tuple[BatchHeader, memoryview]] = []
    at = 0
    while at < len(view):
        rest = view[at:]
        header = _checked(rest)
        batches.append((header, rest[: header.length]))
        at += header.length
    if not batches:
        raise BatchError(ErrorCode.INVALID_RECORD, "the request has no records")
    return batches


def _checked(rest: memoryview) -> BatchHeader:
    if len(rest) < _LENGTH_AND_MAGIC.size:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {len(rest)} bytes")
    length, magic = _LENGTH_AND_MAGIC.unpack_from(rest)
    if magic != MAGIC:
        raise BatchError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"message format {magic} is not stored here"
        )
    if not BATCH_HEADER_SIZE <= length + LENGTH_FROM <= len(rest):
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"batch length {length} does not fit")
    header = read_header(rest)
    if crc32c(rest[PATCHED_SIZE : header.length]) != header.crc:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match")
    _check_claims(header)
    return header


def _check_claims(header: BatchHeader) -> None:
    """Check a producer's header beyond its checksum, like Kafka's LogValidator."""
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records claim {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & COMPRESSION_MASK > _LAST_COMPRESSION:
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression type")
    if header.attributes & CONTROL:
        raise BatchError(ErrorCode.INVALID_RECORD, "producers must not write control batches")
    if header.attributes & LOG_APPEND_TIME:
        raise BatchError(ErrorCode.INVALID_TIMESTAMP, "producers must not set LogAppendTime")


def rebase(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set a batch's offset and leader epoch in place. The CRC does not cover these fields."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def assemble(header: BatchHeader, body: Buffer) -> bytearray:
    """A batch of this header and these already compressed records.

    Computes length, magic and CRC, and ignores the header's.
    """
    batch = bytearray(BATCH_HEADER_SIZE)
    length = BATCH_HEADER_SIZE - LENGTH_FROM + len(body)
    _HEADER.pack_into(batch, 0, *header._replace(length=length, magic=MAGIC, crc=0))
    batch += body
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[PATCHED_SIZE:]))
    return batch


def stamp(batch: Buffer, max_timestamp: int, *, append_time: bool) -> bytearray:
    """A copy of a batch with another max timestamp, without a delete horizon, with a correct CRC.

    With `append_time` it is the timestamp of all records (LogAppendTime).
    """
    stamped = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", stamped, _ATTRIBUTES_AT)
    attributes = attributes & ~DELETE_HORIZON | (LOG_APPEND_TIME if append_time else 0)
    struct.pack_into(">h", stamped, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">q", stamped, _MAX_TIMESTAMP_AT, max_timestamp)
    struct.pack_into(">I", stamped, _CRC_AT, crc32c(memoryview(stamped)[PATCHED_SIZE:]))
    return stamped


def without_transaction(batch: Buffer) -> tuple[BatchHeader, memoryview]:
    """A non-transactional copy of a transactional batch, with its header and a correct CRC."""
    plain = bytearray(batch)
    (attributes,) = struct.unpack_from(">h", plain, _ATTRIBUTES_AT)
    struct.pack_into(">h", plain, _ATTRIBUTES_AT, attributes & ~TRANSACTIONAL)
    struct.pack_into(">I", plain, _CRC_AT, crc32c(memoryview(plain)[PATCHED_SIZE:]))
    return read_header(plain), memoryview(plain)


def empty_batch(base_offset: int, offsets: int, leader_epoch: int = 0) -> bytes:
    """A batch of `offsets` offsets without records, as left by compaction in Kafka.

    Consumers skip it.
    """
    checked = struct.pack(">hiqqqhii", 0, offsets - 1, -1, -1, -1, -1, -1, 0)
    length = BATCH_HEADER_SIZE - LENGTH_FROM
    return (
        struct.pack(">qiibI", base_offset, length, leader_epoch, MAGIC, crc32c(checked)) + checked
    )
