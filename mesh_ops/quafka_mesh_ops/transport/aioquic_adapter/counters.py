"""The counters of a QUIC connection, read on demand."""

# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

from dataclasses import dataclass

from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.aioquic_adapter.recovery import CountingRecovery


@dataclass(frozen=True, slots=True)
class TransportCounters:
    """Counters of one connection since its first packet; bytes are UDP payload.

    `rtt_us`: smoothed round-trip time; `rtt_min_us`: the shortest; both 0 before a measurement.
    `packets_lost`: declared lost after later packets were acknowledged. `packets_retransmitted`:
    these, and packets whose data was sent again because no acknowledgement came in time.
    """

    rtt_us: int
    rtt_min_us: int
    datagram_bytes: int
    packets_sent: int
    packets_lost: int
    packets_retransmitted: int
    bytes_sent: int
    bytes_received: int
    congestion_window_bytes: int
    in_flight_bytes: int
    streams: int


def read(quic: MeshQuic) -> TransportCounters:
    """Return the current counters of a connection."""
    loss = quic._loss
    assert isinstance(loss, CountingRecovery)
    measured = loss._rtt_initialized
    return TransportCounters(
        rtt_us=round(loss._rtt_smoothed * 1e6) if measured else 0,
        rtt_min_us=round(loss._rtt_min * 1e6) if measured else 0,
        datagram_bytes=quic.datagram_size,
        packets_sent=quic._packet_number,
        packets_lost=loss.lost,
        packets_retransmitted=loss.retransmitted,
        bytes_sent=sum(path.bytes_sent for path in quic._network_paths),
        bytes_received=quic.bytes_received,
        congestion_window_bytes=loss.congestion_window,
        in_flight_bytes=loss.bytes_in_flight,
        streams=len(quic._streams),
    )
