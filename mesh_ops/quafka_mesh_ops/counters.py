"""What a node counts of each peer, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from quafka_mesh_ops.identity import NodeId
from quafka_mesh_ops.operations import Page, Reply
from quafka_mesh_ops.transport.counters import TransportCounters


@dataclass(frozen=True, slots=True)
class PeerCounters:
    """One peer, now.

    Attributes:
        peer: its node id; empty before it has first been connected.
        address: where it is, "host:port".
        connected: whether ops reach it, or can come from it.
        reconnects: connections beyond the first, since this process began.
        ops: sent, or received, and unanswered.
        credit_used_bytes: of requests that are unanswered, of `credit_bytes` at most.
        backlog_bytes: of replies that the peer has not acknowledged.
        transport: of the present connection; None without one.
    """

    peer: NodeId
    address: str
    connected: bool
    reconnects: int
    ops: int
    credit_used_bytes: int
    credit_bytes: int
    backlog_bytes: int
    transport: TransportCounters | None


def mesh_page(read: Callable[[], Iterable[PeerCounters]]) -> Page:
    """The operations port's `/mesh`: every peer, as JSON."""

    async def page() -> Reply:
        body = {"peers": [asdict(peer) for peer in read()]}
        return Reply(json.dumps(body, indent=1).encode() + b"\n", "application/json")

    return page
