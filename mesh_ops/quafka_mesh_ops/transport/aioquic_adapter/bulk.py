"""Bulk: bursts of full packets with one STREAM frame each, sealed and recorded as one.

All packets of a burst have one size, so their headers lie at equal distances: they are written,
protected and read by slices with a step, without Python code for each packet. What is left of it
for a packet is its nonce, its offset and the call that seals it.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from aioquic import tls
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.stream import QuicStream

from quafka_mesh_ops.transport.aioquic_adapter.protection import SAMPLE_SIZE, TAG_SIZE, Keys

CID_SIZE = 8
"""Bytes of the connection ids of both sides; aioquic's choice."""
PN_AT = 1 + CID_SIZE
PN_SIZE = 2  # as the stock path; enough for 32,767 packets in flight
HEADER_SIZE = PN_AT + PN_SIZE
SAMPLE_AT = PN_AT + 4

BULK = b"\x0c"
"""The type of the STREAM frame for bulk: with an offset and without a length."""
_BULK_AND_FIN = b"\x0d"
OFFSET_FIELD = struct.Struct(">Q")
EIGHT_BYTES = 0xC000_0000_0000_0000
"""The prefix of a variable-length integer of eight bytes, the size of offsets of bulk."""


class _BulkRecord:
    """What recovery and congestion control read of every record of bulk: see QuicSentPacket."""

    __slots__ = ()

    epoch = tls.Epoch.ONE_RTT
    in_flight = True
    is_ack_eliciting = True
    is_crypto_packet = False
    packet_type = QuicPacketType.ONE_RTT


class BulkPacket(_BulkRecord):
    """The record of one sent packet that holds only one STREAM frame, once it is lost.

    It has all attributes that recovery and congestion control read of a QuicSentPacket.
    """

    __slots__ = ("fin", "packet_number", "sent_bytes", "sent_time", "start", "stop", "stream")

    def __init__(
        self,
        packet_number: int,
        sent_time: float,
        sent_bytes: int,
        stream: QuicStream,
        start: int,
        stop: int,
        fin: bool,
    ) -> None:
        self.packet_number = packet_number
        self.sent_time = sent_time
        self.sent_bytes = sent_bytes
        self.stream = stream
        self.start = start
        self.stop = stop
        self.fin = fin

    @property
    def delivery_handlers(self) -> list[tuple[Any, Any]]:
        """The callbacks for an acknowledgement or a loss."""
        return [(self.stream.sender.on_data_delivery, (self.start, self.stop, self.fin))]


class BulkBurst(_BulkRecord):
    """The record of sent packets with consecutive numbers: each number refers to it.

    `start`, `stop`: the data of `stream` in these packets, `capacity` bytes in each but the last.
    `fin`: whether the last one ends the stream. `overhead`: the other bytes of each packet.
    """

    __slots__ = (
        "capacity", "fin", "first", "last", "overhead", "sent_time", "start", "stop", "stream",
    )  # fmt: skip

    def __init__(
        self,
        first: int,
        sent_time: float,
        stream: QuicStream,
        start: int,
        stop: int,
        capacity: int,
        overhead: int,
        fin: bool,
    ) -> None:
        self.first = first
        self.last = first + -(-(stop - start) // capacity) - 1
        self.sent_time = sent_time
        self.stream = stream
        self.start = start
        self.stop = stop
        self.capacity = capacity
        self.overhead = overhead
        self.fin = fin

    @property
    def numbers(self) -> range:
        """The packet numbers."""
        return range(self.first, self.last + 1)

    @property
    def packet_number(self) -> int:
        """The first number: aioquic takes a record for one packet (see `BurstRecovery`)."""
        return self.first

    @property
    def sent_bytes(self) -> int:
        """Bytes of a full packet."""
        return self.capacity + self.overhead

    def bounds(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of data in the packets `first` to `last`."""
        start = self.start + (first - self.first) * self.capacity
        if last == self.last:
            return start, self.stop
        return start, self.start + (last + 1 - self.first) * self.capacity

    def packet(self, number: int) -> BulkPacket:
        """Return the record of one of these packets."""
        start, stop = self.bounds(number, number)
        fin = self.fin and number == self.last
        size = stop - start + self.overhead
        return BulkPacket(number, self.sent_time, size, self.stream, start, stop, fin)

    def delivered(self, first: int, last: int) -> None:
        """Release the data of the packets `first` to `last`, which are acknowledged."""
        start, stop = self.bounds(first, last)
        fin = self.fin and last == self.last
        self.stream.sender.on_data_delivery(QuicDeliveryState.ACKED, start, stop, fin)


class Template(NamedTuple):
    """The equal parts of the packets of a burst.

    `head`: first byte and connection id. `capacity`: bytes of data of a full packet.
    """

    head: bytes
    stream_id: bytes
    capacity: int

    @classmethod
    def of(cls, head: bytes, stream_id: bytes, size: int) -> Template:
        """Make one for packets of `size` bytes."""
        frame_header = 1 + len(stream_id) + OFFSET_FIELD.size
        return cls(head, stream_id, size - HEADER_SIZE - frame_header - TAG_SIZE)

    @property
    def overhead(self) -> int:
        """Bytes of a packet besides the data."""
        return HEADER_SIZE + 1 + len(self.stream_id) + OFFSET_FIELD.size + TAG_SIZE


def seal_burst(
    template: Template, keys: Keys, number: int, offset: int, data: memoryview, fin: bool
) -> list[memoryview]:
    """Seal stream data from `offset` on into packets from `number` on; `fin`: it ends there."""
    head, stream_id, capacity = template
    size = capacity + template.overhead
    count = -(-len(data) // capacity)
    out = bytearray(len(data) + count * template.overhead)
    headers = headers_of(head, number, count)
    for place in range(HEADER_SIZE):
        out[place::size] = headers[place::HEADER_SIZE]
    view = memoryview(out)
    seal, iv, pack, join = keys.aead.encrypt_into, keys.iv, OFFSET_FIELD.pack, b"".join
    kind = BULK + stream_id
    ends = len(data) - capacity  # at this offset or later: the last packet
    at = 0
    for start in range(0, len(data), capacity):
        if start >= ends and fin:
            kind = _BULK_AND_FIN + stream_id
        field = pack((offset + start) | EIGHT_BYTES)
        payload = join((kind, field, data[start : start + capacity]))
        nonce = (iv ^ number).to_bytes(12, "big")
        after = at + size
        seal(nonce, payload, view[at : at + HEADER_SIZE], view[at + HEADER_SIZE : after])
        number += 1
        at = after
    protect_headers(out, view, size, keys)
    return [view[at : at + size] for at in range(0, len(out), size)]


def protect_headers(out: bytearray, view: memoryview, size: int, keys: Keys) -> None:
    """Mask the first byte and the number of each packet of `size` bytes (RFC 9001, 5.4)."""
    starts = range(SAMPLE_AT, len(out), size)
    masks = keys.masks(b"".join([view[at : at + SAMPLE_SIZE] for at in starts]))
    out[::size] = masks[::SAMPLE_SIZE].translate(_masked(out[0]))
    for place in (1, 2):
        numbers = out[PN_AT + place - 1 :: size]
        out[PN_AT + place - 1 :: size] = _xor(numbers, masks[place::SAMPLE_SIZE])


def open_headers(datagrams: Sequence[bytes], masks: bytes) -> bytes:
    """Return the unmasked headers of these packets, as if all had numbers of two bytes."""
    count = len(datagrams)
    pad = bytearray(HEADER_SIZE * count)
    pad[::HEADER_SIZE] = masks[::SAMPLE_SIZE].translate(_masked(0))
    for place in (1, 2):
        pad[PN_AT + place - 1 :: HEADER_SIZE] = masks[place::SAMPLE_SIZE]
    return _xor(b"".join([data[:HEADER_SIZE] for data in datagrams]), pad)


def headers_of(head: bytes, number: int, count: int) -> bytes:
    """Return the unprotected headers of `count` packets from `number` on."""
    out = bytearray((head + bytes(PN_SIZE)) * count)
    numbers = struct.pack(f">{count}H", *[n & 0xFFFF for n in range(number, number + count)])
    out[PN_AT::HEADER_SIZE], out[PN_AT + 1 :: HEADER_SIZE] = numbers[::2], numbers[1::2]
    return bytes(out)


def equal_headers(one: bytes, other: bytes) -> int:
    """Return how many headers are equal before the first that differs."""
    different = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return (len(one) - (different.bit_length() + 7) // 8) // HEADER_SIZE


@cache
def _masked(first: int) -> bytes:
    """The first byte of a short header, for each first byte of a mask."""
    return bytes(first ^ (mask & 0x1F) for mask in range(256))


def _xor(one: bytes | bytearray, other: bytes | bytearray) -> bytes:
    number = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return number.to_bytes(len(one), "big")
