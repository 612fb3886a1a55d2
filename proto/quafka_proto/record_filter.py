"""Removes records from batches, for compaction: a batch keeps its bounds.

A batch without some of its records keeps its base offset, last offset delta, producer fields and
codec, so the offsets of the others do not change. Records are copied unchanged, unless the batch
gets a *delete horizon* (KIP-534): the time after which its tombstones, or its transaction marker,
may be removed. Attribute bit 6 means that the base timestamp is the horizon; the records'
timestamps are relative to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from quafka_proto.compression import DECOMPRESSED_LIMIT, compress, decompress
from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer
from quafka_proto.primitives import read_varint, write_varint
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    CONTROL,
    DELETE_HORIZON,
    LEAST_RECORD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)

PAUSE_RECORDS = 256
_NULL = 1  # a length of -1, as a varint


class FoundRecords(NamedTuple):
    """The facts that decide which records of a batch are kept; one item per record in each list.

    Attributes:
        offset_deltas: from the batch's base offset.
        keys: None for records without a key.
        has_values: unset for a tombstone.
    """

    offset_deltas: list[int]
    keys: list[bytes | None]
    has_values: list[bool]


def uncompressed(header: BatchHeader, batch: Buffer, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """The uncompressed records of a whole batch.

    Raises:
        Malformed: the records cannot be decompressed, or exceed `limit` bytes.
    """
    return bytes(decompress(header.codec, memoryview(batch)[BATCH_HEADER_SIZE:], limit))


def find_records(
    header: BatchHeader, data: bytes, pause: Callable[[], None] = lambda: None
) -> FoundRecords:
    """Read the facts of all records in the uncompressed records of a batch.

    `pause` is called after every PAUSE_RECORDS records, which take a quarter of a millisecond.

    Raises:
        Malformed: cut short, garbled, or records that differ from the header.
    """
    _check_count(header, data)
    found = FoundRecords([], [], [])
    add_delta, add_key = found.offset_deltas.append, found.keys.append
    add_has_value = found.has_values.append
    at = 0
    try:
        for number in range(header.record_count):
            if number and not number % PAUSE_RECORDS:
                pause()
            size, at = read_varint(data, at)
            end = at + size
            at += 1  # the unused attributes
            while data[at] >= 0x80:  # the timestamp delta
                at += 1
            delta, at = read_varint(data, at + 1)
            add_delta(delta)
            length = data[at]
            if length < 0x80:
                length, at = length >> 1 ^ -(length & 1), at + 1
            else:
                length, at = read_varint(data, at)
            if length >= 0:
                add_key(data[at : at + length])
                at += length
            else:
                add_key(None)
            add_has_value(data[at] != _NULL)
            if not at < end <= len(data):
                raise Malformed("a record does not match its length field")
            at = end
    except IndexError as e:
        raise Malformed("a record is cut short") from e
    _check_end(at, data)
    return found


def _check_count(header: BatchHeader, data: bytes) -> None:
    if not 0 <= header.record_count * LEAST_RECORD <= len(data):
        raise Malformed(f"{len(data)} bytes are not {header.record_count} records")


def _check_end(at: int, data: bytes) -> None:
    if at != len(data):
        raise Malformed(f"the records end at {at} of {len(data)} bytes")


def _places(header: BatchHeader, data: bytes) -> list[int]:
    """The start of each record, and the end of the last one."""
    _check_count(header, data)
    places = [0]
    at = 0
    try:
        for _ in range(header.record_count):
            size, at = read_varint(data, at)
            at += size
            places.append(at)
    except IndexError as e:
        raise Malformed("a record is cut short") from e
    _check_end(at, data)
    return places


def with_records(
    header: BatchHeader, data: bytes, kept: Sequence[int], horizon: int | None = None
) -> bytearray:
    """The batch with some of its records, at least one, by their numbers, which ascend.

    `data` are all records, uncompressed. `horizon`: a new delete horizon, in ms since the epoch;
    None: unchanged.

    Raises:
        Malformed: the records are garbled.
    """
    places = _places(header, data)
    base, newest = header.base_timestamp, header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME:
        newest = base + max(_timestamp_delta(data, places[number])[0] for number in kept)
    new = header._replace(max_timestamp=newest, record_count=len(kept))
    if horizon is None:
        body = _joined(data, places, kept)
    else:
        body = bytearray()
        for number in kept:
            _append_shifted(body, data, places[number], places[number + 1], base - horizon)
        new = new._replace(base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON)
    return assemble(new, compress(header.codec, body) if header.codec else body)


def _timestamp_delta(data: bytes, start: int) -> tuple[int, int]:
    """A record's timestamp delta, and the position after it."""
    _, at = read_varint(data, start)
    return read_varint(data, at + 1)


def without_records(header: BatchHeader) -> bytearray:
    """The batch without its records, kept for its bounds and its producer."""
    kept = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    newest = header.max_timestamp
    return assemble(header._replace(attributes=kept, base_timestamp=newest, record_count=0), b"")


def delete_horizon(header: BatchHeader) -> int | None:
    """The time from which the batch's tombstones or marker may be removed; None: not set yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _joined(data: bytes, places: Sequence[int], kept: Iterable[int]) -> bytearray:
    """Copy the records unchanged, adjacent ones at once."""
    body = bytearray()
    start = end = 0
    for number in kept:
        if places[number] != end:
            body += data[start:end]
            start = places[number]
        end = places[number + 1]
    body += data[start:end]
    return body


def _append_shifted(body: bytearray, data: bytes, start: int, end: int, by: int) -> None:
    """Append a record with another timestamp delta."""
    _, attributes = read_varint(data, start)
    delta, rest = _timestamp_delta(data, start)
    shifted = bytearray(data[attributes : attributes + 1])
    write_varint(shifted, delta + by)
    write_varint(body, len(shifted) + end - rest)
    body += shifted
    body += data[rest:end]
