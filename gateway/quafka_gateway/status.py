"""The sections of a gateway's `/statusz`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quafka_gateway.context import Services
from quafka_gateway.edge.listeners import Listeners
from quafka_gateway.stats import GatewayStats, SlowRequest
from quafka_gateway.tenant import Tenant
from quafka_mesh_ops.counters import PeerCounters
from quafka_mesh_ops.peer_table import peer_table
from quafka_proto.errors import ErrorCode
from quafka_telemetry import status_page
from quafka_telemetry.expected_errors import failures, is_expected
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    PageTable,
    Section,
    count,
    duration,
    moment,
    size,
    text,
)


def sections(
    services: Services,
    listeners: Listeners,
    peers: Callable[[], list[PeerCounters]],
    trace_url: str,
) -> Iterator[Section]:
    """Yield the sections of a gateway that serves clients."""
    stats = services.stats
    yield _clients(services, listeners)
    yield _orgs(services)
    yield _fetches(services)
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
            ("unauthenticated", count(len(listeners.handshakes.unauthenticated))),
            *_tls(listeners),
            ("protocol errors", count(stats.malformed)),
            ("bytes received", size(stats.received)),
            ("bytes sent", size(stats.sent)),
            ("request bytes buffered", size(services.request_memory.held)),
            ("response bytes buffered", size(services.response_memory.held)),
        ],
    )


def _tls(listeners: Listeners) -> Iterator[tuple[str, Cell]]:
    """The facts about TLS, if any listener has it."""
    if listeners.tls:
        yield "TLS handshakes", count(listeners.handshakes.finished.total())
        yield "failed TLS handshakes", count(listeners.handshakes.failed.total())
    for name, tls in listeners.tls.items():
        yield f"certificate of {name} ends", moment(tls.expires.timestamp())


def _orgs(services: Services) -> PageTable:
    return PageTable(
        "Orgs",
        ("org", "name", "connections", "requests", "received", "sent", "cached", "sessions"),
        (_org_row(tenant) for tenant in services.tenants),
    )


def _org_row(tenant: Tenant) -> tuple[Cell, ...]:
    traffic, figures = tenant.traffic, tenant.figures()
    return (
        text(str(tenant.org_id)),
        text(tenant.name),
        count(len(tenant.clients)),
        count(traffic.requests),
        size(traffic.received),
        size(traffic.sent),
        size(figures.cached_bytes),
        count(figures.sessions),
    )


def _fetches(services: Services) -> Facts:
    figures = services.tenants.figures()
    return Facts(
        "Fetches",
        [
            ("answered from the cache", count(figures.hits)),
            ("read from the broker, then answered", count(figures.misses)),
            ("passed to the broker", count(figures.polls)),
            ("parked at the broker now", count(figures.parked)),
            ("cached bytes", size(figures.cached_bytes)),
            ("bytes read by place", size(figures.by_place)),
            ("bytes read by value", size(figures.by_value)),
            ("fetch sessions", count(figures.sessions)),
            ("partitions in fetch sessions", count(figures.session_partitions)),
        ],
    )


def _requests(stats: GatewayStats) -> PageTable:
    return PageTable(
        "Requests",
        ("API", "answered", "with errors", "median", "99 %", "parked, each"),
        (
            status_page.served(
                api, one.requests, failures(one.errors, api), one.seconds, one.parked
            )
            for api, one in sorted(stats.apis.items())
        ),
        "none yet",
    )


def _slow(stats: GatewayStats, trace_url: str) -> PageTable:
    return PageTable(
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
        text(errors, bad=not all(is_expected(code, each.api) for code in each.errors)),
        status_page.trace(each.trace_id, trace_url),
    )
