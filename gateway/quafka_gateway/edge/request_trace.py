"""The spans of a connection's requests.

A sampled request is a trace of its own. The span `gateway.kafka.connect` lasts from the request's
arrival until its response is sent. Within it are the spans of the request, of encoding the
response, and of writing it, which waits for earlier responses and for a client that reads slowly.
The parent is the client's span, if the first record of a produce names one.

A request that was not sampled costs one comparison. If it was slow or has failed, the gateway may
still export a late trace of it, made of what is known when the request is over.
"""

from __future__ import annotations

from collections.abc import Collection

from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.handlers.client_context import context_in_frame, context_of_produce
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.security.session import ClientSession
from quafka_gateway.transaction_traces import TransactionTraces, transaction_of
from quafka_loop import clock
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Buffer, Message
from quafka_proto.schema.produce import ProduceRequest
from quafka_telemetry import semconv
from quafka_telemetry.expected_errors import is_expected
from quafka_telemetry.sampling import FAILED, SLOW
from quafka_telemetry.tracing import (
    NO_SPAN,
    AttributeValue,
    Span,
    Tracer,
    fail_with,
)


class RequestTrace:
    """The spans of one sampled request."""

    __slots__ = ("_api", "_begun", "_connect", "_tracer", "_write", "request")

    def __init__(
        self,
        tracer: Tracer,
        connect: Span,
        api: AnyApi,
        header: RequestHeader,
        org: int,
        cluster_id: str,
        begun: int | None = None,
    ) -> None:
        """Begin the spans.

        Args:
            org: the client's org.
            cluster_id: the id of the Kafka cluster; empty: not known yet.
            begun: when the request arrived, in ns since the epoch; None: now.
        """
        self._tracer = tracer
        self._connect = connect
        self._write: Span = NO_SPAN
        self._api = api.name
        self._begun = begun or clock.time_ns()
        self.request = tracer.start(semconv.REQUEST, connect.context, begun=self._begun)
        self.request.set(
            {
                semconv.OPERATION: api.name,
                semconv.ORG: org,
                semconv.API_VERSION: header.api_version,
                semconv.CORRELATION_ID: header.correlation_id,
                **_optional(semconv.OPERATION_TYPE, semconv.OPERATION_TYPES.get(api.name)),
                **_optional(semconv.CLIENT_ID, header.client_id),
                **_optional(semconv.CLUSTER_ID, cluster_id),
            }
        )

    def describe(self, request: Message, transactions: TransactionTraces) -> None:
        """Set the attributes that operators search for, and link the transaction."""
        group = getattr(request, "group_id", "")
        if group:
            self.request.set({semconv.GROUP: group})
        transaction = transaction_of(request)
        if transaction is not None:
            self.request.set(
                {
                    semconv.TRANSACTIONAL_ID: transaction.transactional_id,
                    semconv.PRODUCER_ID: transaction.producer_id,
                }
            )
            begun = transactions.find(transaction.producer_id)
            if begun is not None:
                self.request.link((begun,))

    @property
    def trace_id(self) -> str:
        """The trace id as tracing UIs show it; "" if the request is not sampled."""
        context = self.request.context
        return "" if context is None else context.trace_hex

    def end_request(self, errors: Collection[int], seconds: float, parked: float) -> None:
        """End the request's span; `seconds` do not include the `parked` seconds."""
        fail_with(self.request, errors, self._api)
        self.request.set({semconv.LATENCY_MS: seconds * 1e3, semconv.PARKED_MS: parked * 1e3})
        self.request.end()

    def begin_write(self, errors: Collection[int], seconds: float, parked: float) -> None:
        """End the request's span and begin that of writing."""
        self.end_request(errors, seconds, parked)
        self._write = self._tracer.start(semconv.WRITE, self._connect.context)

    def start_encoding(self) -> Span:
        """Start the span of encoding the response."""
        return self._tracer.start(semconv.ENCODE, self.request.context)

    def end(self) -> None:
        """End all spans: the response is sent or dropped."""
        self.request.end()
        self._write.end()
        self._connect.end()


def _optional(name: str, value: str | None) -> dict[str, AttributeValue]:
    """The attribute, unless it has no value."""
    return {name: value} if value else {}


class ConnectionTracing:
    """Makes the traces of one connection's requests."""

    __slots__ = ("_about", "_session", "_tracer", "on")

    def __init__(self, services: Services, session: ClientSession, client: ConnectedClient) -> None:
        self._tracer = services.tracer
        self.on = services.tracer.on
        """Whether any request may be sampled."""
        self._session = session
        self._about: dict[str, AttributeValue] = {
            semconv.PEER_ADDRESS: client.host,
            semconv.PEER_PORT: client.port,
            semconv.CONNECTION: client.serial,
        }

    @property
    def _cluster_id(self) -> str:
        return self._session.tenant.cluster.cluster_id

    def sample(
        self,
        api: AnyApi,
        header: RequestHeader,
        request: Message | None,
        frame: bytes,
        batch: Buffer | None = None,
    ) -> RequestTrace | None:
        """Decide whether to sample a request. Returns None if it is not sampled.

        Called if tracing is on. `request` is None for one that is not decoded; `batch`: its batch,
        if it is a produce.
        """
        tracer = self._tracer
        client = None
        if tracer.follows_clients:
            if isinstance(request, ProduceRequest):
                client = context_of_produce(request, frame)
            elif batch is not None:
                client = context_in_frame(batch, frame)
        connect = tracer.root(semconv.CONNECT, self._session.tenant.org_id, client, self._about)
        if connect.context is None:
            return None
        trace = RequestTrace(
            tracer, connect, api, header, self._session.tenant.org_id, self._cluster_id
        )
        if request is not None:
            trace.describe(request, self._session.tenant.transaction_traces)
        return trace

    def trace_late(
        self,
        api: AnyApi,
        header: RequestHeader,
        errors: Collection[int],
        seconds: float,
        parked: float,
    ) -> RequestTrace | None:
        """Return the late trace of a slow or failed request that was not sampled; else None."""
        tracer = self._tracer
        if seconds >= tracer.slow_after:
            reason = SLOW
        elif tracer.traces_failed and not all(is_expected(e, api.name) for e in errors):
            reason = FAILED
        else:
            return None
        begun = clock.time_ns() - int((seconds + parked) * 1e9)
        connect = tracer.late_root(semconv.CONNECT, reason, self._about, begun)
        if connect.context is None:
            return None
        trace = RequestTrace(
            tracer, connect, api, header, self._session.tenant.org_id, self._cluster_id, begun
        )
        trace.end_request(errors, seconds, parked)
        trace.end()
        return trace

    def trace_refusal(self, reason: str) -> None:
        """Trace bytes that break the protocol and close the connection."""
        connect = self._tracer.root(semconv.CONNECT, self._session.tenant.org_id, None, self._about)
        if connect.context is None and self._tracer.traces_failed:
            connect = self._tracer.late_root(semconv.CONNECT, FAILED, self._about, clock.time_ns())
        with connect, self._tracer.start(semconv.REQUEST, connect.context) as span:
            span.event(semconv.MALFORMED, {semconv.REASON: reason})
            span.fail("Malformed")
