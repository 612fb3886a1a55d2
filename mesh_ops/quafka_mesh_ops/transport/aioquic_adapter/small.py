"""Small packets: an ACK and a little data of one or a few streams, as for a small op.

Without bulk, most packets are small, and the stock path takes longer to build one than all the
other work of an op. The stock path still builds packets for data that does not fit in one packet,
and after losses, resets and ends of streams.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aioquic import tls
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream

_STREAM_WITH_OFFSET_AND_LENGTH = b"\x0e"
_ACK = b"\x02"
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x40))
_MORE_RANGES = 0


class StreamPart(NamedTuple):
    """All data that one stream has to send, and the STREAM frame that carries it."""

    stream: QuicStream
    start: int
    stop: int
    frame: bytes


class SmallPacket:
    """The record of a sent small packet; see `recovery.BulkPacket`.

    `acked`: the largest packet number that its ACK frame acknowledges; -1 without one.
    """

    __slots__ = (
        "acked",
        "in_flight",
        "is_ack_eliciting",
        "packet_number",
        "parts",
        "sent_bytes",
        "sent_time",
        "space",
    )

    epoch = tls.Epoch.ONE_RTT
    is_crypto_packet = False
    packet_type = QuicPacketType.ONE_RTT

    def __init__(
        self,
        packet_number: int,
        sent_time: float,
        sent_bytes: int,
        space: QuicPacketSpace,
        acked: int,
        parts: list[StreamPart],
    ) -> None:
        self.packet_number = packet_number
        self.sent_time = sent_time
        self.sent_bytes = sent_bytes
        self.space = space
        self.acked = acked
        self.parts = parts
        self.is_ack_eliciting = self.in_flight = bool(parts)

    def acknowledged(self) -> None:
        """Release what the packet carried."""
        if self.acked >= 0:
            self.space.ack_queue.subtract(0, self.acked + 1)
        for stream, start, stop, _ in self.parts:
            sender = stream.sender
            if (
                start == sender._buffer_start
                and not len(sender._acked)
                and sender._reset_error_code is None
                and sender._buffer_fin is None
            ):
                sender._buffer_start = stop
                del sender._buffer[: stop - start]
            else:
                sender.on_data_delivery(QuicDeliveryState.ACKED, start, stop, False)

    @property
    def delivery_handlers(self) -> list[tuple[Any, Any]]:
        """The callbacks for a loss."""
        return [
            (stream.sender.on_data_delivery, (start, stop, False))
            for stream, start, stop, _ in self.parts
        ]


class SmallContent(NamedTuple):
    """The content of a small packet. `ack`: empty if none is due."""

    ack: bytes
    parts: list[StreamPart]


def ack_frame(received: RangeSet, delay: int) -> bytes:
    """Encode an ACK of one contiguous range; b"" for several ranges, a sign of loss."""
    if len(received) != 1:
        return b""
    numbers = received[0]
    largest = numbers.stop - 1
    return _ACK + varints(largest, delay, _MORE_RANGES, largest - numbers.start)


def parts_of(streams: Sequence[QuicStream], room: int) -> list[StreamPart] | None:
    """Return the data that these streams have to send; None if one small packet cannot hold it.

    `room`: bytes for the frames. Flow control is not checked, except for blocked streams.
    """
    parts: list[StreamPart] = []
    for stream in streams:
        sender = stream.sender
        pending = sender._pending
        if (
            len(pending) != 1
            or sender.reset_pending
            or sender._buffer_fin is not None
            or stream.receiver.stop_pending
            or stream.is_blocked
            or stream.is_finished
        ):
            return None
        start, stop = pending[0].start, pending[0].stop
        if stop - start > room:
            return None
        base = sender._buffer_start
        head = varints(stream.stream_id or 0, start, stop - start)
        buffer: Any = sender._buffer  # a SendBuffer
        data: list[memoryview] = buffer.pieces(start - base, stop - base)
        frame = b"".join((_STREAM_WITH_OFFSET_AND_LENGTH, head, *data))
        room -= len(frame)
        if room < 0:
            return None
        parts.append(StreamPart(stream, start, stop, frame))
    return parts


def varints(*values: int) -> bytes:
    """Encode variable-length integers (RFC 9000 section 16)."""
    encoded = b""
    for value in values:
        if value < 0x40:
            encoded += _ONE_BYTE[value]
        elif value < 0x4000:
            encoded += (value | 0x4000).to_bytes(2, "big")
        elif value < 0x4000_0000:
            encoded += (value | 0x8000_0000).to_bytes(4, "big")
        else:
            encoded += (value | 0xC000_0000_0000_0000).to_bytes(8, "big")
    return encoded
