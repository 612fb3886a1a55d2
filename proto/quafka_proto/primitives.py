"""The variable-length values of the Kafka protocol: varints and unknown tagged fields.

Every reader takes (frame, position) and returns (value, position after it). Reading beyond the
frame raises IndexError, which the callers turn into Malformed for the whole message at once.
"""

from __future__ import annotations

from quafka_proto.errors import Malformed

STRING_LIMIT = 32767
"""Kafka's limit for a string, in bytes, which also applies to compact strings."""

TAGGED_LIMIT = 1_000
"""The maximum number of tagged fields in a struct, which are read in one step. Kafka has no limit,
and defines fewer than ten for any struct."""


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits.

    Raises:
        Malformed: longer than five bytes or above 32 bits.
        IndexError: cut short.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise Malformed("a varint is above 32 bits")
            return value, at
        shift += 7
        if shift > 28:
            raise Malformed("a varint is longer than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits, as in records.

    Raises:
        Malformed: longer than ten bytes or above 64 bits.
        IndexError: cut short.
    """
    byte = data[at]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at + 1
    second = data[at + 1]
    if second < 0x80:
        return (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), at + 2
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise Malformed("a varint is above 64 bits")
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise Malformed("a varint is longer than ten bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    if 0 <= value < 0x40:  # nearly always
        out.append(value << 1)
        return
    write_uvarint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def skip_tagged(data: bytes, at: int, end: int, left: list[int]) -> int:
    """Skip tagged fields (KIP-482). Returns the position after them.

    `left`: how many items the frame may still have; each tagged field counts as one.

    Raises:
        Malformed: too many fields, or one that is longer than its message.
        IndexError: cut short.
    """
    count, at = read_uvarint(data, at)
    left[0] -= count
    if left[0] < 0 or count > TAGGED_LIMIT:
        raise Malformed("the message has too many tagged fields")
    for _ in range(count):
        _tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at += size
        if at > end:
            raise Malformed("a tagged field is longer than its message")
    return at
