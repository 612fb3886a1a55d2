"""Builds record batches and iterates over their records; `record_check` checks records.

    attributes, unused             1 byte
    timestamp - base timestamp     varint
    offset - base offset           varint
    key, value                     varint length, -1: null; bytes
    headers                        varint count; each a name and a value like key and value

preceded by a varint of the total length. Varints are zigzag, of up to 64 bits. The records of a
compressed batch are compressed together.

A control batch has one record, a marker, whose key and value are (KIP-98):

    key    version int16, type int16 (0 abort, 1 commit; others belong to brokers)
    value  version int16, coordinator epoch int32
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from quafka_proto.compression import DECOMPRESSED_LIMIT, PIECE, Codec, compress, copied, decompress
from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer
from quafka_proto.primitives import read_varint, write_varint
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    CONTROL,
    LEAST_RECORD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    read_header,
)

_TIMESTAMP_RANGE = 1 << 63
_GARBLED = (IndexError,)
PAUSE_RECORDS = 256
"""Records that are read or converted at a time, in about half a millisecond."""


class Record(NamedTuple):
    """One record. Key, value and header values may be null; header names may repeat.

    A header name that is not UTF-8 has replacement characters, as in the Java clients.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


# --- building -------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record],
    base_offset: int = 0,
    *,
    codec: int = Codec.NONE,
    keep_offsets: bool = False,
    append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Build a batch of at least one record, with the offsets from `base_offset` on.

    With `keep_offsets` the records keep their own offsets, which must ascend from `base_offset` and
    may have gaps, as after compaction. `append_time` is the time of every record, as set by a
    broker under LogAppendTime.
    """
    body = bytearray()
    count, delta, first, newest = 0, -1, 0, 0
    for record in records:
        if not count:
            first = newest = record.timestamp
        newest = max(newest, record.timestamp)
        count += 1
        delta = record.offset - base_offset if keep_offsets else delta + 1
        encoded = _encode_record(record, record.timestamp - first, delta)
        write_varint(body, len(encoded))
        body += encoded
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME if append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0),
        last_offset_delta=delta,
        base_timestamp=first,
        max_timestamp=newest if append_time is None else append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    return assemble(header, compress(codec, body) if codec else body)


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytearray:
    out = bytearray(1)  # attributes, unused
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for name, value in record.headers:
        _write_bytes(out, name.encode())
        _write_bytes(out, value)
    return out


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
        return
    write_varint(out, len(value))
    out += value


# --- iterating ------------------------------------------------------------------------------


def iter_records(
    batch: Buffer, limit: int = DECOMPRESSED_LIMIT, pause: Callable[[], None] | None = None
) -> Iterator[Record]:
    """The records of one batch, which may be compressed. The CRC is not checked.

    In a batch with LogAppendTime every record has the batch's max timestamp. At most `limit` bytes
    are decompressed, in up to twice as much memory. `pause` is called after every few hundred
    records, and between the pieces of large copies: a thread releases the interpreter there.

    Raises:
        TooLarge: the records exceed `limit` bytes.
        Malformed: cut short, garbled, or records that differ from the header.
    """
    header = read_header(batch)
    return _decoded(header, _body(batch, header, limit, pause), pause)


def _body(
    batch: Buffer, header: BatchHeader, limit: int, pause: Callable[[], None] | None
) -> bytes:
    """The uncompressed records of a batch with this header."""
    if not BATCH_HEADER_SIZE <= header.length <= len(batch):
        raise Malformed(f"a batch of {len(batch)} bytes claims {header.length}")
    packed = memoryview(batch)[BATCH_HEADER_SIZE : header.length]
    data = copied(decompress(header.codec, packed, limit), pause)
    if not 0 <= header.record_count * LEAST_RECORD <= len(data):
        raise Malformed(f"{len(data)} bytes are not {header.record_count} records")
    return data


def _decoded(
    header: BatchHeader, data: bytes, pause: Callable[[], None] | None
) -> Iterator[Record]:
    """Read fields at the positions that their lengths give; a record's end shows if they fit."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    last = header.last_offset_delta
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    at = 0
    try:
        for number in range(header.record_count):
            if pause is not None and number % PAUSE_RECORDS == PAUSE_RECORDS - 1:
                pause()
            size, at = read_varint(data, at)
            end = at + size
            timestamp, at = read_varint(data, at + 1)
            delta = data[at]
            if delta < 0x80:
                delta, at = delta >> 1 ^ -(delta & 1), at + 1
            else:
                delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at, pause)
            value, at = _read_bytes(data, at, pause)
            if data[at]:
                headers, at = _read_headers(data, at)
            else:
                headers, at = [], at + 1
            if at != end:
                raise Malformed("a record does not match its length field")
            timestamp += base_timestamp
            if not (0 <= delta <= last and -_TIMESTAMP_RANGE <= timestamp < _TIMESTAMP_RANGE):
                raise Malformed(f"a record at offset delta {delta} and time {timestamp}")
            if append_time is not None:
                timestamp = append_time
            yield Record(base_offset + delta, timestamp, key, value, headers)
    except _GARBLED as e:
        raise Malformed(f"a record is cut short or garbled: {e}") from e
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes follow the last record")


def _read_bytes(
    data: bytes, at: int, pause: Callable[[], None] | None = None
) -> tuple[bytes | None, int]:
    size = data[at]
    if size < 0x80:
        size = size >> 1 ^ -(size & 1)
        at += 1
    else:
        size, at = read_varint(data, at)
    if size >= 0:
        end = at + size
        if size > PIECE:
            return copied(memoryview(data)[at:end], pause), end
        return data[at:end], end
    if size != -1:
        raise Malformed(f"a key, value or header of {size} bytes")
    return None, at


def _read_headers(data: bytes, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, at = read_varint(data, at)
    if not 0 <= 2 * count <= len(data) - at:
        raise Malformed(f"a record claims {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at)
        if name is None:
            raise Malformed("a record header has no name")
        value, at = _read_bytes(data, at)
        headers.append((name.decode(errors="replace"), value))
    return headers, at


_HEADERS_LIMIT = 16 << 10


def first_headers(batch: Buffer) -> list[tuple[str, bytes | None]]:
    """The headers of a batch's first record, without reading the rest of the batch.

    None if the batch is compressed or has no such record.
    """
    view = memoryview(batch)
    try:
        if read_header(view).codec:
            return []
        size, at = read_varint(view, BATCH_HEADER_SIZE)
        end = at + size
        _, at = read_varint(view, at + 1)  # the timestamp, after the attributes
        _, at = read_varint(view, at)
        at = _skip_bytes(view, _skip_bytes(view, at))
        if not view[at] or end > len(view) or end - at > _HEADERS_LIMIT:
            return []
        return _read_headers(bytes(view[at:end]), 0)[0]
    except (Malformed, *_GARBLED):
        return []


def _skip_bytes(data: memoryview, at: int) -> int:
    size, at = read_varint(data, at)
    if size < -1:
        raise Malformed(f"a key or value of {size} bytes")
    return at + max(size, 0)


# --- control records ------------------------------------------------------------------------


class MarkerType(IntEnum):
    """The two outcomes of a transaction."""

    ABORT = 0
    COMMIT = 1


class TransactionMarker(NamedTuple):
    """The record with which a transaction coordinator ends a transaction in a partition."""

    type: MarkerType
    coordinator_epoch: int


_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


def build_marker(
    marker: TransactionMarker, offset: int, timestamp: int, producer_id: int, producer_epoch: int
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    key = _MARKER_KEY.pack(0, marker.type)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(offset, timestamp, key, value, [])],
        offset,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_marker(record: Record) -> TransactionMarker | None:
    """The marker in a record of a control batch; None if the record is not for a transaction.

    Later versions only add fields to version 0 (KIP-98).

    Raises:
        Malformed: cut short, or of a version below 0.
    """
    try:
        version, kind = _MARKER_KEY.unpack_from(record.key or b"")
        if version < 0:
            raise Malformed(f"a control record of version {version}")
        if kind not in (MarkerType.ABORT, MarkerType.COMMIT):
            return None
        version, epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error as e:
        raise Malformed("a control record is cut short") from e
    if version < 0:
        raise Malformed(f"a transaction marker of version {version}")
    return TransactionMarker(MarkerType(kind), epoch)
