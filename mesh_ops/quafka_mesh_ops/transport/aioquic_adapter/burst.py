"""Reads a burst: the packets that one system call received.

Most packets of a bulk reply hold a single STREAM frame. Contiguous data of such packets is passed
on as one piece, and aioquic's state is updated once for all of them.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Sequence

from aioquic import tls
from aioquic.buffer import encode_uint_var
from aioquic.quic.connection import QuicConnectionError, QuicReceiveContext
from aioquic.quic.packet import QuicErrorCode, QuicStreamFrame, decode_packet_number
from aioquic.quic.recovery import MAX_ACK_RANGES
from aioquic.quic.stream import FinalSizeError, StreamFinishedError
from cryptography.exceptions import InvalidTag

from quafka_mesh_ops.transport.aioquic_adapter.bulk import (
    BULK,
    EIGHT_BYTES,
    HEADER_SIZE,
    OFFSET_FIELD,
    PN_AT,
    PN_SIZE,
    equal_headers,
    headers_of,
    open_headers,
)
from quafka_mesh_ops.transport.aioquic_adapter.protection import Keys
from quafka_mesh_ops.transport.aioquic_adapter.settled import SettledQuic
from quafka_mesh_ops.transport.aioquic_adapter.small_reader import (
    FIN,
    LENGTH,
    OFFSET,
    STREAM,
    STREAM_MASK,
    SmallFrames,
    handle_acks,
    read_small,
    take_in_order,
    varints_at,
)

_FIXED_BIT = 0x40
_LOOKED_AT = 0x80 | 0x18 | 0x04  # long header, reserved bits, key phase
_NOTHING = b"\xff"  # begins no packet: there is no such type of frame
_LEAST_RUN = 4
"""Packets from which on it pays to compare their headers at once."""
_ACK_AT_ONCE = 768 << 10
"""Received bytes after which an ACK is sent without the usual delay: a sender that has used this
much of its window must not wait for a timer. An ACK costs both ends as much as a packet of bulk."""
_PATIENCE = 0.01
"""Seconds for which the ACK of a few small packets waits for an answer that carries it: less than
half of the max_ack_delay that the peer allows for (RFC 9000 section 13.2.1), as timers are late."""
_FEW_PACKETS, _FEW_BYTES = 8, 2_500
"""Bounds of that: a sender of more may wait for the ACK. The bytes are two packets of any path."""


class Piece:
    """Contiguous data of one stream, from neighbouring packets."""

    __slots__ = ("data", "end", "fin", "frame_type", "header", "offset", "stream_id")

    def __init__(
        self, stream_id: int, offset: int, data: bytes | memoryview, frame_type: int
    ) -> None:
        self.stream_id = stream_id
        self.offset = offset
        self.data: list[bytes | memoryview] = [data]
        self.end = offset + len(data)
        self.fin = bool(frame_type & FIN)
        self.frame_type = frame_type
        self.header = BULK + encode_uint_var(stream_id)

    def continued_by(self, other: Piece) -> bool:
        """Append the other piece if it continues this one; returns whether it does."""
        if other.stream_id != self.stream_id or other.offset != self.end or self.fin:
            return False
        self.data += other.data
        self.end = other.end
        self.fin = other.fin
        return True

    def next_header(self) -> bytes | None:
        """Return the STREAM header with which `BatchedQuic` continues; None after the end."""
        if self.fin:
            return None
        return self.header + OFFSET_FIELD.pack(self.end | EIGHT_BYTES)


def parse_bulk(plain: bytes) -> Piece | None:
    """Parse a STREAM frame that fills a packet; None for any other content."""
    kind = plain[0] if plain else 0
    if kind & STREAM_MASK != STREAM:
        return None
    try:
        (stream_id, *offsets), at = varints_at(plain, 1, 2 if kind & OFFSET else 1)
        if kind & LENGTH:
            (length,), at = varints_at(plain, at, 1)
            if at + length != len(plain):
                return None
    except IndexError:
        return None
    return Piece(stream_id, offsets[0] if offsets else 0, memoryview(plain)[at:], kind)


class Burst:
    """Packets of one connection, in the order of their arrival."""

    def __init__(self, quic: SettledQuic, keys: Keys, masks: bytes, now: float) -> None:
        self._quic = quic
        self._space = quic._space
        self._keys = keys
        self._masks = masks
        self._now = now
        self._cid = quic.host_cid
        self._usual = keys.phase << 2
        self._next: int = self._space.largest_received_packet + 1
        self._piece: Piece | None = None
        self._next_header: bytes | None = (
            None  # the first bytes of a packet that continues the piece
        )
        self._start = self._stop = -1
        self._elicits_ack = False
        self._bytes = self._packets = 0

    def open(self, data: bytes, mask: int) -> bool:
        """Open one datagram, whose header mask is at `mask`; False: the stock path must."""
        masks = self._masks
        first = data[0] ^ (masks[mask] & 0x1F)
        # Another key phase means a key update, if the packet is genuine.
        if first & _LOOKED_AT != self._usual or data[1:PN_AT] != self._cid:
            return False
        self._bytes += len(data)
        self._packets += 1
        size = (first & 3) + 1
        after = PN_AT + size
        number = int.from_bytes(data[PN_AT:after], "big") ^ int.from_bytes(
            masks[mask + 1 : mask + 1 + size], "big"
        )
        header = bytes([first]) + self._cid + number.to_bytes(size, "big")
        if number == self._next & ((1 << 8 * size) - 1):
            number = self._next
        elif (number := self._out_of_order(number, size)) < 0:
            return True
        nonce = (self._keys.iv ^ number).to_bytes(12, "big")
        try:
            plain = self._keys.aead.decrypt(nonce, memoryview(data)[after:], header)
        except InvalidTag:
            return True  # garbage, or of an old key phase
        self._add_number(number)
        piece = self._piece
        if (
            piece is not None
            and self._next_header is not None
            and plain.startswith(self._next_header)
        ):
            rest = memoryview(plain)[len(self._next_header) :]
            piece.data.append(rest)
            piece.end += len(rest)
            self._next_header = piece.next_header()
        else:
            self._opened(plain)
        return True

    def open_run(self, datagrams: Sequence[bytes]) -> int:
        """Open the first datagrams, if each is the next packet after the one before.

        The usual case: all headers are known and are compared at once. Returns how many of the
        datagrams were opened. Call it first.
        """
        first, count = self._next, len(datagrams)
        if count < _LEAST_RUN:
            return 0
        byte = _FIXED_BIT | self._usual | (PN_SIZE - 1)
        headers = headers_of(bytes((byte,)) + self._cid, first, count)
        count = equal_headers(headers, open_headers(datagrams, self._masks))
        opened = self._open_next(datagrams[:count], first, headers)
        if opened:
            self._start, self._stop = first, first + opened
            self._next = first + opened
            self._bytes += sum(map(len, datagrams[:opened]))
            self._packets += opened
        return opened

    def _open_next(self, datagrams: Sequence[bytes], number: int, headers: bytes) -> int:
        """Open packets from `number` on; returns how many were genuine."""
        decrypt, iv, pack = self._keys.aead.decrypt, self._keys.iv, OFFSET_FIELD.pack
        expected = _NOTHING
        piece: Piece | None = None
        at = skip = 0
        for data in datagrams:
            nonce = (iv ^ number).to_bytes(12, "big")
            header = headers[at : at + HEADER_SIZE]
            try:
                plain = decrypt(nonce, memoryview(data)[HEADER_SIZE:], header)
            except InvalidTag:
                break  # garbage
            number += 1
            at += HEADER_SIZE
            if piece is not None and plain.startswith(expected):
                piece.data.append(memoryview(plain)[skip:])
                piece.end += len(plain) - skip
                expected = piece.header + pack(piece.end | EIGHT_BYTES)
                continue
            self._opened(plain)
            if self._quic.is_closed:
                break
            piece = self._piece
            expected = (piece and piece.next_header()) or _NOTHING
            skip = len(expected)
        self._next_header = piece.next_header() if piece is not None else None
        return at // HEADER_SIZE

    def _out_of_order(self, truncated: int, size: int) -> int:
        """Decode the number of a packet that is not the next one; -1 if it was received before."""
        number = decode_packet_number(truncated, 8 * size, self._next)
        if number < self._next:
            self._record_received()
            if number in self._space.received_packets:
                return -1
        return number

    def finish(self) -> None:
        """Pass on the collected data, and record the packets as received."""
        self._pass_on()
        self._record_received()
        self._quic.bytes_received += self._bytes
        received, packets = self._bytes, self._packets
        self._bytes = self._packets = 0
        if not self._elicits_ack or self._quic.is_closed:
            return
        self._elicits_ack = False
        quic, space = self._quic, self._space
        if space.ack_at is None:
            space.ack_at = self._now + _PATIENCE
            quic.unacknowledged = quic.unacknowledged_packets = 0
        quic.unacknowledged += received
        quic.unacknowledged_packets += packets
        if quic.unacknowledged >= _ACK_AT_ONCE:
            space.ack_at = self._now
        elif (
            quic.unacknowledged > _FEW_BYTES
            or quic.unacknowledged_packets > _FEW_PACKETS
            or len(space.ack_queue) > 1
        ):
            space.ack_at = min(space.ack_at, self._now + quic._ack_delay)

    def _add_number(self, number: int) -> None:
        if number == self._stop:
            self._stop += 1
        else:
            if self._start != self._stop:
                self._record_received()
            self._start, self._stop = number, number + 1
        if number >= self._next:
            self._next = number + 1

    def _record_received(self) -> None:
        """Record a run of packets as received, as aioquic does for each one."""
        start, stop = self._start, self._stop
        if start == stop:
            return
        self._start = self._stop = -1
        quic, space = self._quic, self._space
        space.expected_packet_number = max(space.expected_packet_number, stop)
        if stop - 1 > space.largest_received_packet:
            space.largest_received_packet = stop - 1
            space.largest_received_time = self._now
        space.ack_queue.add(start, stop)
        if len(space.ack_queue) > MAX_ACK_RANGES:
            space.ack_queue.shift()
        window = space.received_packets
        if stop - start > 1:
            window._received.update(range(max(start, stop - window._size), stop))
        window.add(stop - 1)
        quic.not_idle(self._now)
        quic._ack_eliciting_sent_since_receipt = False

    def _opened(self, plain: bytes) -> None:
        """Process the content of a packet that does not continue the current piece."""
        piece = parse_bulk(plain)
        if piece is None:
            self._pass_on()
            frames = read_small(plain)
            if frames is None or not plain:
                self._other(plain)
            else:
                self._small(frames)
            return
        self._elicits_ack = True
        if self._piece is None or not self._piece.continued_by(piece):
            self._pass_on()
            self._piece = piece
        self._next_header = self._piece.next_header()

    def _small(self, frames: SmallFrames) -> None:
        if frames.acked:
            handle_acks(self._quic, frames, self._now)
        for frame in frames.arrived:
            self._elicits_ack = True
            if not take_in_order(self._quic, frame):
                self._piece = Piece(frame.stream_id, frame.offset, frame.data, frame.kind)
                self._pass_on()
                if self._quic.is_closed:
                    return

    def _other(self, plain: bytes) -> None:
        """Pass frames of other types to aioquic."""
        quic = self._quic
        quic.unsettle()
        context = QuicReceiveContext(
            epoch=tls.Epoch.ONE_RTT,
            host_cid=quic.host_cid,
            network_path=quic._network_paths[0],
            quic_logger_frames=None,
            time=self._now,
            version=quic._version,
        )
        try:
            elicits_ack, _ = quic._payload_received(context, plain)
        except QuicConnectionError as e:
            quic.close(e.error_code, e.frame_type, e.reason_phrase)
        else:
            self._elicits_ack |= elicits_ack

    def _pass_on(self) -> None:
        piece, self._piece, self._next_header = self._piece, None, None
        if piece is None or self._quic.is_closed:
            return
        try:
            self._receive(piece)
        except StreamFinishedError:
            pass  # late data of a finished stream
        except QuicConnectionError as e:
            self._quic.close(e.error_code, e.frame_type, e.reason_phrase)

    def _receive(self, piece: Piece) -> None:
        """Process a piece as aioquic does each STREAM frame.

        Raises:
            StreamFinishedError, QuicConnectionError: as aioquic.
        """
        quic, kind = self._quic, piece.frame_type
        quic.unsettle()
        quic._assert_stream_can_receive(kind, piece.stream_id)
        stream = quic._get_or_create_stream(kind, piece.stream_id)
        new = max(0, piece.end - stream.receiver.highest_offset)
        limit = quic._local_max_data
        if piece.end > stream.max_stream_data_local or limit.used + new > limit.value:
            raise QuicConnectionError(
                QuicErrorCode.FLOW_CONTROL_ERROR, kind, "over the flow-control limit"
            )
        frame = QuicStreamFrame(data=b"".join(piece.data), fin=piece.fin, offset=piece.offset)
        try:
            event = stream.receiver.handle_frame(frame)
        except FinalSizeError as e:
            raise QuicConnectionError(QuicErrorCode.FINAL_SIZE_ERROR, kind, str(e)) from e
        if event is not None:
            quic._events.append(event)
        limit.used += new
