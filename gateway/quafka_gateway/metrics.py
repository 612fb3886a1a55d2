"""A gateway's metrics, read at each scrape from counters that the gateway keeps anyway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quafka_gateway.context import Services
from quafka_gateway.edge.listeners import Listeners
from quafka_gateway.edge.tls.handshake import FAILURES
from quafka_gateway.listeners import TLS_VERSIONS
from quafka_gateway.security.audit import AuditLog
from quafka_gateway.stats import GatewayStats
from quafka_gateway.tenants import OTHER
from quafka_proto.errors import ErrorCode
from quafka_telemetry.expected_errors import expected_label
from quafka_telemetry.metrics import Family, FamilyKind, counter, gauge


@dataclass(frozen=True, slots=True)
class GatewayMetrics:
    """The metric families of a gateway that serves clients."""

    services: Services
    listeners: Listeners

    def collect(self) -> Iterator[Family]:
        """Yield all families."""
        yield from self._requests(self.services.stats)
        yield from self._clients(self.services.stats)
        yield from self._unauthenticated()
        yield from self._tls()
        yield from self._sasl()
        yield from self._directory()
        yield from self._orgs()
        yield from self._quotas()
        yield from self._fetches()

    def _directory(self) -> Iterator[Family]:
        directory = self.services.directory
        yield gauge(
            "quafka_gateway_security_complete",
            "1 once the gateway has a copy of all users and ACLs of its orgs",
            int(directory.complete),
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_security_current",
            "1 while changes of users and ACLs reach the gateway at once",
            int(not directory.problem),
        )  # fmt: skip

    def _requests(self, stats: GatewayStats) -> Iterator[Family]:
        apis = sorted(stats.apis.items())
        served = sorted(api.name for api in self.services.apis.values())
        yield Family(
            "quafka_gateway_requests", FamilyKind.COUNTER, "Requests answered",
            [((api,), stats.apis[api].requests if api in stats.apis else 0) for api in served],
            ("api",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_errors", FamilyKind.COUNTER,
            "Requests answered with this error, for the whole request or a part of it; "
            "expected: the error is a step of Kafka's protocol",
            [
                ((api, ErrorCode.name_of(code), expected_label(code, api)), count)
                for api, one in apis
                for code, count in sorted(one.errors.items())
            ],
            ("api", "error", "expected"),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_duration_seconds", FamilyKind.HISTOGRAM,
            "Time from a request's beginning to its response, without the time parked",
            [((api,), one.seconds) for api, one in apis], ("api",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_parked_seconds", FamilyKind.COUNTER,
            "Time that requests were parked for records or for other members of their group",
            [((api,), one.parked) for api, one in apis], ("api",),
        )  # fmt: skip
        yield from _audit(self.services.audit)
        yield counter(
            "quafka_gateway_malformed_requests", "Connections closed for protocol errors",
            stats.malformed,
        )  # fmt: skip

    def _clients(self, stats: GatewayStats) -> Iterator[Family]:
        yield counter(
            "quafka_gateway_received_bytes", "Bytes of requests from clients", stats.received
        )
        yield counter("quafka_gateway_sent_bytes", "Bytes of responses to clients", stats.sent)
        listeners = self.listeners
        yield gauge("quafka_gateway_connections", "Client connections", listeners.connections)
        yield gauge(
            "quafka_gateway_connections_limit",
            "Limit of client connections",
            listeners.max_connections,
        )
        yield counter(
            "quafka_gateway_connections_accepted", "Client connections accepted", stats.accepted
        )
        yield counter(
            "quafka_gateway_connections_refused",
            "Client connections refused above the limit",
            stats.refused,
        )
        services = self.services
        yield gauge(
            "quafka_gateway_request_memory_bytes",
            "Request bytes buffered",
            services.request_memory.held,
        )
        yield counter(
            "quafka_gateway_evicted_connections",
            "Connections closed because their requests held too much memory",
            services.request_memory.evicted,
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_response_memory_bytes",
            "Response bytes buffered",
            services.response_memory.held,
        )

    def _unauthenticated(self) -> Iterator[Family]:
        unauthenticated = self.listeners.handshakes.unauthenticated
        yield gauge(
            "quafka_gateway_unauthenticated_connections",
            "Connections in a TLS handshake, or that have not authenticated yet",
            len(unauthenticated),
        )
        yield counter(
            "quafka_gateway_evicted_unauthenticated_connections",
            "Connections closed before they had authenticated, because there were too many",
            unauthenticated.evicted,
        )  # fmt: skip

    def _tls(self) -> Iterator[Family]:
        if not self.listeners.tls:
            return
        handshakes = self.listeners.handshakes
        yield Family(
            "quafka_gateway_tls_handshakes", FamilyKind.COUNTER, "TLS handshakes with clients",
            [((each,), handshakes.finished[each]) for each in TLS_VERSIONS], ("version",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_failed_tls_handshakes", FamilyKind.COUNTER,
            "Connections closed in their TLS handshake",
            [((each,), handshakes.failed[each]) for each in FAILURES], ("reason",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_certificate_expires_seconds", FamilyKind.GAUGE,
            "Expiry of a listener's certificate, as Unix time",
            [((name,), tls.expires.timestamp()) for name, tls in self.listeners.tls.items()],
            ("listener",),
        )  # fmt: skip

    def _sasl(self) -> Iterator[Family]:
        sasl = self.services.sasl
        if sasl is None:
            return
        yield Family(
            "quafka_gateway_authentications", FamilyKind.COUNTER,
            "Authentications by mechanism (empty: none was chosen) and outcome",
            sorted(sasl.counts.items()), ("mechanism", "outcome"),
        )  # fmt: skip
        yield counter(
            "quafka_gateway_expired_sessions",
            "Connections closed because they had not authenticated again",
            sasl.expired,
        )  # fmt: skip

    def _orgs(self) -> Iterator[Family]:
        traffic = list(self.services.tenants.traffic())
        yield gauge(
            "quafka_gateway_orgs", "Orgs whose clients are connected or were a moment ago",
            len(self.services.tenants),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_org_connections", FamilyKind.GAUGE, "Client connections of an org",
            [((org,), connections) for org, connections, _ in traffic], ("org",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_org_requests", FamilyKind.COUNTER, "Requests of an org answered",
            [((org,), one.requests) for org, _, one in traffic], ("org",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_org_received_bytes", FamilyKind.COUNTER, "Bytes of requests of an org",
            [((org,), one.received) for org, _, one in traffic], ("org",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_org_sent_bytes", FamilyKind.COUNTER, "Bytes of responses to an org",
            [((org,), one.sent) for org, _, one in traffic], ("org",),
        )  # fmt: skip

    def _quotas(self) -> Iterator[Family]:
        quotas = self.services.quotas
        yield Family(
            "quafka_gateway_throttled_seconds", FamilyKind.COUNTER,
            "Time for which clients were made to wait by their quotas or their org's limits",
            [
                ((str(one.org or OTHER), one.user, one.kind.value), one.seconds)
                for one in quotas.throttled()
            ],
            ("org", "user", "quota"),
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_quota_windows", "Clients and orgs whose rates are measured now",
            quotas.windows,
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_quota_overflows",
            "How often clients beyond quota.max.entities had to share a rate", quotas.overflows,
        )  # fmt: skip
        yield counter(
            "quafka_gateway_deferred_turns",
            "Work of clients that waited for its org's turn on the event loop",
            self.services.turns.deferred,
        )  # fmt: skip

    def _fetches(self) -> Iterator[Family]:
        figures = self.services.tenants.figures()
        yield gauge("quafka_gateway_fetch_sessions", "Fetch sessions", figures.sessions)
        yield gauge(
            "quafka_gateway_share_sessions", "Share sessions",
            sum(len(tenant.share_sessions) for tenant in self.services.tenants),
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_fetch_session_partitions",
            "Partitions in fetch sessions",
            figures.session_partitions,
        )
        yield counter(
            "quafka_gateway_fetch_cache_hits", "Fetches answered from the cache", figures.hits
        )
        yield counter(
            "quafka_gateway_fetch_cache_misses", "Fetches answered after a read from the broker",
            figures.misses,
        )  # fmt: skip
        yield counter(
            "quafka_gateway_fetch_polls",
            "Fetches passed to the broker: at the end of the log, or not in the cache",
            figures.polls,
        )
        yield gauge(
            "quafka_gateway_parked_fetches", "Fetches parked at the broker now", figures.parked
        )
        yield Family(
            "quafka_gateway_fetched_bytes", FamilyKind.COUNTER,
            "Bytes of record batches that brokers have returned",
            [(("place",), figures.by_place), (("value",), figures.by_value)], ("by",),
        )  # fmt: skip
        yield counter(
            "quafka_gateway_withdrawn_places",
            "Answers by place that were fetched again by value: their files or objects were gone",
            figures.withdrawn,
        )
        yield gauge(
            "quafka_gateway_descriptors",
            "Descriptors of brokers' log files",
            self.services.tenants.descriptors,
        )
        yield gauge(
            "quafka_gateway_fetch_cache_bytes", "Bytes of record batches in the cache",
            figures.cached_bytes,
        )  # fmt: skip


def _audit(audit: AuditLog) -> Iterator[Family]:
    yield counter("quafka_gateway_audit_lines", "Lines of the audit log", audit.lines)
    yield counter(
        "quafka_gateway_audit_dropped", "Lines that the audit log has lost: its disk is too slow",
        audit.dropped,
    )  # fmt: skip
    yield counter(
        "quafka_gateway_audit_suppressed",
        "Lines left out of the audit log: one org or host was refused too often",
        audit.limit.suppressed,
    )
