"""Message sets, formats 0 and 1, which clients before Kafka 0.11 produce and fetch.

A message, big-endian:

    offset size field
         0    8 offset
         8    4 length of everything after this field
        12    4 CRC-32 of everything after this field
        16    1 magic, 0 or 1
        17    1 attributes: bits 0-2 compression, 3 timestamp type (magic 1)
              8 timestamp, ms (magic 1 only)
              4 length of the key, -1: null; the key
              4 length of the value, -1: null; the value

The value of a compressed message is a message set of uncompressed messages. Their offsets are
absolute with magic 0. With magic 1 they are relative, and the outer message has the absolute
offset of the last one (KIP-31). Offsets from a producer have no meaning.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from quafka_proto.compression import DECOMPRESSED_LIMIT, Codec, TooLarge, decompress, mend_lz4
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.message import Buffer
from quafka_proto.record_codec import PAUSE_RECORDS, Record, build_batch, iter_records
from quafka_proto.records import CONTROL, LOG_APPEND_TIME, read_header

_PREFIX = struct.Struct(">qiI")
_SUMMED = struct.Struct(">bb")
_LENGTH = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_UNSUMMED_LENGTH = 12  # offset and length, which the length field excludes
_CRC_SIZE = 4
_CODEC_MASK, _APPEND_TIME = 0x07, 0x08
_NO_TIMESTAMP = -1
_LAST_TIMESTAMP = 1 << 62  # so that the difference of any two fits 64 bits
_OFFSETS_OF_A_BATCH = 1 << 31
_NOT_ALONE = "a compressed message beside another message"


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK

    def record(self, offset: int) -> Record:
        key, value = self.key, self.value
        return Record(
            offset,
            self.timestamp,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            [],
        )


# --- from old producers ---------------------------------------------------------------------


def to_batch(
    message_set: Buffer,
    limit: int = DECOMPRESSED_LIMIT,
    pause: Callable[[], None] | None = None,
) -> bytearray:
    """The message set of an old producer as one batch of format 2 with base offset 0.

    As in Kafka, the set is either one compressed message, which becomes a batch of the same
    compression, or uncompressed messages. Every CRC is checked. Messages of magic 0 get the
    timestamp -1, none. A compressed message may decompress to `limit` bytes, and needs twice as
    much memory. `pause` is called after every few hundred messages.

    Raises:
        BatchError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT (another format),
            UNSUPPORTED_COMPRESSION_TYPE (zstd is not in these formats), INVALID_TIMESTAMP,
            INVALID_RECORD (no message, or a compressed message next to others or within another),
            MESSAGE_TOO_LARGE (above the limit).
    """
    messages = _messages(memoryview(message_set))
    first = next(messages, None)
    if first is None:
        raise BatchError(ErrorCode.INVALID_RECORD, "the request has no records")
    if first.codec == Codec.NONE:
        plain = _uncompressed(chain([first], messages))
        return build_batch(map(_produced, _pausing(plain, pause)))
    if next(messages, None) is not None:
        raise BatchError(ErrorCode.INVALID_RECORD, _NOT_ALONE)
    inner = _unwrapped(first, limit)
    packed = _pausing(_inner_messages(first, inner), pause)
    return build_batch(map(_produced, packed), codec=first.codec)


def _pausing(messages: Iterator[_Message], pause: Callable[[], None] | None) -> Iterator[_Message]:
    for number, message in enumerate(messages, 1):
        if pause is not None and not number % PAUSE_RECORDS:
            pause()
        yield message


def _uncompressed(messages: Iterator[_Message]) -> Iterator[_Message]:
    for message in messages:
        if message.codec != Codec.NONE:
            raise BatchError(ErrorCode.INVALID_RECORD, _NOT_ALONE)
        yield message


def iter_messages(message_set: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
    """The messages of a set for a consumer: decompressed, with absolute offsets.

    Raises:
        BatchError: as `to_batch`, except that a set may be empty, and may have compressed messages
            next to others.
    """
    for message in _messages(memoryview(message_set)):
        if message.codec == Codec.NONE:
            yield message.record(message.offset)
            continue
        data = _unwrapped(message, limit)
        limit -= len(data)
        base = 0
        if message.magic > 0:
            base = message.offset - max(inner.offset for inner in _inner_messages(message, data))
        for inner in _inner_messages(message, data):
            if message.attributes & _APPEND_TIME:
                inner = inner._replace(timestamp=message.timestamp)
            yield inner.record(base + inner.offset)


def _produced(message: _Message) -> Record:
    if message.attributes & _APPEND_TIME:
        raise BatchError(ErrorCode.INVALID_TIMESTAMP, "producers must not set LogAppendTime")
    if not _NO_TIMESTAMP <= message.timestamp < _LAST_TIMESTAMP:
        raise BatchError(
            ErrorCode.INVALID_TIMESTAMP, f"{message.timestamp} is not a valid timestamp"
        )
    return message.record(message.offset)


def _messages(data: memoryview) -> Iterator[_Message]:
    at = 0
    while at < len(data):
        try:
            offset, length, crc = _PREFIX.unpack_from(data, at)
            start, end = at + _PREFIX.size, at + _UNSUMMED_LENGTH + length
            if length < _CRC_SIZE + _SUMMED.size or end > len(data):
                raise BatchError(
                    ErrorCode.CORRUPT_MESSAGE, f"a message of {length} bytes does not fit"
                )
            yield _message(offset, crc, data[start:end])
        except struct.error as e:
            raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"a message is cut short: {e}") from e
        at = end


def _message(offset: int, crc: int, data: memoryview) -> _Message:
    """The message with this offset and CRC, whose other fields are in `data`."""
    magic, attributes = _SUMMED.unpack_from(data)
    if magic not in (0, 1):
        raise BatchError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"format {magic} in a message set"
        )
    if zlib.crc32(data) != crc:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "a message's CRC does not match")
    at = _SUMMED.size
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(data, at)
        at += _TIMESTAMP.size
    else:
        attributes &= _CODEC_MASK
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    if at != len(data):
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "a message does not match its length field")
    return _Message(offset, magic, attributes, timestamp, key, value)


def _read_bytes(data: memoryview, at: int) -> tuple[memoryview | None, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if size == -1:
        return None, at
    if not 0 <= size <= len(data) - at:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"a key or value of {size} bytes")
    return data[at : at + size], at + size


def _unwrapped(message: _Message, limit: int) -> memoryview:
    """The decompressed message set in a compressed message."""
    if message.codec not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise BatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression type {message.codec} in format {message.magic}",
        )
    if message.value is None:
        raise BatchError(ErrorCode.INVALID_RECORD, "a compressed message has no value")
    mend = message.codec == Codec.LZ4 and message.magic == 0
    data = mend_lz4(message.value) if mend else message.value
    try:
        inner = decompress(message.codec, data, limit)
    except TooLarge as e:
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from e
    except Malformed as e:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
    if not inner:
        raise BatchError(ErrorCode.INVALID_RECORD, "a compressed message has no messages")
    return memoryview(inner)


def _inner_messages(outer: _Message, data: memoryview) -> Iterator[_Message]:
    for message in _messages(data):
        if message.codec != Codec.NONE:
            raise BatchError(ErrorCode.INVALID_RECORD, "compression within compression")
        if message.magic != outer.magic:
            raise BatchError(
                ErrorCode.INVALID_RECORD, f"format {message.magic} within format {outer.magic}"
            )
        yield message


# --- from a broker's log --------------------------------------------------------------------


def stored_batch(messages: Buffer, limit: int = DECOMPRESSED_LIMIT) -> bytearray:
    """Messages of a broker's log as one batch of format 2, with the same offsets and timestamps.

    `messages` are one compressed message, which becomes a batch of the same compression, or
    uncompressed messages in the order of their offsets, which may have gaps. A compressed message
    may decompress to `limit` bytes, and needs twice as much memory.

    Raises:
        BatchError: CORRUPT_MESSAGE, UNSUPPORTED_FOR_MESSAGE_FORMAT (another format),
            UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD or MESSAGE_TOO_LARGE.
    """
    outer = list(_messages(memoryview(messages)))
    if not outer or (len(outer) > 1 and any(message.codec for message in outer)):
        raise BatchError(ErrorCode.INVALID_RECORD, _NOT_ALONE if outer else "no message")
    times = {m.timestamp if m.attributes & _APPEND_TIME else None for m in outer}
    records = list(iter_messages(messages, limit))
    offsets = [record.offset for record in records]
    if offsets[-1] != outer[-1].offset or not _ascending(offsets):
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, "the messages' offsets do not ascend")
    return build_batch(
        records,
        offsets[0],
        codec=outer[0].codec,
        keep_offsets=True,
        append_time=times.pop() if len(times) == 1 else None,
    )


def _ascending(offsets: list[int]) -> bool:
    return (
        offsets[0] >= 0
        and offsets[-1] - offsets[0] < _OFFSETS_OF_A_BATCH
        and all(after > before for before, after in pairwise(offsets))
    )


# --- for old consumers ----------------------------------------------------------------------


def from_batches(
    batches: Sequence[Buffer],
    magic: int,
    from_offset: int,
    max_bytes: int,
    limit: int = DECOMPRESSED_LIMIT,
    pause: Callable[[], None] | None = None,
) -> bytes:
    """Stored batches as a message set of `magic` 0 (Fetch 0 and 1) or 1 (Fetch 2 and 3).

    The set starts at `from_offset` and has at most `max_bytes`, but at least one message, if the
    batches have one. Messages are uncompressed, and so have their own offsets. Headers are dropped,
    and with magic 0 timestamps, too. Control records are left out: if batches yield an empty set,
    the next offset to read is the one after the last batch. `pause` is as in `iter_records`.

    The set ends before a batch that cannot be converted. If that batch is the first, its error is
    raised.

    Raises:
        BatchError: UNSUPPORTED_COMPRESSION_TYPE: zstd, which such old clients do not get (KIP-110);
            CORRUPT_MESSAGE: a batch whose records do not match its header, or that decompresses to
            more than `limit` bytes.
    """
    out: list[bytes] = []
    room = max_bytes
    try:
        for batch in batches:
            for message in _converted(batch, magic, from_offset, limit, pause):
                if out and len(message) > room:
                    return b"".join(out)
                out.append(message)
                room -= len(message)
    except BatchError:
        if not out:
            raise
    return b"".join(out)  # a join of bytes does not hold the interpreter


def _converted(
    batch: Buffer,
    magic: int,
    from_offset: int,
    limit: int,
    pause: Callable[[], None] | None,
) -> Iterator[bytes]:
    """The batch's messages from the offset on."""
    header = read_header(batch)
    if header.attributes & CONTROL or header.last_offset < from_offset:
        return
    if header.codec == Codec.ZSTD:
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in message format {magic}")
    append_time = magic == 1 and header.attributes & LOG_APPEND_TIME
    attributes = _APPEND_TIME if append_time else 0
    try:
        for record in iter_records(batch, limit, pause):
            if record.offset >= from_offset:
                yield encode_message(record, magic, attributes)
    except Malformed as e:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """One message, without the record's headers and, with magic 0, without its timestamp."""
    fields = [_SUMMED.pack(magic, attributes)]
    if magic == 1:
        fields.append(_TIMESTAMP.pack(record.timestamp))
    for content in (record.key, record.value):
        if content is None:
            fields.append(_LENGTH.pack(-1))
        else:
            fields += _LENGTH.pack(len(content)), content
    summed = b"".join(fields)
    prefix = _PREFIX.pack(record.offset, len(summed) + _CRC_SIZE, zlib.crc32(summed))
    return b"".join((prefix, summed))
