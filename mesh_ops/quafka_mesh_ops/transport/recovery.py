"""Loss recovery with counters, which accounts for adjacent packets together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aioquic import tls
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicDeliveryState, QuicSentPacket
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import QuicPacketRecovery, QuicPacketSpace
from aioquic.quic.stream import QuicStream

from quafka_mesh_ops.transport.small import SmallPacket

_LEAST_ROUND_TRIP = 0.001
"""Seconds, as aioquic has it: below it a round trip is the event loops' time, not the path's."""


class BulkPacket:
    """The record of a sent packet that holds only one STREAM frame.

    It replaces aioquic's QuicSentPacket at a third of the cost.
    """

    __slots__ = ("fin", "packet_number", "sent_bytes", "sent_time", "start", "stop", "stream")

    epoch = tls.Epoch.ONE_RTT
    in_flight = True
    is_ack_eliciting = True
    is_crypto_packet = False
    packet_type = QuicPacketType.ONE_RTT

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


class SizeProbe(QuicSentPacket):
    """A packet that probes whether the path takes its size (ladder.py).

    Its loss is no sign of congestion (RFC 8899 section 3).
    """


class CountingRecovery(QuicPacketRecovery):
    """Counts lost and retransmitted packets, and adds no other state."""

    lost = 0
    retransmitted = 0

    def _on_packets_lost(
        self,
        *,
        congestion_event: bool = True,
        now: float,
        packets: Iterable[QuicSentPacket],
        persistent_congestion: bool = False,
        space: QuicPacketSpace,
    ) -> None:
        packets = list(packets)
        probes = [packet for packet in packets if type(packet) is SizeProbe]
        if probes:
            super()._on_packets_lost(congestion_event=False, now=now, packets=probes, space=space)
        packets = [packet for packet in packets if type(packet) is not SizeProbe]
        self.retransmitted += len(packets)
        if congestion_event:
            self.lost += len(packets)
        super()._on_packets_lost(
            congestion_event=congestion_event,
            now=now,
            packets=packets,
            persistent_congestion=persistent_congestion,
            space=space,
        )


class BurstRecovery(CountingRecovery):
    """Accounts for acknowledged packets of ours in one pass.

    Attributes:
        settled: whether, since the connection last had no chores, only ACKs and stream data were
            exchanged (see chores.py).
    """

    settled = False

    def on_ack_received(
        self, *, ack_rangeset: RangeSet, ack_delay: float, now: float, space: QuicPacketSpace
    ) -> None:
        self.acked(ack_rangeset, ack_delay, now, space)

    def acked(
        self, acked: Sequence[range], ack_delay: float, now: float, space: QuicPacketSpace
    ) -> None:
        """Process an ACK frame, as `on_ack_received`. `acked`: ascending ranges, at least one."""
        largest = acked[-1].stop - 1
        if largest > space.largest_acked_packet:
            space.largest_acked_packet = largest
        newest, elicited = self._settle(acked, now, space)
        if newest is None:
            return
        if newest.packet_number == largest and elicited:
            self._measure(now - (newest.sent_time or 0.0), min(ack_delay, self.max_ack_delay), now)
        sent = space.sent_packets
        if sent and next(iter(sent)) < space.largest_acked_packet:
            self._detect_loss(now=now, space=space)
        else:
            space.loss_time = None
        if self.peer_completed_address_validation:
            self._pto_count = 0

    def _settle(
        self, acked: Sequence[range], now: float, space: QuicPacketSpace
    ) -> tuple[QuicSentPacket | None, bool]:
        """Settle the acknowledged packets.

        Returns the newest one, and whether one of them elicited an ACK.
        """
        sent: dict[int, Any] = space.sent_packets
        newest: Any = None
        run: BulkPacket | None = None
        eliciting = 0
        if not sent:
            return None, False
        # Only numbers in flight are visited, whatever ranges the peer acknowledges.
        first, last = next(iter(sent)), next(reversed(sent))
        for numbers in acked:
            for number in range(max(first, numbers.start), min(last + 1, numbers.stop)):
                packet = sent.pop(number, None)
                if packet is None:
                    continue
                newest = packet
                eliciting += packet.is_ack_eliciting
                if packet.in_flight:
                    self._cc.on_packet_acked(packet=packet, now=now)
                if type(packet) is BulkPacket:
                    run = _add_to_run(packet, run)
                elif type(packet) is SmallPacket:
                    packet.acknowledged()
                else:
                    self._deliver_stock(packet)
        if run is not None:
            _deliver(run)
        space.ack_eliciting_in_flight -= eliciting
        return newest, bool(eliciting)

    def _deliver_stock(self, packet: QuicSentPacket) -> None:
        self.settled = False
        for handler, arguments in packet.delivery_handlers:
            handler(QuicDeliveryState.ACKED, *arguments)

    def _measure(self, latest: float, ack_delay: float, now: float) -> None:
        """Update the round trip (RFC 9002 section 5), which is at least a millisecond."""
        rtt = max(latest, _LEAST_ROUND_TRIP)
        self._rtt_min = min(self._rtt_min, rtt)
        # The RFC subtracts nothing if that falls below the shortest; on a LAN it always would.
        self._rtt_latest = rtt = max(rtt - ack_delay, self._rtt_min)
        if self._rtt_initialized:
            self._rtt_variance += (abs(self._rtt_min - rtt) - self._rtt_variance) / 4
            self._rtt_smoothed += (rtt - self._rtt_smoothed) / 8
        else:
            self._rtt_first_sample_time = now
            self._rtt_initialized = True
            self._rtt_variance = latest / 2
            self._rtt_smoothed = latest
        # Without the time for which the peer kept the ACK back: that is not the path's.
        self._cc.on_rtt_measurement(now=now, rtt=min(latest, rtt))

    def _on_packets_lost(
        self,
        *,
        congestion_event: bool = True,
        now: float,
        packets: Iterable[QuicSentPacket],
        persistent_congestion: bool = False,
        space: QuicPacketSpace,
    ) -> None:
        self.settled = False
        super()._on_packets_lost(
            congestion_event=congestion_event,
            now=now,
            packets=packets,
            persistent_congestion=persistent_congestion,
            space=space,
        )


def _add_to_run(packet: BulkPacket, run: BulkPacket | None) -> BulkPacket:
    """Return `run` grown by the packet's data; the packet if it begins another run."""
    if run is None:
        return packet
    if run.stream is packet.stream and run.stop == packet.start:
        run.stop, run.fin = packet.stop, packet.fin
        return run
    _deliver(run)
    return packet


def _deliver(run: BulkPacket) -> None:
    run.stream.sender.on_data_delivery(QuicDeliveryState.ACKED, run.start, run.stop, run.fin)
