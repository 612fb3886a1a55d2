"""Congestion control for the mesh, in one machine or data centre and over long paths.

RFC 9002's NewReno starts at ten packets and needs many round trips to fill a fast path. On a LAN
the round trip is mostly our own processing time, so the window starts at 2 MiB. It does not grow
beyond: bytes in flight queue in the peer's socket buffer, where they delay small answers and where
a LAN loses packets.

If the shortest round trip shows a long path, `BandwidthModel` takes over, and bursts are paced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.congestion.base import QuicCongestionControl, register_congestion_control
from aioquic.quic.packet_builder import QuicSentPacket

from quafka_mesh_ops.transport.bandwidth import BandwidthModel

MESH = "quafka"
WINDOW = 2 << 20
"""Bytes in flight on a short path, initially and at most: on one machine, about four milliseconds
of the peer's work. A larger window brings no gain there."""
_MINIMUM_PACKETS = 4
_LOSS_FACTOR = 0.7
LONG_PATH = 0.004
"""Seconds. A path whose round trips are never shorter is not a LAN."""
_SWALLOWED_SECONDS = 0.5
_SWALLOWED_PACKETS = 4


class SizeProbe(QuicSentPacket):
    """A packet that probes whether the path takes its size (ladder.py).

    Its loss is no sign of congestion (RFC 8899 section 3).
    """

    @classmethod
    def of(cls, packet: QuicSentPacket) -> SizeProbe:
        """Make one of the record of a sent packet."""
        return cls(**{each.name: getattr(packet, each.name) for each in fields(packet)})


class MeshCongestionControl(QuicCongestionControl):
    """NewReno on a short path, with another start, a cap, and a milder reaction to loss (RFC 9438's
    0.7); the bandwidth model on a long one.

    `window` is the real window; the connection lowers `congestion_window` for single calls, to send
    in bursts.
    """

    def __init__(self, *, max_datagram_size: int) -> None:
        super().__init__(max_datagram_size=max_datagram_size)
        self.bytes_in_flight = 0
        self.congestion_window = WINDOW
        self.model: BandwidthModel | None = None
        self._window = WINDOW
        self._shortest = float("inf")
        self._datagram_size = max_datagram_size
        self._recovery_start = 0.0
        self._acked = 0
        self._large_lost = 0
        self._large_lost_at = 0.0
        self._lost_size = 1 << 16
        self._smaller_acked_at = 0.0
        self._resized_at = 0.0

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._window if self.model is None else self.model.window

    def burst_sent(self, number: int, size: int, now: float, *, limited: bool) -> None:
        """Record a burst; see `BandwidthModel.sent`."""
        if self.model is not None and size:
            self.model.sent(number, size, now, self.bytes_in_flight, limited=limited)

    def resize(self, datagram_size: int, now: float) -> None:
        """Set the size of datagrams."""
        self._datagram_size = datagram_size
        self._resized_at = now
        self._large_lost = 0
        self._lost_size = 1 << 16
        if self.model is not None:
            self.model.datagram_size = datagram_size
        else:
            self._set_window(self._window)

    def swallows(self, now: float) -> bool:
        """Whether large packets vanish on this path while smaller ones arrive."""
        return (
            self._large_lost >= _SWALLOWED_PACKETS
            and now - self._large_lost_at > _SWALLOWED_SECONDS
            and self._smaller_acked_at > self._large_lost_at
        )

    # --- QuicCongestionControl --------------------------------------------------------------

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        """Grow the window: after a stall with every ACK, after a loss by a datagram per window."""
        size = packet.sent_bytes
        self.on_acked(packet.packet_number, size, size, packet.sent_time or 0.0, now)

    def on_acked(self, last: int, size: int, largest: int, sent_time: float, now: float) -> None:
        """React as `on_packet_acked` to packets up to number `last` that were sent together.

        `size`: bytes of all; `largest`: of the largest one.
        """
        self.bytes_in_flight -= size
        if largest < self._lost_size:
            self._smaller_acked_at = now
        else:
            self._large_lost = 0
            self._lost_size = 1 << 16
        if self.model is not None:
            self.model.acked(last, size, now)
            return
        if sent_time <= self._recovery_start:
            return
        if self._window >= WINDOW:
            return
        if self.ssthresh is None or self._window < self.ssthresh:
            self._set_window(self._window + size)
            return
        self._acked += size
        if self._acked >= self._window:
            self._acked = 0
            self._set_window(self._window + self._datagram_size)

    def on_packet_sent(self, *, packet: QuicSentPacket) -> None:
        """Count the packet as in flight."""
        self.bytes_in_flight += packet.sent_bytes

    def on_packets_expired(self, *, packets: Iterable[QuicSentPacket]) -> None:
        """Stop counting packets whose data is sent again for another reason than loss."""
        for packet in packets:
            self._gone(packet)

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        """Shrink the window once per round trip, however many packets it lost."""
        last_sent = 0.0
        for packet in packets:
            self._gone(packet)
            last_sent = packet.sent_time or 0.0
        if last_sent > self._recovery_start and self.model is None:
            self._recovery_start = now
            self._set_window(int(self._window * _LOSS_FACTOR))
            self.ssthresh = self._window

    def on_persistent_congestion(self) -> None:
        """Restart from the smallest window (RFC 9002 section 7.6)."""
        self._recovery_start = 0.0
        if self.model is not None:
            self.model.stalled()
        else:
            self._set_window(0)

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        """Tell a long path from a short one by its shortest round trip."""
        self._shortest = min(self._shortest, rtt)
        if self._shortest <= LONG_PATH:
            if self.model is not None:  # the first round trips were slow for another reason
                self.model = None
                self._set_window(WINDOW)
            return
        if self.model is None:
            self.model = BandwidthModel(self._datagram_size, now, rtt)
        self.model.acks_done(now, rtt, self.bytes_in_flight)

    def _gone(self, packet: QuicSentPacket) -> None:
        self.bytes_in_flight -= packet.sent_bytes
        if packet.sent_bytes <= SMALLEST_MAX_DATAGRAM_SIZE or type(packet) is SizeProbe:
            return
        sent = packet.sent_time or 0.0
        if sent > self._resized_at:
            if not self._large_lost:
                self._large_lost_at = sent
            self._large_lost += 1
            self._lost_size = min(self._lost_size, packet.sent_bytes)

    def _set_window(self, window: int) -> None:
        smallest = _MINIMUM_PACKETS * self._datagram_size
        self._window = self.congestion_window = max(smallest, min(window, WINDOW))


register_congestion_control(MESH, MeshCongestionControl)
