"""Reads small packets: ACKs and STREAM frames with a length, as small ops bring them.

aioquic's frame handlers take longer for such a packet than all the other work on it. They still
read packets with any other frame, or with an error.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import NamedTuple

from aioquic.buffer import UINT_VAR_MAX
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.recovery import MAX_ACK_RANGES

from quafka_mesh_ops.transport.aioquic_adapter.settled import SettledQuic

_ACK = 0x02
# STREAM frame types (RFC 9000 section 19.8): 0x08, with these bits.
STREAM, STREAM_MASK = 0x08, 0xF8
FIN, LENGTH, OFFSET = 1, 2, 4


class Arrived(NamedTuple):
    """A STREAM frame."""

    kind: int
    stream_id: int
    offset: int
    data: bytes


class SmallFrames(NamedTuple):
    """The frames of a small packet. `acked`: ascending ranges; `ack_delay`: as encoded."""

    acked: list[range]
    ack_delay: int
    arrived: list[Arrived]


def read_small(plain: bytes) -> SmallFrames | None:
    """Parse a packet of ACK and STREAM frames with lengths; None for any other content."""
    acked: list[range] = []
    delay = at = 0
    arrived: list[Arrived] = []
    try:
        while at < len(plain):
            kind = plain[at]
            if kind & STREAM_MASK == STREAM and kind & LENGTH:
                frame, at = _stream_frame(plain, at)
                arrived.append(frame)
            elif kind == _ACK and not acked:
                acked, delay, at = _ack_frame(plain, at + 1)
            else:
                return None
    except (IndexError, ValueError):
        return None
    return SmallFrames(acked, delay, arrived)


def _stream_frame(plain: bytes, at: int) -> tuple[Arrived, int]:
    """Parse a STREAM frame; also returns its end. Raises IndexError, ValueError."""
    kind = plain[at]
    if kind & OFFSET:
        (stream_id, offset, length), at = varints_at(plain, at + 1, 3)
    else:
        (stream_id, length), at = varints_at(plain, at + 1, 2)
        offset = 0
    end = at + length
    if end > len(plain) or offset + length > UINT_VAR_MAX:
        raise ValueError
    return Arrived(kind, stream_id, offset, plain[at:end]), end


def _ack_frame(plain: bytes, at: int) -> tuple[list[range], int, int]:
    """Parse an ACK frame after its type: ranges, delay, end. Raises IndexError, ValueError."""
    (largest, delay, more, length), at = varints_at(plain, at, 4)
    smallest = largest - length
    if smallest < 0 or more > MAX_ACK_RANGES:
        raise ValueError
    ranges = [range(smallest, largest + 1)]
    for _ in range(more):
        (gap, length), at = varints_at(plain, at, 2)
        largest = smallest - gap - 2
        smallest = largest - length
        if smallest < 0:
            raise ValueError
        ranges.append(range(smallest, largest + 1))
    ranges.reverse()
    return ranges, delay, at


def varints_at(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Read variable-length integers (RFC 9000 section 16); also returns their end.

    Raises IndexError if one is cut.
    """
    values: list[int] = []
    end = len(data)
    for _ in range(count):
        value = data[at]
        if value < 0x40:
            at += 1
        else:
            size = 1 << (value >> 6)
            after = at + size
            if after > end:
                raise IndexError
            value = int.from_bytes(data[at:after], "big") & ((1 << 8 * size - 2) - 1)
            at = after
        values.append(value)
    return values, at


def handle_acks(quic: SettledQuic, frames: SmallFrames, now: float) -> None:
    """Process the ACK frame as aioquic does."""
    recovery = quic.recovery
    recovery.peer_completed_address_validation = True
    delay = (frames.ack_delay << quic._remote_ack_delay_exponent) / 1_000_000
    recovery.acked(frames.acked, delay, now, quic._space)


def take_in_order(quic: SettledQuic, frame: Arrived) -> bool:
    """Pass on the next data of a known stream; False: the frame needs aioquic's checks."""
    stream = quic._streams.get(frame.stream_id)
    size = len(frame.data)
    if stream is None or frame.kind & FIN or not size:
        return False
    receiver, limit = stream.receiver, quic._local_max_data
    end, used = frame.offset + size, limit.used + size
    if (
        receiver._buffer_start != frame.offset
        or receiver.is_finished
        or receiver._final_size is not None
        or receiver._buffer
        or end > stream.max_stream_data_local
        or used > limit.value
    ):
        return False
    receiver._buffer_start = receiver.highest_offset = end
    limit.used = used
    if end * 2 > stream.max_stream_data_local or used * 2 > limit.value:
        quic.unsettle()  # a limit must be raised
    quic._events.append(StreamDataReceived(frame.data, False, frame.stream_id))
    return True
