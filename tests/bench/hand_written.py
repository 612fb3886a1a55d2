"""A Kafka codec as one would write it by hand for four messages in one version each.

It does what a server must: it checks every count against the bytes that are there and skips
tagged fields. It is the measure of what a compiled description costs (tests/bench/codec.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_FETCH = struct.Struct(">iiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCH_RESPONSE = struct.Struct(">ihi")
_PARTITION_DATA = struct.Struct(">ihqqq")
_PRODUCE = struct.Struct(">hi")
_INT = struct.Struct(">i")
_METADATA_PARTITION = struct.Struct(">hiii")


class TooShort(ValueError):  # noqa: N818
    """Not a message."""


# --- Fetch 16, request --------------------------------------------------------------------------


@dataclass(slots=True)
class Partition:
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


@dataclass(slots=True)
class Topic:
    topic_id: bytes
    partitions: list[Partition]


@dataclass(slots=True)
class Fetch:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[Topic]
    rack_id: str


def decode_fetch(data: bytes) -> Fetch:
    wait, least, most, isolation, session, epoch = _FETCH.unpack_from(data)
    count, at = _count(data, _FETCH.size, 17)
    topics: list[Topic] = []
    for _ in range(count):
        topic_id = data[at : at + 16]
        many, at = _count(data, at + 16, _FETCH_PARTITION.size)
        partitions: list[Partition] = []
        for _ in range(many):
            partitions.append(Partition(*_FETCH_PARTITION.unpack_from(data, at)))
            at += _FETCH_PARTITION.size
            at = _skip_tags(data, at) if data[at] else at + 1
        at = _skip_tags(data, at) if data[at] else at + 1
        topics.append(Topic(topic_id, partitions))
    forgotten, at = _count(data, at, 18)
    if forgotten:
        raise TooShort("forgotten topics are not in what is measured")
    size, at = _count(data, at, 1)
    rack = data[at : at + size].decode()
    at = _skip_tags(data, at + size)
    if at != len(data):
        raise TooShort("trailing bytes")
    return Fetch(wait, least, most, isolation, session, epoch, topics, rack)


# --- Fetch 16, response -------------------------------------------------------------------------


@dataclass(slots=True)
class Data:
    partition: int
    high_watermark: int
    records: Sequence[bytes]
    error_code: int = 0
    log_start_offset: int = 0


def encode_fetch_response(topic_id: bytes, partitions: list[Data]) -> list[bytes | bytearray]:
    buffers: list[bytes | bytearray] = []
    out = bytearray(_FETCH_RESPONSE.pack(0, 0, 0))
    out.append(2)
    out += topic_id
    _write_count(out, len(partitions))
    for each in partitions:
        out += _PARTITION_DATA.pack(
            each.partition,
            each.error_code,
            each.high_watermark,
            each.high_watermark,
            each.log_start_offset,
        )
        out.append(0)
        out += b"\xff\xff\xff\xff"
        _write_count(out, sum(map(len, each.records)))
        buffers.append(out)
        buffers.extend(each.records)
        out = bytearray(1)
    out += b"\0\0"
    buffers.append(out)
    return buffers


# --- Produce 9, request -------------------------------------------------------------------------


class Produced(NamedTuple):
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[tuple[int, memoryview]]]]


def decode_produce(data: bytes) -> Produced:
    if data[0]:
        raise TooShort("transactional ids are not in what is measured")
    acks, timeout = _PRODUCE.unpack_from(data, 1)
    count, at = _count(data, 1 + _PRODUCE.size, 3)
    view = memoryview(data)
    topics: list[tuple[str, list[tuple[int, memoryview]]]] = []
    for _ in range(count):
        size, at = _count(data, at, 1)
        name = data[at : at + size].decode()
        many, at = _count(data, at + size, 6)
        partitions: list[tuple[int, memoryview]] = []
        for _ in range(many):
            (index,) = _INT.unpack_from(data, at)
            size, at = _count(data, at + 4, 1)
            partitions.append((index, view[at : at + size]))
            at = _skip_tags(data, at + size)
        at = _skip_tags(data, at)
        topics.append((name, partitions))
    if _skip_tags(data, at) != len(data):
        raise TooShort("trailing bytes")
    return Produced(acks, timeout, topics)


# --- Metadata 12, response ----------------------------------------------------------------------


@dataclass(slots=True)
class Leader:
    partition: int
    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]


def encode_metadata(
    host: str, port: int, cluster: str, topic: str, topic_id: bytes, partitions: list[Leader]
) -> bytearray:
    out = bytearray(_INT.pack(0))
    out.append(2)
    out += _INT.pack(0)
    _write_text(out, host)
    out += _INT.pack(port)
    out += b"\0\0"
    _write_text(out, cluster)
    out += _INT.pack(0)
    out.append(2)
    out += b"\0\0"
    _write_text(out, topic)
    out += topic_id
    out.append(0)
    _write_count(out, len(partitions))
    for each in partitions:
        out += _METADATA_PARTITION.pack(0, each.partition, each.leader, each.epoch)
        for nodes in (each.replicas, each.in_sync):
            _write_count(out, len(nodes))
            out += struct.pack(f">{len(nodes)}i", *nodes)
        out += b"\x01\0"
    out += b"\x80\0\0\0\0\0"
    return out


# --- records ------------------------------------------------------------------------------------


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def iterate(batch: bytes) -> Iterator[Record]:
    """The records of an uncompressed batch."""
    base = int.from_bytes(batch[:8], "big")
    (first,) = struct.unpack_from(">q", batch, 27)
    (count,) = struct.unpack_from(">i", batch, 57)
    at = 61
    for _ in range(count):
        size, at = _zigzag(batch, at)
        end = at + size
        timestamp, at = _zigzag(batch, at + 1)
        delta, at = _zigzag(batch, at)
        key, at = _bytes(batch, at)
        value, at = _bytes(batch, at)
        many, at = _zigzag(batch, at)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(many):
            name, at = _bytes(batch, at)
            content, at = _bytes(batch, at)
            headers.append(((name or b"").decode(), content))
        if at != end:
            raise TooShort("a record is not as long as it says")
        yield Record(base + delta, first + timestamp, key, value, headers)


def validate(batch: bytes) -> None:
    """Every record's lengths and offset."""
    (count,) = struct.unpack_from(">i", batch, 57)
    at = 61
    for expected in range(count):
        size, at = _zigzag(batch, at)
        end = at + size
        _, at = _zigzag(batch, at + 1)
        delta, at = _zigzag(batch, at)
        if delta != expected:
            raise TooShort("offsets are not dense")
        for _ in range(2):
            size, at = _zigzag(batch, at)
            if size > 0:
                at += size
        many, at = _zigzag(batch, at)
        for _ in range(many * 2):
            size, at = _zigzag(batch, at)
            if size > 0:
                at += size
        if at != end:
            raise TooShort("a record is not as long as it says")
    if at != len(batch):
        raise TooShort("bytes follow the last record")


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _zigzag(data, at)
    if size < 0:
        return None, at
    if size > len(data) - at:
        raise TooShort("longer than its record")
    return data[at : at + size], at + size


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise TooShort("a varint of more than ten bytes")
    return (value >> 1) ^ -(value & 1), at


# --- compact arrays and tags --------------------------------------------------------------------


def _count(data: bytes, at: int, least: int) -> tuple[int, int]:
    """A compact count, of items of at least so many bytes."""
    value = data[at]
    at += 1
    if value > 127:
        value, at = _varint(data, at - 1)
    if (value - 1) * least > len(data) - at:
        raise TooShort("more items than bytes")
    return value - 1, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 28:
            raise TooShort("a varint of more than five bytes")


def _skip_tags(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
        if at > len(data):
            raise TooShort("a tag longer than the message")
    return at


def _write_count(out: bytearray, count: int) -> None:
    count += 1
    while count > 127:
        out.append(count & 127 | 128)
        count >>= 7
    out.append(count)


def _write_text(out: bytearray, text: str) -> None:
    data = text.encode()
    _write_count(out, len(data))
    out += data
