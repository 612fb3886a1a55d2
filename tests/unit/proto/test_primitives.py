"""Varints: the published examples, and where they end."""

from __future__ import annotations

import pytest

from quafka_proto.errors import Malformed
from quafka_proto.primitives import read_uvarint, read_varint, write_uvarint, write_varint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (0xFFFFFFFF, "ffffffff0f")],
)
def test_unsigned(value: int, data: str) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert out.hex() == data
    assert read_uvarint(bytes(out) + b"more", 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-(1 << 63), "ffffffffffffffffff01"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
    ],
)
def test_zigzag(value: int, data: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == data
    assert read_varint(bytes(out) + b"more", 0) == (value, len(out))


@pytest.mark.parametrize("data", ["ffffffff1f", "ffffffff7f", "ffffffffff01", "808080808000"])
def test_unsigned_beyond_32_bits(data: str) -> None:
    with pytest.raises(Malformed):
        read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["ffffffffffffffffff02", "ffffffffffffffffffff01"])
def test_zigzag_beyond_64_bits(data: str) -> None:
    with pytest.raises(Malformed):
        read_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_cut_short(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_uvarint(data, 0)
    with pytest.raises(IndexError):
        read_varint(data, 0)
