"""The status page's table of peers."""

from __future__ import annotations

from collections.abc import Iterable

from quafka_mesh_ops.counters import PeerCounters
from quafka_telemetry.status_page import Cell, PageTable, count, duration, size, text


def peer_table(read: Iterable[PeerCounters]) -> PageTable:
    """Make the table of the mesh's peers."""
    return PageTable(
        "Mesh",
        (
            "peer", "address", "state", "round trip", "datagram", "sent", "received",
            "lost", "bulk answers", "large ops", "ops", "credit used", "reconnects",
        ),
        (
            (
                text(peer.peer[:16]),
                text(peer.address),
                _state(peer),
                *_transport(peer),
                _bulk(peer),
                _large(peer),
                count(peer.ops),
                size(peer.credit_used_bytes),
                count(peer.reconnects),
            )
            for peer in read
        ),
    )  # fmt: skip


def _state(peer: PeerCounters) -> Cell:
    if peer.connected:
        return text("connected")
    return text(f"refused: {peer.refusal}" if peer.refusal else "disconnected", bad=True)


def _bulk(peer: PeerCounters) -> Cell:
    """The way of bulk answers, and the bytes that travelled over TLS."""
    way = "TLS" if peer.bulk_over_tls else "QUIC"
    if peer.bulk_tls_bytes:
        way += f", {size(peer.bulk_tls_bytes).text} over TLS"
    return text(way)


def _large(peer: PeerCounters) -> Cell:
    """The way of large ops, and the bytes that lay in shared memory."""
    way = "memory" if peer.memory_shared else "QUIC"
    if peer.memory_bytes:
        way += f", {size(peer.memory_bytes).text} in memory"
    return text(way)


def _transport(peer: PeerCounters) -> tuple[Cell, ...]:
    found = peer.transport
    if found is None:
        return (text(""),) * 5
    return (
        duration(found.rtt_us / 1e6),
        size(found.datagram_bytes),
        size(found.bytes_sent),
        size(found.bytes_received),
        count(found.packets_lost),
    )
