"""What a handler is given besides its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quafka_gateway.config import EdgeSettings
from quafka_gateway.fetch.session import FetchSessions
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.responses.long_response_limiter import LongResponseLimiter
from quafka_gateway.responses.response_cache import ResponseCache
from quafka_gateway.stats import GatewayStats
from quafka_telemetry.log_context import trace_fields
from quafka_telemetry.tracing import Span, TraceContext, Tracer

if TYPE_CHECKING:
    from quafka_gateway.api import Api
    from quafka_gateway.cluster.admin import Admin
    from quafka_gateway.cluster.broker_link import BrokerLink
    from quafka_gateway.cluster.brokers import Brokers
    from quafka_gateway.cluster.brokers_reader import BrokersReader
    from quafka_gateway.cluster.coordinator import Coordinator
    from quafka_gateway.fetch.reader import FetchReader

_CACHED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Services:
    """What all connections of one gateway share.

    Attributes:
        apis: the table of APIs.
        broker: the way to the broker, or to several as one.
        coordinator: where consumer groups are.
        advertised: host and port that clients are told to connect to.
        tracer: starts traces; decides whether a request is sampled.
        request_max_bytes: larger requests close their connection.
        memory: bounds what all connections hold of requests.
        fetch_sessions: of all clients; they outlive connections.
        responses: bounds what they hold of answers.
        reader: reads partitions, from memory or from their broker.
        admin: the brokers, for administrators.
        config: the gateway's settings.
        stats: what is counted of them all.
        answers: long ones that many clients are given.
        long_answers: who may make one now.
    """

    apis: Mapping[int, Api]
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
    """One request.

    Attributes:
        version: the API version it came in, which its response must have.
        client_id: as the client calls itself; None where it does not.
        client_host: where the client's connection comes from, as Kafka shows it.
        lane: requests with equal lanes reach the broker in order.
        span: the request's span.
    """

    services: Services
    version: int
    client_id: str | None
    lane: int
    span: Span
    client_host: str = ""
    correlation_id: int = 0

    def log_fields(self) -> dict[str, str]:
        """See LogSource: the connection's number and the client's number of the request."""
        request_id = f"{self.lane}-{self.correlation_id}"
        return {"request_id": request_id, **trace_fields(self.span.context)}

    @property
    def node_id(self) -> int:
        """The gateway advertises itself as the cluster's only broker, under this id."""
        return self.services.config.node_id

    @property
    def broker(self) -> BrokerLink | Brokers:
        """The way to the broker, or to several as one."""
        return self.services.broker

    @property
    def coordinator(self) -> Coordinator:
        """Where consumer groups are."""
        return self.services.coordinator

    @property
    def admin(self) -> Admin:
        """The brokers, for administrators."""
        return self.services.admin

    @property
    def trace(self) -> TraceContext | None:
        """The request's place in its trace; None when not sampled."""
        return self.span.context

    def child(self, name: str) -> Span:
        """A span within the request's."""
        return self.services.tracer.start(name, self.span.context)
