"""Parses the header of a client's first packet by hand: a flood of them must cost little.

RFC 9000 sections 14.1 and 17.2. The header is not encrypted and proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

QUIC_1 = b"\x00\x00\x00\x01"
_NEGOTIATION = b"\x00\x00\x00\x00"
SMALLEST = 1200
"""Least bytes of a datagram with an Initial packet."""
_KIND, _FIXED_INITIAL = 0xF0, 0xC0
_LEAST_CID, _LONGEST_CID = 8, 20
_LEAST_PAYLOAD = 20  # a packet number and a sample to take the mask from


class Initial(NamedTuple):
    """The header of an unknown peer's first packet."""

    destination: bytes
    source: bytes
    token: bytes


class OtherVersion(NamedTuple):
    """A first packet of an unsupported version of QUIC."""

    destination: bytes
    source: bytes


def destination_of(data: bytes) -> bytes:
    """Return the destination connection id of a long header; shorter if the packet is cut."""
    return data[6 : 6 + data[5]] if len(data) > 5 else b""


def read_initial(data: bytes) -> Initial | OtherVersion | None:
    """Parse an unknown peer's datagram; None: it must not be answered."""
    if len(data) < SMALLEST:
        return None
    version = data[1:5]
    source_at = 6 + data[5]
    if data[5] > _LONGEST_CID or data[source_at] > _LONGEST_CID:
        return None
    destination = data[6:source_at]
    at = source_at + 1 + data[source_at]
    source = data[source_at + 1 : at]
    if version != QUIC_1:
        return None if version == _NEGOTIATION else OtherVersion(destination, source)
    if data[0] & _KIND != _FIXED_INITIAL or len(destination) < _LEAST_CID:
        return None
    length, at = _number(data, at)
    token_end = at + length
    if token_end + 8 > len(data):
        return None
    token = data[at:token_end]
    length, at = _number(data, token_end)
    return (
        Initial(destination, source, token) if _LEAST_PAYLOAD <= length <= len(data) - at else None
    )


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer (RFC 9000 section 16), which must be complete; and its end."""
    size = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + size], "big")
    return value & ~(3 << (8 * size - 2)), at + size
