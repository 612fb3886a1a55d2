"""aioquic's QuicConnection with the changes that the mesh needs.

- **Mutual TLS** (mutual_tls.py): both sides demand and verify a certificate.
- **Bursts.** aioquic's `datagrams_to_send` builds a whole congestion window before the first packet
  is sent. Here one call builds at most one burst, so that both ends work at the same time, and no
  packet is cut short because the window ends inside it.
- **Stateless resets** (stateless_reset.py).
- **By reference.** A stream's data is held by reference until it is acknowledged (send_buffer.py).
- **Datagram size.** It follows the path (ladder.py).
- **Pacing** only on long paths, and by the burst: the event loop's timers are not precise enough
  for single packets.
"""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from aioquic import tls
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.connection import (
    END_STATES,
    NetworkAddress,
    QuicConnection,
    QuicConnectionId,
    QuicConnectionState,
    QuicNetworkPath,
)
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, QuicPacketType, QuicProtocolVersion
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder
from aioquic.quic.recovery import QuicPacketPacer, QuicPacketSpace
from aioquic.quic.stream import QuicStream
from cryptography import x509

from quafka_mesh_ops.errors import PeerRefusedError
from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import (
    OTHER_MESH,
    MutualContext,
    PeerRefusedAlert,
    VerifyPeer,
)
from quafka_mesh_ops.transport.aioquic_adapter.recovery import CountingRecovery
from quafka_mesh_ops.transport.congestion import MeshCongestionControl, SizeProbe
from quafka_mesh_ops.transport.ladder import DatagramLadder
from quafka_mesh_ops.transport.send_buffer import SendBuffer
from quafka_mesh_ops.transport.stateless_reset import LONGEST_RESET, is_reset, reset_token

BURST = 64_000
"""Bytes that one call builds: the most that UDP_SEGMENT sends in one system call."""
_LARGE = BURST // 4
_LARGE_BURST = 540_000
"""Bytes of a burst of packets above `_LARGE`. Each of them takes a system call, so they share only
the rest of a burst's cost. It is still a fraction of a window, so that both ends work at the same
time."""

_LARGE_PROBES = 2
"""Probe timeouts in a row after which data is tried in small packets."""

KEY_UPDATE_AFTER = 1 << 22
"""Packets protected with one key. The limit of AES-GCM is 2^23 (RFC 9001 section 6.6)."""

SMALLEST_DATAGRAM = SMALLEST_MAX_DATAGRAM_SIZE

_END_STATES = tuple(END_STATES)  # no set: the hash of an enum member is a function in Python
_LONGEST_FRAME = (1 << 14) - 1
_NO_COMMON_PROTOCOL = QuicErrorCode.CRYPTO_ERROR + int(tls.AlertDescription.no_application_protocol)

# aioquic logs a warning for each malformed packet of any sender; the mesh logs the relevant ones.
logging.getLogger("quic").setLevel(logging.ERROR)


class _NoPacing(QuicPacketPacer):
    def next_send_time(self, now: float) -> float | None:  # type: ignore[override]
        return None


class MeshQuic(QuicConnection):
    """One QUIC connection of the mesh, without I/O.

    Attributes:
        peer: the node id of the peer, once authenticated and allowed.
        refusal: the reason if the peer was refused.
        was_reset: whether the peer has reset the connection statelessly.
        unacknowledged, unacknowledged_packets: received bytes and packets for which an ACK is due.
    """

    recovery_class: ClassVar[type[CountingRecovery]] = CountingRecovery
    _space: QuicPacketSpace  # of everything but the handshake
    _pair: CryptoPair  # likewise

    def __init__(
        self,
        configuration: QuicConfiguration,
        verify: VerifyPeer,
        original_destination_connection_id: bytes | None = None,
        reset_secret: bytes | None = None,
        ladder: DatagramLadder | None = None,
        retry_cid: bytes | None = None,
    ) -> None:
        """For servers: `reset_secret` is the key of reset tokens; `retry_cid` is the connection id
        of the Retry that the client answers.

        Without a `ladder`, datagrams have the configured size.
        """
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_destination_connection_id,
            retry_source_connection_id=retry_cid,
        )
        self.peer: NodeId | None = None
        self.refusal: PeerRefusedError | None = None
        self.was_reset = False
        self.bytes_received = 0
        self._key_worn_at = KEY_UPDATE_AFTER
        self.unacknowledged = self.unacknowledged_packets = 0
        self._reset_secret = reset_secret
        if reset_secret is not None:
            self._host_cids[0].stateless_reset_token = reset_token(reset_secret, self.host_cid)
        self._verify_certificate = verify
        self._loss = self.recovery_class(
            congestion_control_algorithm=configuration.congestion_control_algorithm,
            initial_rtt=configuration.initial_rtt,
            max_datagram_size=self._max_datagram_size,
            peer_completed_address_validation=not configuration.is_client,
            send_probe=self._send_probe,
            logger=self._logger,
            quic_logger=self._quic_logger,
        )
        congestion = self._loss._cc
        assert isinstance(congestion, MeshCongestionControl)
        self._congestion = congestion
        self._paced_until: float | None = None
        self._loss._pacer = _NoPacing(max_datagram_size=configuration.max_datagram_size)
        self._ladder = ladder or DatagramLadder.fixed(configuration.max_datagram_size)
        self._probed_at = 0.0
        self._path: QuicNetworkPath | None = None
        self._burst = 0
        self._resize(0.0)

    @property
    def datagram_size(self) -> int:
        """Bytes of UDP payload of a full packet."""
        return self._max_datagram_size

    @property
    def probe_timeout(self) -> float:
        """Seconds within which a live peer acknowledges (RFC 9002 section 6.2.1)."""
        return self._loss.get_probe_timeout()

    @property
    def shortest_round_trip(self) -> float:
        """Seconds of the fastest round trip so far; 0 before the first one."""
        return self._loss._rtt_min if self._loss._rtt_initialized else 0.0

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed: no more data will be sent or received."""
        return self._close_pending or self._state in _END_STATES

    @property
    def is_open(self) -> bool:
        """For servers: whether the client's first packet was decrypted."""
        return self._state is not QuicConnectionState.FIRSTFLIGHT

    @property
    def close_reason(self) -> str:
        """The reason of the close, as the closing side gave it."""
        event = self._close_event
        if event is None:
            return "closed"
        if event.error_code == _NO_COMMON_PROTOCOL:  # earlier brokers give no advice
            return OTHER_MESH
        return event.reason_phrase or f"error code 0x{event.error_code:x}"

    def is_quiet(self, now: float) -> bool:
        """Whether `datagrams_to_send` would certainly build nothing."""
        return False

    def holds_unordered(self, limit: int) -> bool:
        """Whether the last datagrams left more bytes of stream data after gaps in memory.

        aioquic doubles its windows with the highest offset seen, so a few packets far apart would
        make it allocate without bound.
        """
        return sum([len(stream.receiver._buffer) for stream in self._streams.values()]) > limit

    def too_large(self, now: float) -> bool:
        """Reduce the datagram size after EMSGSIZE; False: it is fixed, or too early to change."""
        if self._ladder.is_fixed or not self._handshake_confirmed:
            return False
        self._ladder.swallowed(now)
        self._resize(now)
        return True

    def _get_or_create_stream_for_send(self, stream_id: int) -> QuicStream:
        stream = super()._get_or_create_stream_for_send(stream_id)
        sender: Any = stream.sender
        if type(sender._buffer) is bytearray:
            sender._buffer = SendBuffer()  # a new stream, or the peer's: it is empty
        return stream

    def unsent(self, stream_id: int) -> int:
        """Return the bytes written to this stream that were never sent."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        sender = stream.sender
        return sender._buffer_stop - sender.highest_offset

    def is_delivered(self, stream_id: int) -> bool:
        """Whether all data of this stream, and its end if set, is acknowledged."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.sender.is_finished:
            return True
        sender = stream.sender
        all_acked = sender._buffer_start == sender._buffer_stop
        return sender._buffer_fin is None and all_acked

    def receive_datagrams(
        self, datagrams: Sequence[bytes], addr: NetworkAddress, now: float
    ) -> None:
        """Process the datagrams of one system call."""
        for data in datagrams:
            self.receive_datagram(data, addr, now)

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """Process a datagram; one that resets the connection only sets `was_reset`."""
        self.bytes_received += len(data)
        if len(data) <= LONGEST_RESET and is_reset(
            data, (self._peer_cid, *self._peer_cid_available)
        ):
            self.was_reset = True
            return
        super().receive_datagram(data, addr, now)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """Build at most one burst. Call again until the result is empty."""
        congestion = self._congestion
        if self._path is not self._network_paths[0]:
            self._use_path(now)
        if self._packet_number >= self._key_worn_at and self._handshake_confirmed:
            self._key_worn_at = self._packet_number + KEY_UPDATE_AFTER
            self.request_key_update()
        room = self._burst_room(now)
        number, before = self._packet_number, congestion.bytes_in_flight
        datagrams = self.fill(now, room)
        if self._ladder.next_at <= now and self._is_usual:
            datagrams += self._size_probe(now)
        sent = congestion.bytes_in_flight - before
        if sent and congestion.model is not None:
            congestion.burst_sent(number, sent, now, limited=not self._has_pending)
        return datagrams

    def get_timer(self) -> float | None:
        """Return when to call `handle_timer`, or `datagrams_to_send` again."""
        timer = super().get_timer()
        if timer is None:
            return None
        if self._ladder.next_at < timer and self._is_usual:
            timer = self._ladder.next_at
        paced = self._paced_until
        return paced if paced is not None and paced < timer else timer

    def handle_timer(self, now: float) -> None:
        """Handle a passed deadline."""
        super().handle_timer(now)
        if self._congestion.swallows(now):
            self.too_large(now)

    @property
    def _is_usual(self) -> bool:
        """Whether the handshake is done and the connection neither closes nor migrates."""
        return (
            self._handshake_confirmed
            and self._state is QuicConnectionState.CONNECTED
            and not self._close_pending
            and self._network_paths[0].is_validated
        )

    def _burst_room(self, now: float) -> int:
        """Return the bytes that may be sent now: full datagrams, and one burst at most."""
        congestion, size = self._congestion, self._max_datagram_size
        room = min(max(0, congestion.window - congestion.bytes_in_flight), self._burst)
        self._paced_until = None
        model = congestion.model
        if model is not None and room >= size:
            room = min(room, model.room(now))
            if room < size and self._has_pending:
                self._paced_until = model.next_at
        return room - room % size

    @property
    def _has_pending(self) -> bool:
        """Whether a stream has data to send."""
        return any(len(stream.sender._pending) for stream in self._streams_queue)

    @property
    def _has_data(self) -> bool:
        """Whether a packet with stream data is likely to be sent."""
        return not all(stream.sender.buffer_is_empty for stream in self._streams_queue)

    def fill(self, now: float, room: int) -> list[tuple[bytes, NetworkAddress]]:
        """Build datagrams of pending data; at most `room` of their bytes count as in flight."""
        return self.build(now, room)

    def build(self, now: float, room: int) -> list[tuple[bytes, NetworkAddress]]:
        """Build as `fill`, packet by packet."""
        congestion, space = self._congestion, self._space
        if space.ack_at is not None and space.ack_at > now and self._has_data:
            space.ack_at = now  # an ACK is free in a packet that is sent anyway
        congestion.congestion_window = congestion.bytes_in_flight + room
        size = self._max_datagram_size
        if self._probe_pending and self._loss._pto_count >= _LARGE_PROBES:
            self._max_datagram_size = SMALLEST_DATAGRAM  # the size may be the cause
        try:
            return super().datagrams_to_send(now)
        finally:
            self._max_datagram_size = size
            congestion.congestion_window = congestion.window

    # --- the size of datagrams ----------------------------------------------------------------

    def _use_path(self, now: float) -> None:
        """Switch to the first path, or to the one to which the peer has migrated."""
        if self._path is not None:
            self._ladder.moved(now)
            self._resize(now)
        self._path = self._network_paths[0]

    def _size_probe(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """Make a packet of padding, of the size that is probed."""
        path = self._network_paths[0]
        self._probed_at = now
        size = self._ladder.probe(now)
        self._resize(now)
        if not size:
            return []
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            peer_cid=self._peer_cid.cid,
            version=self._version or QuicProtocolVersion.VERSION_1,
            is_client=self._is_client,
            max_datagram_size=size,
            packet_number=self._packet_number,
            spin_bit=self._spin_bit,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[tls.Epoch.ONE_RTT])
        frame = builder.start_frame(
            QuicFrameType.PING, handler=self._size_probe_over, handler_args=(size,)
        )
        frame.push_bytes(bytes(builder.remaining_buffer_space))  # PADDING is zeros
        number = self._packet_number
        datagrams = self._flush_builder(
            builder=builder, network_path=path, peer_cid=self._peer_cid.cid, now=now
        )
        sent = self._spaces[tls.Epoch.ONE_RTT].sent_packets
        sent[number] = SizeProbe.of(sent[number])
        return datagrams

    def _size_probe_over(self, delivery: QuicDeliveryState, size: int) -> None:
        now = self._probed_at
        if delivery is QuicDeliveryState.ACKED:
            self._ladder.arrived(size, now)
        else:
            self._ladder.lost(size, now)
        self._resize(now)

    @property
    def largest_datagram(self) -> int:
        """Bytes of the largest datagram that the route takes, as far as known."""
        return self._ladder.top

    def _resize(self, now: float) -> None:
        """Apply the datagram size of the ladder."""
        size = self._ladder.size
        if size != self._max_datagram_size or not self._burst:
            self._max_datagram_size = size
            self._burst = (BURST if size <= _LARGE else _LARGE_BURST) // size * size
            self._congestion.resize(size, now)

    def _initialize(self, peer_cid: bytes) -> None:
        for space in self._spaces.values():
            # After a Retry: packets sent before it will not be acknowledged.
            self._loss.discard_space(space)
        super()._initialize(peer_cid)
        # Kept, as finding them by an enum takes longer than most uses of them.
        self._space = self._spaces[tls.Epoch.ONE_RTT]
        self._pair = self._cryptos[tls.Epoch.ONE_RTT]
        self.tls = MutualContext(self.tls, self._judge, self._refused)

    def _write_stream_frame(
        self,
        builder: QuicPacketBuilder,
        space: QuicPacketSpace,
        stream: QuicStream,
        max_offset: int,
    ) -> int:
        # aioquic writes the length into two bytes, which hold 14 bits of it.
        end = stream.sender.next_offset + _LONGEST_FRAME
        return super()._write_stream_frame(builder, space, stream, min(max_offset, end))

    def _write_new_connection_id_frame(
        self, builder: QuicPacketBuilder, connection_id: QuicConnectionId
    ) -> None:
        if self._reset_secret is not None:
            token = reset_token(self._reset_secret, connection_id.cid)
            connection_id.stateless_reset_token = token
        super()._write_new_connection_id_frame(builder, connection_id)

    def _refused(self, reason: PeerRefusedError) -> None:
        self.refusal = reason

    def _judge(self, certificate: x509.Certificate | None) -> None:
        try:
            self.peer = self._verify_certificate(certificate)
        except PeerRefusedError as e:
            self._refused(e)
            raise PeerRefusedAlert(f"this node was refused: {e}") from e
