"""Loss recovery with counters, which accounts for adjacent packets together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aioquic.quic.packet_builder import QuicDeliveryState, QuicSentPacket
from aioquic.quic.rangeset import RangeSet
from aioquic.quic.recovery import (
    K_PACKET_THRESHOLD,
    K_TIME_THRESHOLD,
    QuicPacketRecovery,
    QuicPacketSpace,
)

from quafka_mesh_ops.transport.aioquic_adapter.bulk import BulkBurst, BulkPacket
from quafka_mesh_ops.transport.aioquic_adapter.small import SmallPacket
from quafka_mesh_ops.transport.congestion import MeshCongestionControl, SizeProbe

_LEAST_ROUND_TRIP = 0.001
"""Seconds, as aioquic has it: below it a round trip is the event loops' time, not the path's."""


class CountingRecovery(QuicPacketRecovery):
    """Counts lost and retransmitted packets."""

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
        number, sent_time = newest
        if number == largest and elicited:
            self._measure(now - sent_time, min(ack_delay, self.max_ack_delay), now)
        sent = space.sent_packets
        if sent and next(iter(sent)) < space.largest_acked_packet:
            self._detect_loss(now=now, space=space)
        else:
            space.loss_time = None
        if self.peer_completed_address_validation:
            self._pto_count = 0

    def _settle(
        self, acked: Sequence[range], now: float, space: QuicPacketSpace
    ) -> tuple[tuple[int, float] | None, bool]:
        """Settle the acknowledged packets.

        Returns number and time of the newest one, and whether one of them elicited an ACK.
        """
        sent: dict[int, Any] = space.sent_packets
        newest: tuple[int, float] | None = None
        eliciting = 0
        if not sent:
            return None, False
        # Only numbers in flight are visited, whatever ranges the peer acknowledges.
        first, last = next(iter(sent)), next(reversed(sent))
        for numbers in acked:
            number, stop = max(first, numbers.start), min(last + 1, numbers.stop)
            while number < stop:
                packet = sent.get(number)
                if type(packet) is BulkBurst:
                    following = min(stop, packet.last + 1)
                    eliciting += self._settle_burst(packet, number, following, now, sent)
                    newest = (following - 1, packet.sent_time)
                    number = following
                    continue
                if packet is not None:
                    del sent[number]
                    eliciting += packet.is_ack_eliciting
                    self._settle_packet(packet, now)
                    newest = (number, packet.sent_time or 0.0)
                number += 1
        space.ack_eliciting_in_flight -= eliciting
        return newest, bool(eliciting)

    def _settle_burst(
        self, burst: BulkBurst, start: int, stop: int, now: float, sent: dict[int, Any]
    ) -> int:
        """Settle the packets of a burst from `start` to `stop` that are not; returns how many."""
        found = [number for number in range(start, stop) if sent.pop(number, None) is burst]
        if len(found) == stop - start:
            first, last = burst.bounds(start, stop - 1)
            size = last - first + (stop - start) * burst.overhead
            self._congestion.on_acked(stop - 1, size, burst.sent_bytes, burst.sent_time, now)
            burst.delivered(start, stop - 1)
        else:
            for number in found:
                self._settle_packet(burst.packet(number), now)
        return len(found)

    def _settle_packet(self, packet: Any, now: float) -> None:
        if packet.in_flight:
            self._cc.on_packet_acked(packet=packet, now=now)
        if type(packet) is SmallPacket:
            packet.acknowledged()
        else:
            self._deliver_stock(packet)

    def _deliver_stock(self, packet: Any) -> None:
        self.settled = self.settled and type(packet) is BulkPacket
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

    def _detect_loss(self, *, now: float, space: QuicPacketSpace) -> None:
        """Find lost packets (RFC 9002 section 6.1); times of sending rise with the numbers."""
        round_trip = max(self._rtt_latest, self._rtt_smoothed)
        delay = K_TIME_THRESHOLD * (round_trip if self._rtt_initialized else self._rtt_initial)
        largest = space.largest_acked_packet
        lost: list[Any] = []
        space.loss_time = None
        for number, packet in space.sent_packets.items():
            if number > largest:
                break
            sent_time = packet.sent_time or 0.0
            if number > largest - K_PACKET_THRESHOLD and sent_time > now - delay:
                space.loss_time = sent_time + delay
                break
            lost.append(_single(packet, number))
        if lost:
            persistent = self._in_persistent_congestion(packets=lost)
            self._on_packets_lost(
                now=now, packets=lost, persistent_congestion=persistent, space=space
            )

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
        packets = [self._oldest(packet, space) for packet in packets]
        super()._on_packets_lost(
            congestion_event=congestion_event,
            now=now,
            packets=packets,
            persistent_congestion=persistent_congestion,
            space=space,
        )

    def _oldest(self, packet: Any, space: QuicPacketSpace) -> Any:
        """Return the packet; of a burst, which aioquic takes for one, the oldest in flight."""
        if type(packet) is not BulkBurst:
            return packet
        sent: dict[int, Any] = space.sent_packets
        return packet.packet(next(number for number in packet.numbers if number in sent))

    @property
    def _congestion(self) -> MeshCongestionControl:
        assert isinstance(self._cc, MeshCongestionControl)
        return self._cc


def _single(packet: Any, number: int) -> Any:
    return packet.packet(number) if type(packet) is BulkBurst else packet
