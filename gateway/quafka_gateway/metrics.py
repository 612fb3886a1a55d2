"""A gateway's metrics, read from the numbers that it keeps anyway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quafka_gateway.context import Services
from quafka_gateway.edge.listener import Listener
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.stats import GatewayStats
from quafka_proto.errors import ErrorCode
from quafka_telemetry.metrics import Family, Kind, counter, gauge


@dataclass(frozen=True, slots=True)
class GatewayMetrics:
    """What there is to say of a gateway that serves."""

    services: Services
    listener: Listener
    readers: Sequence[FetchReader]

    def collect(self) -> Iterator[Family]:
        """All families."""
        yield from self._requests(self.services.stats)
        yield from self._clients(self.services.stats)
        yield from self._fetches()

    def _requests(self, stats: GatewayStats) -> Iterator[Family]:
        apis = sorted(stats.apis.items())
        served = sorted(api.name for api in self.services.apis.values())
        yield Family(
            "quafka_gateway_requests", Kind.COUNTER, "Requests that were answered",
            [((api,), stats.apis[api].requests if api in stats.apis else 0) for api in served],
            ("api",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_errors", Kind.COUNTER,
            "Requests with this error, of the whole or of a part of it",
            [
                ((api, ErrorCode.name_of(code)), count)
                for api, one in apis
                for code, count in sorted(one.errors.items())
            ],
            ("api", "error"),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_duration_seconds", Kind.HISTOGRAM,
            "From a request's turn to its answer, without the time for which it was parked",
            [((api,), one.seconds) for api, one in apis], ("api",),
        )  # fmt: skip
        yield Family(
            "quafka_gateway_request_parked_seconds", Kind.COUNTER,
            "What requests waited for records, or for other members of their group",
            [((api,), one.parked) for api, one in apis], ("api",),
        )  # fmt: skip
        yield counter(
            "quafka_gateway_malformed_requests", "Connections closed for what they sent",
            stats.malformed,
        )  # fmt: skip

    def _clients(self, stats: GatewayStats) -> Iterator[Family]:
        yield counter("quafka_gateway_received_bytes", "Bytes from clients", stats.received)
        yield counter("quafka_gateway_sent_bytes", "Bytes of answers to clients", stats.sent)
        listener = self.listener
        yield gauge(
            "quafka_gateway_connections", "Clients that are connected", listener.connections
        )
        yield gauge(
            "quafka_gateway_connections_limit", "Clients that may be", listener.max_connections
        )
        yield counter(
            "quafka_gateway_connections_accepted", "Connections of clients", stats.accepted
        )
        yield counter("quafka_gateway_connections_refused", "Those above the limit", stats.refused)
        services = self.services
        yield gauge(
            "quafka_gateway_request_memory_bytes", "Held of requests", services.request_memory.held
        )
        yield counter(
            "quafka_gateway_evicted_connections",
            "Connections closed for the memory that their requests held",
            services.request_memory.evicted,
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_response_memory_bytes", "Held of answers", services.response_memory.held
        )

    def _fetches(self) -> Iterator[Family]:
        sessions, readers = self.services.tenant.fetch_sessions, self.readers
        yield gauge("quafka_gateway_fetch_sessions", "Fetch sessions", len(sessions))
        yield gauge(
            "quafka_gateway_fetch_session_partitions", "Partitions in them", sessions.partitions
        )
        yield counter(
            "quafka_gateway_fetch_cache_hits", "Fetches answered from memory",
            sum(reader.hits for reader in readers),
        )  # fmt: skip
        yield counter(
            "quafka_gateway_fetch_cache_misses", "Fetches for which records were read first",
            sum(reader.misses for reader in readers),
        )  # fmt: skip
        yield counter(
            "quafka_gateway_fetch_polls",
            "Fetches left to the broker: at the tail, or not known here",
            sum(reader.polls for reader in readers),
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_parked_fetches", "Those of them that wait now",
            sum(reader.parked for reader in readers),
        )  # fmt: skip
        yield gauge(
            "quafka_gateway_fetch_cache_bytes", "Record batches that are kept",
            sum(reader.cached_bytes for reader in readers),
        )  # fmt: skip
