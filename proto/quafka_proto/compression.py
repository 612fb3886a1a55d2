"""The compression of record batches and message sets: gzip, snappy, lz4 and zstd.

For any bytes, decompression allocates no more than the caller's limit (zstd's window may take as
much again), and returns the data or raises Malformed. It trusts no claimed size: streams are
written into a buffer of fixed size, and a snappy block may claim no more than its length allows.

Snappy has two framings in Kafka: a bare block (librdkafka), and blocks of 32 KiB after a header of
16 bytes, as written by xerial's Java library. Clients with snappy read both, but old ones read only
the second, so this module writes the second. Lz4 is the frame format with independent blocks, the
only kind that Java's reader accepts; before magic 2 the checksum in its header could be wrong
(KAFKA-3160).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from quafka_proto.errors import Malformed
from quafka_proto.message import Buffer

DECOMPRESSED_LIMIT = 64 << 20
"""The default limit of a batch's decompressed size, in bytes."""


PIECE = 512 << 10
"""Bytes that are copied at a time, in about a quarter of a millisecond."""
_ZEROED = 1 << 20


class Codec(IntEnum):
    """The compression types, bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLarge(Malformed):
    """The data decompresses to more than the limit."""


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """Decompress data to at most `limit` bytes; with codec 0, returns `data` itself.

    Raises:
        TooLarge: the data exceed `limit`.
        Malformed: not data of this codec, cut short, or an unknown codec.
    """
    if codec == Codec.NONE:
        if len(data) > limit:
            raise _too_large(limit)
        return data
    if codec == Codec.SNAPPY:
        return _snappy(memoryview(data), limit)
    return _stream(codec, data, limit)


def decompress_into(codec: int, data: Buffer, out: memoryview | bytearray) -> int:
    """Decompress to the front of `out`. Returns the size; bytes after it may also change.

    Raises:
        TooLarge: the data do not fit.
        Malformed: not data of this codec, cut short, or an unknown codec.
    """
    if codec == Codec.NONE:
        if len(data) > len(out):
            raise _too_large(len(out))
        out[: len(data)] = data
        return len(data)
    if codec == Codec.SNAPPY:
        return _snappy_into(_snappy_blocks(memoryview(data)), memoryview(out))
    if codec not in _READ_INTO:
        raise Malformed(f"compression type {codec} is not known")
    try:
        return _READ_INTO[codec](data, out)
    except cramjam.DecompressionError as e:
        if _FULL in str(e):
            raise _too_large(len(out)) from e
        raise Malformed(f"the {Codec(codec).name.lower()} data are garbled: {e}") from e


def memory(size: int) -> bytearray | memoryview:
    """Allocate memory of `size` zeros.

    If it is large, the kernel zeroes its pages at the first write, which happens in C code without
    the interpreter: a bytearray of 64 MiB would block all threads for 50 ms.
    """
    return bytearray(size) if size <= _ZEROED else memoryview(mmap.mmap(-1, size))


def copied(data: Buffer, pause: Callable[[], None] | None = None) -> bytes:
    """Copy data in pieces; calls `pause` between them, so that other threads may run.

    A join of bytes, unlike a copy of other memory, does not hold the interpreter.
    """
    view = memoryview(data)
    if len(view) <= PIECE:
        return bytes(view)
    pieces: list[bytes] = []
    for at in range(0, len(view), PIECE):
        if at and pause is not None:
            pause()
        pieces.append(bytes(view[at : at + PIECE]))
    return b"".join(pieces)


def compress(codec: int, data: Buffer) -> bytes:
    """Compress data, readable by every client since the introduction of the codec.

    Raises:
        ValueError: an unknown codec.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec not in _COMPRESS:
        raise ValueError(f"compression type {codec} is not known")
    return _COMPRESS[codec](data)


# --- streams --------------------------------------------------------------------------------

_READ_INTO: dict[int, Callable[[Any, Any], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
_FULL = "failed to write whole buffer"  # the library's error if the output does not fit
_FIRST_SIZE = 16 << 10
_USUAL_RATIO = 8


def _stream(codec: int, data: Buffer, limit: int) -> Buffer:
    """Decompress into a buffer, which grows eightfold while the data do not fit."""
    size = min(limit, max(_FIRST_SIZE, _USUAL_RATIO * len(data)))
    while True:
        out = memory(size)
        try:
            return memoryview(out)[: decompress_into(codec, data, out)]
        except TooLarge:
            if size >= limit:
                raise
        del out  # before the next allocation
        size = min(limit, _USUAL_RATIO * size)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the data decompress to more than {limit} bytes")


# --- snappy ---------------------------------------------------------------------------------

_XERIAL = struct.Struct(">8sii")  # magic, version, lowest version that can read it
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_BLOCK = 32 << 10
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY_RATIO = 22  # a copy of 64 bytes takes three


def _snappy(data: memoryview, limit: int) -> Buffer:
    blocks = _snappy_blocks(data)
    total = sum(size for _, size in blocks)
    if total > limit:
        raise _too_large(limit)
    out = memory(total)
    _snappy_into(blocks, memoryview(out))
    return out


def _snappy_into(blocks: list[tuple[memoryview, int]], out: memoryview) -> int:
    total = sum(size for _, size in blocks)
    if total > len(out):
        raise _too_large(len(out))
    at = 0
    try:
        for block, size in blocks:
            cramjam.snappy.decompress_raw_into(block, out[at : at + size])
            at += size
    except cramjam.DecompressionError as e:
        raise Malformed(f"the snappy data are garbled: {e}") from e
    return total


def _snappy_blocks(data: memoryview) -> list[tuple[memoryview, int]]:
    """Each block and its claimed size, which is plausible."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return [(data, _claimed(data))]
    if len(data) < _XERIAL.size:
        raise Malformed("the snappy header is cut short")
    blocks: list[tuple[memoryview, int]] = []
    at = _XERIAL.size
    while at < len(data):
        start = at + _BLOCK_LENGTH.size
        if start > len(data):
            raise Malformed("a snappy block's length is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at = start + length
        if length < 1 or at > len(data):
            raise Malformed(f"a snappy block of {length} bytes does not fit")
        blocks.append((data[start:at], _claimed(data[start:at])))
    return blocks


def _claimed(block: memoryview) -> int:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as e:
        raise Malformed(f"the snappy data are garbled: {e}") from e
    if size > _SNAPPY_RATIO * len(block):
        raise Malformed(f"{len(block)} bytes of snappy claim to be {size}")
    return size


def _write_snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL.pack(_XERIAL_MAGIC, 1, 1))
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK])
        out += _BLOCK_LENGTH.pack(len(block))
        out += memoryview(block)
    return bytes(out)


# --- lz4 ------------------------------------------------------------------------------------

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HAS_SIZE, _LZ4_HAS_DICTIONARY = 0x08, 0x01


def mend_lz4(data: Buffer) -> bytes:
    """The frame with a correct header checksum. Other data are returned unchanged.

    Before message format 1, Kafka's Java client also included the magic number in the checksum
    (KAFKA-3160), whose value in message sets of magic 0 is therefore meaningless.
    """
    mended = bytearray(data)
    if len(mended) < 7 or not mended.startswith(_LZ4_MAGIC):
        return bytes(mended)
    flags = mended[4]
    at = 6 + (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    if at < len(mended):
        mended[at] = _xxh32(bytes(mended[4:at])) >> 8 & 0xFF
    return bytes(mended)


def _xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, such as a frame's descriptor."""
    prime1, prime2, prime3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
    prime4, prime5 = 0x27D4EB2F, 0x165667B1
    words = len(data) // 4
    value = prime5 + len(data)
    for (word,) in struct.iter_unpack("<I", data[: 4 * words]):
        value = _rotated(value + word * prime3, 17) * prime4
    for byte in data[4 * words :]:
        value = _rotated(value + byte * prime5, 11) * prime1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * prime2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * prime3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


def _write_lz4(data: Buffer) -> bytes:
    writer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    writer.compress(bytes(data))
    return bytes(writer.finish())


# The default levels of Kafka's producers.
_COMPRESS: dict[int, Callable[[Buffer], bytes]] = {
    Codec.GZIP: lambda data: bytes(cramjam.gzip.compress(data, 6)),
    Codec.SNAPPY: _write_snappy,
    Codec.LZ4: _write_lz4,
    Codec.ZSTD: lambda data: bytes(cramjam.zstd.compress(data, 3)),
}
