"""What a handler receives besides its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quafka_gateway.cluster.admin import Admin
from quafka_gateway.cluster.broker_link import BrokerLink
from quafka_gateway.cluster.brokers import Brokers
from quafka_gateway.cluster.brokers_reader import BrokersReader
from quafka_gateway.cluster.coordinator import Coordinator
from quafka_gateway.config import EdgeSettings
from quafka_gateway.fetch.reader import FetchReader
from quafka_gateway.fetch.session import FetchSessions
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.responses.long_response_limiter import LongResponseLimiter
from quafka_gateway.responses.response_cache import ResponseCache
from quafka_gateway.stats import GatewayStats
from quafka_proto.message import Versions
from quafka_telemetry.log_context import trace_fields
from quafka_telemetry.tracing import Span, TraceContext, Tracer

_CACHED_BYTES = 64 << 20


class ServedApi(Protocol):
    """What a handler may know of the table of APIs (`handlers.kafka_api.Api`)."""

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        ...

    @property
    def versions(self) -> Versions:
        """The versions served."""
        ...

    @property
    def quafka_only(self) -> bool:
        """Whether the API is advertised to Quafka's own tools alone."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What all connections of one gateway share.

    Attributes:
        apis: the APIs that the gateway serves, by key.
        broker: the broker, or several brokers as one.
        coordinator: the coordinator of consumer groups.
        advertised: the host and port that clients connect to.
        tracer: starts traces and decides whether a request is sampled.
        request_max_bytes: a larger request closes its connection.
        request_memory: bounds the request bytes that all connections hold.
        fetch_sessions: the fetch sessions of all clients; sessions outlive connections.
        response_memory: bounds the response bytes that all connections hold.
        reader: reads partitions, from the cache or from their broker.
        admin: administrative operations on all brokers.
        config: the gateway's settings.
        stats: counts connections and requests.
        response_cache: keeps long responses that many clients ask for.
        long_responses: bounds how many long responses are made at a time.
    """

    apis: Mapping[int, ServedApi]
    broker: BrokerLink | Brokers
    coordinator: Coordinator
    advertised: tuple[str, int]
    tracer: Tracer
    request_max_bytes: int
    request_memory: RequestMemory
    fetch_sessions: FetchSessions
    response_memory: ResponseMemory
    reader: FetchReader | BrokersReader
    admin: Admin
    config: EdgeSettings
    stats: GatewayStats = field(default_factory=GatewayStats)
    response_cache: ResponseCache = field(init=False)
    long_responses: LongResponseLimiter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "response_cache", ResponseCache(_CACHED_BYTES, self.response_memory)
        )
        object.__setattr__(self, "long_responses", LongResponseLimiter(self.response_memory))


@dataclass(slots=True)
class RequestContext:
    """What a handler needs to know about one request.

    Attributes:
        version: the request's API version, which the response must have, too.
        client_id: the client's own name; None where it has none.
        lane: produces with equal lanes reach the log in order: the connection's number.
        span: the request's span.
        client_host: the client's address as Kafka shows it, "/192.0.2.1".
        correlation_id: the client's number of the request.
    """

    services: Services
    version: int
    client_id: str | None
    lane: int
    span: Span
    client_host: str = ""
    correlation_id: int = 0

    def log_fields(self) -> dict[str, str]:
        """See LogSource. `request_id` is the connection's number and the correlation id."""
        request_id = f"{self.lane}-{self.correlation_id}"
        return {"request_id": request_id, **trace_fields(self.span.context)}

    @property
    def node_id(self) -> int:
        """The broker id under which the gateway advertises itself as the only broker."""
        return self.services.config.node_id

    @property
    def broker(self) -> BrokerLink | Brokers:
        """The broker, or several brokers as one."""
        return self.services.broker

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of consumer groups."""
        return self.services.coordinator

    @property
    def admin(self) -> Admin:
        """Administrative operations on all brokers."""
        return self.services.admin

    @property
    def trace(self) -> TraceContext | None:
        """The request's place in its trace; None where it is not sampled."""
        return self.span.context

    def child(self, name: str) -> Span:
        """Start a span within the request's span."""
        return self.services.tracer.start(name, self.span.context)
