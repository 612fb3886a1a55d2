"""Builds and reads packets in bursts.

The stock path of aioquic costs 60 to 90 microseconds of Python per packet, several times the cost
of its encryption. Here one call handles a burst of equal packets:

- **Sending.** Stream data that fills packets is cut into STREAM frames without a length (they end
  with their packet) and sealed directly into the buffer that one system call sends. The stock path
  sends everything else (limits, remainders), before the burst.
- **Small packets** with an ACK and the data of small ops are built here, too (small.py). One goes
  with each burst, so small answers overtake bulk.
- **Receiving.** Packets with a single STREAM frame are opened together, and contiguous data is
  passed on as one piece (burst.py). Small packets are read by small_reader.py, all others by the
  stock path.
- **ACKs.** A burst has one record, and packets that are acknowledged together are accounted for
  once (bulk.py, recovery.py).

The wire format is plain QUIC: either end may be stock. All state is aioquic's, so the two paths can
alternate packet by packet, and aioquic alone decides on retransmission, key updates and limits.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

from aioquic.buffer import encode_uint_var
from aioquic.quic.connection import NetworkAddress, QuicConnectionState
from aioquic.quic.stream import QuicStream

from quafka_mesh_ops.transport.aioquic_adapter.bulk import (
    CID_SIZE,
    PN_AT,
    PN_SIZE,
    SAMPLE_AT,
    BulkBurst,
    Template,
    seal_burst,
)
from quafka_mesh_ops.transport.aioquic_adapter.burst import Burst
from quafka_mesh_ops.transport.aioquic_adapter.protection import SAMPLE_SIZE, TAG_SIZE, Keys
from quafka_mesh_ops.transport.aioquic_adapter.settled import SettledQuic
from quafka_mesh_ops.transport.aioquic_adapter.small import (
    SmallContent,
    SmallPacket,
    StreamPart,
    ack_frame,
    parts_of,
)
from quafka_mesh_ops.transport.send_buffer import SendBuffer

logger = logging.getLogger("quafka.mesh")

_FIXED_BIT = 0x40  # without the spin bit: nothing on the path measures it, and headers stay equal


class BatchedQuic(SettledQuic):
    """A mesh connection that works in bursts where possible."""

    _remote_max_data_used: int

    # --- sending ----------------------------------------------------------------------------

    def is_quiet(self, now: float) -> bool:
        """See MeshQuic."""
        return (
            self.recovery.settled
            and ((ack_at := self._space.ack_at) is None or ack_at > now)
            and self._paced_until is None
            and self._ladder.next_at > now
            and not self._wishing()
        )

    def fill(self, now: float, room: int) -> list[tuple[bytes, NetworkAddress]]:
        """See MeshQuic; bulk is sealed in bursts."""
        wishing = self._wishing()
        chores = not self.settles()
        ack_at = self._space.ack_at
        if not wishing and not chores and (ack_at is None or ack_at > now):
            return []  # the stock path takes twenty times as long for this check
        keys = self.send_keys
        if keys is None:
            return self.build(now, room)
        bulk = [stream for stream in wishing if self._is_bulk(stream)]
        small: SmallContent | None = None
        datagrams: list[tuple[bytes, NetworkAddress]] = []
        if chores or ack_at is not None or len(bulk) < len(wishing):
            if not chores:
                small = self._small_content(wishing, bulk, room, now)
            if small is None:
                # The stock path goes first and gets a packet, however much bulk waits.
                self._streams_queue.sort(key=self._is_bulk)
                datagrams = self.build(now, min(room, self._max_datagram_size) if bulk else room)
                room -= sum([len(data) for data, _ in datagrams])
        for stream in bulk:
            if room < self._max_datagram_size:
                break
            sealed = self._send_bulk(stream, room // self._max_datagram_size, keys, now)
            room -= sum([len(data) for data, _ in sealed])
            datagrams += sealed
        if small is not None:
            # The last packet of a burst may be shorter without another system call.
            datagrams += self._send_small(small, keys, now)
        return datagrams

    def _is_bulk(self, stream: QuicStream) -> bool:
        """Whether the stream has contiguous data for a full datagram."""
        sender = stream.sender
        if sender.buffer_is_empty or sender.reset_pending or stream.is_blocked:
            return False
        pending = sender._pending
        if not len(pending):
            return False
        start, stop = pending[0].start, pending[0].stop
        if stop - start < self._max_datagram_size:
            return False
        return min(stop, self._flow_limit(stream)) - start >= self._max_datagram_size

    def _wishing(self) -> list[QuicStream]:
        """Return the streams that have data to send or need the stock path."""
        wishing: list[QuicStream] = []
        for stream in self._streams_queue:
            sender, receiver = stream.sender, stream.receiver
            if (
                not sender.buffer_is_empty
                or sender.reset_pending
                or receiver.stop_pending
                or (sender.is_finished and receiver.is_finished)
            ):
                wishing.append(stream)
        return wishing

    def _flow_limit(self, stream: QuicStream) -> int:
        """Return the offset up to which flow control allows the stream to send."""
        sender = stream.sender
        connection = sender.highest_offset + self._remote_max_data - self._remote_max_data_used
        return min(connection, stream.max_stream_data_remote)

    def _small_content(
        self, wishing: list[QuicStream], bulk: list[QuicStream], room: int, now: float
    ) -> SmallContent | None:
        """Return a due ACK and all data that is not bulk; None if the stock path must send it."""
        space = self._space
        ack = b""
        if space.ack_at is not None:
            delay = int((now - (space.largest_received_time or now)) * 1e6)
            ack = ack_frame(space.ack_queue, delay >> self._local_ack_delay_exponent)
            if not ack:
                return None
        streams = [stream for stream in wishing if stream not in bulk] if bulk else wishing
        overhead = PN_AT + PN_SIZE + len(ack) + TAG_SIZE
        parts = parts_of(streams, min(self._max_datagram_size, room) - overhead)
        return None if parts is None else SmallContent(ack, parts)

    def _send_small(
        self, content: SmallContent, keys: Keys, now: float
    ) -> list[tuple[bytes, NetworkAddress]]:
        """Make one packet with this content, as far as flow control allows."""
        space, path = self._space, self._network_paths[0]
        parts: list[StreamPart] = []
        for part in content.parts:
            stream, start, stop, _ = part
            if stop > self._flow_limit(stream):
                continue
            parts.append(part)
            stream.sender._pending.shift()
            self._record_sent(stream, start, stop, now)
            stream.sender.buffer_is_empty = True
        if not parts and not content.ack:
            return []
        packet = self._seal_one(b"".join([content.ack, *[part.frame for part in parts]]), keys)
        number, size = self._packet_number, len(packet)
        acked = -1
        if content.ack:
            acked = space.largest_received_packet
            space.ack_at = None
        sent: dict[int, Any] = space.sent_packets
        sent[number] = SmallPacket(number, now, size, space, acked, parts)
        self._packet_number = number + 1
        if parts:
            space.ack_eliciting_in_flight += 1
            self._congestion.bytes_in_flight += size
        path.bytes_sent += size
        return [(packet, path.addr)]

    def _seal_one(self, payload: bytes, keys: Keys) -> bytes:
        """Seal the next packet with this payload."""
        number = self._packet_number
        first = _FIXED_BIT | keys.phase << 2 | (PN_SIZE - 1)
        header = bytes((first,)) + self._peer_cid.cid + (number & 0xFFFF).to_bytes(2, "big")
        sealed = keys.aead.encrypt((keys.iv ^ number).to_bytes(12, "big"), payload, header)
        packet = header + sealed
        mask = keys.masks(packet[SAMPLE_AT : SAMPLE_AT + SAMPLE_SIZE])
        out = bytearray(packet)
        out[0] ^= mask[0] & 0x1F
        out[PN_AT] ^= mask[1]
        out[PN_AT + 1] ^= mask[2]
        return bytes(out)

    def _send_bulk(
        self, stream: QuicStream, count: int, keys: Keys, now: float
    ) -> list[tuple[bytes, NetworkAddress]]:
        """Make up to `count` packets of one stream's next contiguous data."""
        sender, space = stream.sender, self._space
        pending = sender._pending[0]
        start, end = pending.start, min(pending.stop, self._flow_limit(stream))
        first = _FIXED_BIT | keys.phase << 2 | (PN_SIZE - 1)
        head = bytes([first]) + self._peer_cid.cid
        size = self._max_datagram_size
        template = Template.of(head, encode_uint_var(stream.stream_id or 0), size)
        capacity = template.capacity
        end = min(end, start + count * capacity)
        if end < pending.stop:
            # Before the last of this data: full packets only, so that a burst is one system call.
            end -= (end - start) % capacity
        base, number = sender._buffer_start, self._packet_number
        data = cast(SendBuffer, sender._buffer).view(start - base, end - base)
        fin = end == sender._buffer_fin
        packets = seal_burst(template, keys, number, start, data, fin)
        burst = BulkBurst(number, now, stream, start, end, capacity, template.overhead, fin)
        sent: dict[int, Any] = space.sent_packets
        sent.update(dict.fromkeys(burst.numbers, burst))
        self._packet_number = number + len(packets)
        sender._pending.subtract(start, end)
        space.ack_eliciting_in_flight += len(packets)
        total = end - start + len(packets) * template.overhead
        self._congestion.bytes_in_flight += total
        self._record_sent(stream, start, end, now)
        path = self._network_paths[0]
        path.bytes_sent += total
        return [(cast(bytes, packet), path.addr) for packet in packets]

    def _record_sent(self, stream: QuicStream, start: int, end: int, now: float) -> None:
        """Update the state as the stock path does, once for all packets.

        The caller takes the range out of the pending data.
        """
        sender = stream.sender
        if end > sender.highest_offset:
            self._remote_max_data_used += end - sender.highest_offset
            sender.highest_offset = end
        if sender._buffer_fin == end:
            sender._pending_eof = False
        self._streams_queue.remove(stream)
        self._streams_queue.append(stream)
        self._loss._time_of_last_sent_ack_eliciting_packet = now
        if not self._ack_eliciting_sent_since_receipt:
            self.not_idle(now)
            self._ack_eliciting_sent_since_receipt = True

    # --- receiving --------------------------------------------------------------------------

    def receive_datagrams(
        self, datagrams: Sequence[bytes], addr: NetworkAddress, now: float
    ) -> None:
        """See MeshQuic; packets are opened in bursts."""
        keys = self._open_keys(addr)
        if keys is None:
            super().receive_datagrams(datagrams, addr, now)
            return
        samples = b"".join([data[SAMPLE_AT : SAMPLE_AT + SAMPLE_SIZE] for data in datagrams])
        if len(samples) != SAMPLE_SIZE * len(datagrams):  # one is too short to be a packet
            super().receive_datagrams(datagrams, addr, now)
            return
        burst = Burst(self, keys, keys.masks(samples), now)
        for index in range(burst.open_run(datagrams), len(datagrams)):
            if index and self.is_closed:
                return
            data = datagrams[index]
            if not burst.open(data, index * SAMPLE_SIZE):
                # In the order of arrival: its frames may depend on earlier ones.
                burst.finish()
                self.receive_datagram(data, addr, now)
        if not self.is_closed:  # then packets restart no idle timeout
            burst.finish()

    def _open_keys(self, addr: NetworkAddress) -> Keys | None:
        """Return the keys to open with; None unless the connection is in its ordinary state."""
        path = self._network_paths[0] if self._network_paths else None
        if (
            path is None
            or not self._handshake_complete
            or self._state is not QuicConnectionState.CONNECTED
            or self._close_pending
            or path.addr != addr
            or not path.is_validated
            or len(self.host_cid) != CID_SIZE
        ):
            return None
        return self._receive_ring.keys(self._pair.recv)
