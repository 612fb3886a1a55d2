"""What a handler receives besides its request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quafka_gateway.config import EdgeSettings
from quafka_gateway.converter import Converter
from quafka_gateway.fetch.idle_fetch import IdleFetch
from quafka_gateway.listeners import KafkaListener
from quafka_gateway.memory import RequestMemory, ResponseMemory
from quafka_gateway.quotas.client import ClientQuotas
from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.quotas.table import Quotas
from quafka_gateway.quotas.windows import WindowSettings
from quafka_gateway.responses.long_response_limiter import LongResponseLimiter
from quafka_gateway.security.audit import AuditLog
from quafka_gateway.security.authorizer import Authorizer, ClientAccess, NeededRight
from quafka_gateway.security.directory import Directory
from quafka_gateway.security.sasl.service import SaslService
from quafka_gateway.security.session import ClientSession
from quafka_gateway.security.writer import SecurityWriter
from quafka_gateway.stats import GatewayStats
from quafka_gateway.tenant import Tenant
from quafka_gateway.tenants import Tenants
from quafka_loop import clock
from quafka_loop.fair_turns import FairTurns
from quafka_mesh_ops.transport.log_limit import LimitedLog
from quafka_proto.message import Versions
from quafka_telemetry.tracing import NO_SPAN, Span, TraceContext, Tracer, trace_fields

_connection_log = logging.getLogger("quafka.gateway.connection")


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
        tenants: the orgs that clients are connected for.
        listeners: the listeners with their bound addresses, in the order of the settings.
        tracer: starts traces and decides whether a request is sampled.
        request_max_bytes: a larger request closes its connection.
        request_memory: bounds the request bytes that all connections hold.
        response_memory: bounds the response bytes that all connections hold.
        config: the gateway's settings.
        stats: counts connections and requests.
        sasl: authenticates clients; None if no listener uses SASL.
        security_writer: changes orgs, users, ACLs and quotas.
        security_problem: returns why updates of users, ACLs and quotas are missing; "" if none are.
        audit: records administrative acts and logins.
        authorizer: decides who may do what; None: everyone may do everything.
        instance: this gateway's random id, which its connections' ids begin with.
        long_responses: bounds how many long responses are made at a time.
        refusals: logs which clients are refused, a line a second for each reason.
        converter: the thread that converts message sets of old clients.
        quotas: what clients and orgs may take, and what they have taken.
    """

    apis: Mapping[int, ServedApi]
    tenants: Tenants
    listeners: tuple[KafkaListener, ...]
    tracer: Tracer
    request_max_bytes: int
    request_memory: RequestMemory
    response_memory: ResponseMemory
    config: EdgeSettings
    stats: GatewayStats = field(default_factory=GatewayStats)
    sasl: SaslService | None = None
    security_writer: SecurityWriter = field(default_factory=lambda: SecurityWriter(Directory()))
    security_problem: Callable[[], str] = str
    audit: AuditLog = field(default_factory=AuditLog)
    authorizer: Authorizer | None = None
    instance: bytes = field(default_factory=lambda: os.urandom(8))
    refusals: LimitedLog = field(default_factory=lambda: LimitedLog(_connection_log))
    converter: Converter = field(default_factory=Converter)
    long_responses: LongResponseLimiter = field(init=False)
    quotas: Quotas = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "long_responses", LongResponseLimiter(self.response_memory))
        config = self.config
        windows = WindowSettings(
            config.quota_window_num, config.quota_window_size_seconds, config.quota_max_entities
        )
        object.__setattr__(self, "quotas", Quotas(self.directory, windows, config.metrics_orgs))

    @property
    def tenant(self) -> Tenant:
        """The org of clients to which neither a listener nor a user record gives another one."""
        return self.tenants.own

    @property
    def turns(self) -> FairTurns:
        """Shares the event loop between the orgs."""
        return self.tenants.turns

    @property
    def directory(self) -> Directory:
        """This gateway's copy of orgs, users, ACLs and quotas."""
        return self.tenants.directory


@dataclass(slots=True)
class RequestContext:
    """What a handler needs to know about one request.

    Attributes:
        session: who the client is.
        version: the request's API version, which the response must have, too.
        client_id: the client's own name; None if it has none.
        lane: produces with equal lanes reach the log in order: the connection's number.
        span: the request's span.
        client_host: the client's address as Kafka shows it, "/192.0.2.1".
        correlation_id: the client's number of the request.
        waited: seconds for which the request has waited for records already.
        idle: set by a handler that found nothing, in case the client asks again.
        size: bytes of the request.
        throttled: seconds for which the client must wait after this request.
        mute: begins no further request of the client for this many seconds.
    """

    services: Services
    session: ClientSession
    version: int
    client_id: str | None
    lane: int
    span: Span
    client_host: str = ""
    correlation_id: int = 0
    waited: float = 0.0
    idle: IdleFetch | None = None
    size: int = 0
    throttled: float = 0.0
    mute: Callable[[float], None] | None = None

    @property
    def party(self) -> int:
        """See LogSource."""
        return self.session.tenant.party

    def log_fields(self) -> dict[str, str]:
        """See LogSource. `request_id` is the connection's number and the correlation id; `org` the
        client's."""
        request_id = f"{self.lane}-{self.correlation_id}"
        org = self.session.tenant.name
        return {"request_id": request_id, "org": org, **trace_fields(self.span.context)}

    @property
    def node_id(self) -> int:
        """The broker id under which the gateway advertises itself as the only broker."""
        return self.services.config.node_id

    @property
    def connection(self) -> bytes:
        """The connection's id, which is unique among gateways: see `ops.transactions`."""
        return self.services.instance + self.lane.to_bytes(8)

    @property
    def tenant(self) -> Tenant:
        """The client's org."""
        return self.session.tenant

    @property
    def sees_all_orgs(self) -> bool:
        """Whether answers may include facts about all orgs: the client is of the gateway's own."""
        return self.services.tenants.is_own(self.session.tenant)

    @property
    def quotas(self) -> ClientQuotas | None:
        """The client's quotas; None if its org has none at all."""
        org = self.services.quotas.of(self.session.tenant)
        if org is None:
            return None
        return org.client(self.session.principal.name, self.client_id or "", clock.monotonic())

    def throttle(self, kind: QuotaKind, seconds: float) -> None:
        """Make the client wait after this request; the longest of several times counts."""
        if seconds > self.throttled:
            self.throttled = seconds
            if self.mute is not None:
                self.mute(seconds)  # pipelined requests that are here already wait, too
        session = self.session
        self.services.quotas.count(session.tenant, session.principal.name, kind, seconds)

    @property
    def access(self) -> ClientAccess | None:
        """What the client may do; None: everything, as there is no authorizer."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return None
        return self.session.access_by(authorizer, self.client_host.removeprefix("/"))

    def may(self, right: NeededRight, name: str) -> bool:
        """Whether the client has a right on the resource with this name."""
        access = self.access
        return access is None or access.allows(right, name)

    @property
    def is_operator(self) -> bool:
        """Whether the client may change orgs: it is a super user of this gateway's own org.

        Without an authorizer, every client of that org.
        """
        access = self.access
        return self.sees_all_orgs and (access is None or access.is_super)

    @property
    def trace(self) -> TraceContext | None:
        """The request's place in its trace; None if it is not sampled."""
        return self.span.context

    def child(self, name: str) -> Span:
        """Start a span within the request's span."""
        parent = self.span.context
        return NO_SPAN if parent is None else self.services.tracer.start(name, parent)
