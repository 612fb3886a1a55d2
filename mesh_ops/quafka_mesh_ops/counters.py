"""The counters of each peer, as a page and as metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from quafka_mesh_ops.node_ids import NodeId
from quafka_mesh_ops.transport.aioquic_adapter.counters import TransportCounters
from quafka_mesh_ops.transport.connection_limits import NodeConnectionLimits
from quafka_telemetry.metrics import Family, FamilyKind, Sample, gauge
from quafka_telemetry.operations import Page, PageReply, PageRequest


@dataclass(frozen=True, slots=True)
class PeerCounters:
    """The current figures of one peer.

    Attributes:
        peer: its node id; empty before the first connection.
        address: its address, "host:port".
        connected: whether ops can be exchanged.
        refusal: why the peer refuses our connection; empty: it does not.
        reconnects: connections after the first, since the start of this process.
        ops: unanswered ops, sent or received.
        credit_used_bytes: bytes of unanswered requests, `credit_bytes` at most.
        backlog_bytes: bytes of replies that the peer has not acknowledged.
        bulk_over_tls: whether bulk replies travel over TLS.
        bulk_tls_bytes: bytes of bulk replies that travelled over TLS.
        memory_shared: whether large ops lie in memory that both ends share.
        memory_bytes: bytes of ops that lay there.
        refused_ops: ops that our allow-list does not permit, since the start of this process.
        transport: the counters of the current connection; None without one.
    """

    peer: NodeId
    address: str
    connected: bool
    refusal: str = ""
    reconnects: int = 0
    ops: int = 0
    credit_used_bytes: int = 0
    credit_bytes: int = 0
    backlog_bytes: int = 0
    bulk_over_tls: bool = False
    bulk_tls_bytes: int = 0
    memory_shared: bool = False
    memory_bytes: int = 0
    refused_ops: int = 0
    transport: TransportCounters | None = None


def mesh_page(read: Callable[[], Iterable[PeerCounters]]) -> Page:
    """Make the operations port's page `/mesh`: every peer, as JSON."""

    async def page(_asked: PageRequest) -> PageReply:
        body = {"peers": [asdict(peer) for peer in read()]}
        return PageReply(json.dumps(body, indent=1).encode() + b"\n", "application/json")

    return page


def mesh_families(read: Callable[[], Iterable[PeerCounters]]) -> Iterator[Family]:
    """Yield the same figures as metrics: a family for each counter, by peer.

    A peer may have several connections (the workers of a gateway are one node), which the address
    tells apart. The counters of the transport start at 0 with each connection.
    """
    peers = list(read())
    labels = ("peer", "address")
    for name in _OWN:
        samples = [(_labels(peer), int(getattr(peer, name))) for peer in peers]
        kind = FamilyKind.COUNTER if name in _COUNTED else FamilyKind.GAUGE
        yield Family(f"quafka_mesh_{name}", kind, f"Mesh peer: {_in_words(name)}", samples, labels)
    for name in _TRANSPORT:
        kind = FamilyKind.COUNTER if name.startswith(("bytes_", "packets_")) else FamilyKind.GAUGE
        base = re.sub("_us$", "_seconds", name)
        help_ = f"Connection to a mesh peer: {_in_words(base)}"
        yield Family(f"quafka_mesh_{base}", kind, help_, list(_of_transport(name, peers)), labels)


def limit_families(limits: NodeConnectionLimits) -> Iterator[Family]:
    """Yield the number of connections, and of those refused because there were too many."""
    yield gauge("quafka_mesh_connections", "Mesh connections of all nodes", limits.used)
    yield gauge("quafka_mesh_connections_limit", "The most that are accepted", limits.most)
    samples = [((bound,), count) for bound, count in sorted(limits.refused.items())]
    help_ = "Mesh connections that were refused, by the limit that was reached"
    yield Family("quafka_mesh_refused_connections", FamilyKind.COUNTER, help_, samples, ("limit",))


def handshake_families(read: Callable[[], Mapping[str, int]]) -> Iterator[Family]:
    """Yield the numbers of first packets from unknown peers (transport/strangers.py)."""
    samples = [((outcome,), count) for outcome, count in sorted(read().items())]
    help_ = "First packets of peers that were not connected, by outcome"
    yield Family("quafka_mesh_first_packets", FamilyKind.COUNTER, help_, samples, ("outcome",))


_OWN = [field.name for field in fields(PeerCounters)[2:-1] if field.name != "refusal"]
_COUNTED = ("bulk_tls_bytes", "memory_bytes", "reconnects", "refused_ops")
_TRANSPORT = [field.name for field in fields(TransportCounters)]


def _of_transport(name: str, peers: Iterable[PeerCounters]) -> Iterator[Sample]:
    for peer in peers:
        if peer.transport is not None:
            value: int = getattr(peer.transport, name)
            yield _labels(peer), value / 1e6 if name.endswith("_us") else value


def _labels(peer: PeerCounters) -> tuple[str, str]:
    return peer.peer[:16], peer.address


def _in_words(name: str) -> str:
    return name.replace("_", " ")
