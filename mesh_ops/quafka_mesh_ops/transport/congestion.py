"""Congestion control for the mesh's usual path: one data centre, or one machine.

RFC 9002's NewReno starts at ten packets and needs many round trips to fill a fast path. On a
LAN the round trip is mostly our own processing time, so the window starts at 1 MiB. It is capped
at what the peer's socket buffer takes in, because that buffer is where a LAN loses packets.
"""

from __future__ import annotations

from collections.abc import Iterable

from aioquic.quic.congestion.base import QuicCongestionControl, register_congestion_control
from aioquic.quic.packet_builder import QuicSentPacket

LAN = "quafka-lan"
INITIAL_WINDOW = 1 << 20
MAXIMUM_WINDOW = 4 << 20
_MINIMUM_PACKETS = 4
_LOSS_FACTOR = 0.7


class LanCongestionControl(QuicCongestionControl):
    """NewReno with another start, a cap, and a milder reaction to loss (RFC 9438's 0.7).

    `window` is the window proper; the connection lowers `congestion_window` for one call to cut
    what it sends into bursts.
    """

    def __init__(self, *, max_datagram_size: int) -> None:
        super().__init__(max_datagram_size=max_datagram_size)
        self.bytes_in_flight = 0
        self.window = INITIAL_WINDOW
        self.congestion_window = INITIAL_WINDOW
        self._datagram_size = max_datagram_size
        self._recovery_start = 0.0
        self._acked = 0

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        """Grow: with every ACK before the first loss, then by one datagram per window."""
        self.bytes_in_flight -= packet.sent_bytes
        if (packet.sent_time or 0.0) <= self._recovery_start:
            return
        if self.ssthresh is None or self.window < self.ssthresh:
            self._set_window(self.window + packet.sent_bytes)
            return
        self._acked += packet.sent_bytes
        if self._acked >= self.window:
            self._acked = 0
            self._set_window(self.window + self._datagram_size)

    def on_packet_sent(self, *, packet: QuicSentPacket) -> None:
        """Count it as in flight."""
        self.bytes_in_flight += packet.sent_bytes

    def on_packets_expired(self, *, packets: Iterable[QuicSentPacket]) -> None:
        """Their data is sent again for another reason than loss."""
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        """Shrink once per round trip, however many packets it lost."""
        last_sent = 0.0
        for packet in packets:
            self.bytes_in_flight -= packet.sent_bytes
            last_sent = packet.sent_time or 0.0
        if last_sent > self._recovery_start:
            self._recovery_start = now
            self._set_window(int(self.window * _LOSS_FACTOR))
            self.ssthresh = self.window

    def on_persistent_congestion(self) -> None:
        """Start again from the smallest window (RFC 9002 section 7.6)."""
        self._recovery_start = 0.0
        self._set_window(0)

    def on_rtt_measurement(self, *, now: float, rtt: float) -> None:
        """Not used: on a LAN the round trip says more about our loop than about the path."""

    def _set_window(self, window: int) -> None:
        smallest = _MINIMUM_PACKETS * self._datagram_size
        self.window = self.congestion_window = max(smallest, min(window, MAXIMUM_WINDOW))


register_congestion_control(LAN, LanCongestionControl)
