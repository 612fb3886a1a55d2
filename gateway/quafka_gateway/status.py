"""The sections of a gateway's `/statusz`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from quafka_gateway.context import Services
from quafka_gateway.edge.listeners import Listeners
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.stats import GatewayStats, SlowRequest
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.peer_table import peer_table
from quafka_proto.errors import ErrorCode
from quafka_telemetry import status_page
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    Section,
    Table,
    count,
    duration,
    moment,
    size,
    text,
)


def sections(
    services: Services,
    listeners: Listeners,
    readers: Sequence[FetchReader],
    peers: Callable[[], list[PeerCounters]],
    trace_url: str,
) -> Iterator[Section]:
    """Yield the sections of a gateway that serves clients."""
    stats = services.stats
    yield _clients(services, listeners)
    yield _fetches(services, readers)
    yield peer_table(peers())
    yield _requests(stats)
    yield _slow(stats, trace_url)


def _clients(services: Services, listeners: Listeners) -> Facts:
    stats = services.stats
    advertised = ", ".join(str(each.advertised_endpoint) for each in services.listeners)
    return Facts(
        "Clients",
        [
            ("advertised listeners", text(advertised)),
            ("connections", count(listeners.connections)),
            ("connection limit", count(listeners.max_connections)),
            ("refused above the limit", count(stats.refused, bad=stats.refused > 0)),
            ("protocol errors", count(stats.malformed)),
            ("bytes received", size(stats.received)),
            ("bytes sent", size(stats.sent)),
            ("request bytes buffered", size(services.request_memory.held)),
            ("response bytes buffered", size(services.response_memory.held)),
        ],
    )


def _fetches(services: Services, readers: Sequence[FetchReader]) -> Facts:
    sessions = services.tenant.fetch_sessions
    placed = [reader.placed for reader in readers]
    return Facts(
        "Fetches",
        [
            ("answered from the cache", count(sum(reader.hits for reader in readers))),
            (
                "read from the broker, then answered",
                count(sum(reader.misses for reader in readers)),
            ),
            ("passed to the broker", count(sum(reader.polls for reader in readers))),
            ("parked at the broker now", count(sum(reader.parked for reader in readers))),
            ("cached bytes", size(sum(reader.cached_bytes for reader in readers))),
            ("bytes read by place", size(sum(each.bytes_by_place for each in placed))),
            ("bytes read by value", size(sum(each.bytes_by_value for each in placed))),
            ("fetch sessions", count(len(sessions))),
            ("partitions in fetch sessions", count(sessions.partitions)),
        ],
    )


def _requests(stats: GatewayStats) -> Table:
    return Table(
        "Requests",
        ("API", "answered", "with errors", "median", "99 %", "parked, each"),
        (
            status_page.served(api, one.requests, one.errors, one.seconds, one.parked)
            for api, one in sorted(stats.apis.items())
        ),
        "none yet",
    )


def _slow(stats: GatewayStats, trace_url: str) -> Table:
    return Table(
        f"Slow requests: {stats.slow_seconds:g} s or longer, without parked time",
        ("ended", "API", "client", "address", "took", "parked", "errors", "trace"),
        (_slow_row(each, trace_url) for each in reversed(list(stats.slow))),
    )


def _slow_row(each: SlowRequest, trace_url: str) -> tuple[Cell, ...]:
    errors = ", ".join(map(ErrorCode.name_of, each.errors))
    return (
        moment(each.at),
        text(each.api),
        text(each.client_id),
        text(each.peer),
        duration(each.seconds),
        duration(each.parked or None),
        text(errors, bad=bool(errors)),
        status_page.trace(each.trace_id, trace_url),
    )
