"""Traces of transactions, and late traces of requests that were not sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.request_trace import ConnectionTracing
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_gateway.security.session import ClientSession
from quafka_gateway.tenant import Tenant
from quafka_gateway.transaction_traces import TransactionTraces
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import RequestHeader
from quafka_proto.message import Message
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.schema.groups import HeartbeatRequest
from quafka_proto.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quafka_proto.schema.producer_id import InitProducerIdRequest
from quafka_proto.schema.transactions import AddPartitionsToTxnRequest, EndTxnRequest
from quafka_telemetry import semconv
from quafka_telemetry.otlp import OtlpTracer, RecordedSpan, SpanQueue
from quafka_telemetry.sampling import FAILED, SLOW, EdgeSampling, Sampler

API, HEADER = APIS[1], RequestHeader(1, 12, 42, "client")


class Org:
    """The part of a tenant that traces need."""

    org_id = 7

    def __init__(self) -> None:
        self.transaction_traces = TransactionTraces()
        self.cluster = SimpleNamespace(cluster_id="")


class Edge:
    """A connection's tracing that samples no request, and the spans that it records late."""

    def __init__(self, ratio: float = 0.0) -> None:
        self.spans: list[RecordedSpan] = []
        self._queue = SpanQueue(self._take, limit=1_000, batch=1_000, delay=60)
        tail = EdgeSampling(slow_seconds=0.5, failed=True)
        services = cast(Services, self)
        self.tracer = OtlpTracer(Sampler(ratio, True, tail), self._queue)
        self.tenant = Org()
        self.transaction_traces = self.tenant.transaction_traces
        self.tracing = ConnectionTracing(
            services, ClientSession(cast(Tenant, self.tenant)), ConnectedClient("127.0.0.1", 5, 3)
        )

    def _take(self, spans: Sequence[RecordedSpan]) -> bool:
        self.spans += spans
        return True

    def late(
        self, errors: Collection[int], seconds: float, parked: float, api: AnyApi = API
    ) -> bool:
        return self.tracing.trace_late(api, HEADER, errors, seconds, parked) is not None

    def close(self) -> list[RecordedSpan]:
        self._queue.close(5.0)
        return self.spans


@pytest.fixture
def edge() -> Iterator[Edge]:
    made = Edge()
    yield made
    made.close()


def test_requests_of_a_transaction_link_the_one_that_began_its_session() -> None:
    edge = Edge(ratio=1.0)
    batch = build_batch([Record(0, 0, None, b"v", [])], producer_id=5, transactional=True)
    part = PartitionProduceData(index=0, records=batch)
    requests: list[Message] = [
        InitProducerIdRequest(transactional_id="x"),
        AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_producer_id=5),
        ProduceRequest(
            transactional_id="x", topic_data=[TopicProduceData(name="t", partition_data=[part])]
        ),
        EndTxnRequest(transactional_id="x", producer_id=6),
        EndTxnRequest(transactional_id="y", producer_id=7),
        HeartbeatRequest(group_id="g"),
    ]
    for request in requests:
        trace = edge.tracing.sample(API, HEADER, request, b"")
        assert trace is not None
        if isinstance(request, InitProducerIdRequest):
            assert trace.request.context is not None
            edge.transaction_traces.begin(5, trace.request.context)
        if isinstance(request, ProduceRequest):
            edge.transaction_traces.continue_as(5, 6)  # its epochs were used up
        trace.end()
    spans = [span for span in edge.close() if span.name == semconv.REQUEST]
    begun, *others = spans
    producers = [span.attributes.get(semconv.PRODUCER_ID) for span in spans]
    assert producers == [-1, 5, 5, 6, 7, None]
    names = [span.attributes.get(semconv.TRANSACTIONAL_ID) for span in spans]
    assert names == ["x", "x", "x", "x", "y", None]
    assert [list(span.links) == [begun.context] for span in others] == [True] * 3 + [False] * 2


def test_a_slow_request_leaves_its_times(edge: Edge) -> None:
    assert edge.late((), 0.6, 2.0)
    request, connect = edge.close()
    assert (request.name, connect.name) == (semconv.REQUEST, semconv.CONNECT)
    assert connect.attributes[semconv.SAMPLED_BY] == SLOW
    assert connect.attributes[semconv.PEER_ADDRESS] == "127.0.0.1"
    assert request.parent == connect.context
    assert request.attributes[semconv.LATENCY_MS] == pytest.approx(600)
    assert request.attributes[semconv.PARKED_MS] == pytest.approx(2_000)
    assert request.ended - request.start >= 2_600_000_000
    assert request.start == connect.start
    assert request.error is None


def test_parked_time_makes_no_request_slow(edge: Edge) -> None:
    assert not edge.late((), 0.4, 30.0)


def test_a_failed_request_names_its_error(edge: Edge) -> None:
    assert edge.late({ErrorCode.CORRUPT_MESSAGE}, 0.001, 0.0)
    request, connect = edge.close()
    assert connect.attributes[semconv.SAMPLED_BY] == FAILED
    assert request.error == "CORRUPT_MESSAGE"


@pytest.mark.parametrize("code", [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS])
def test_errors_of_the_normal_protocol_leave_no_trace(code: ErrorCode, edge: Edge) -> None:
    assert not edge.late({code}, 0.001, 0.0, APIS[11])
    assert edge.late({code}, 0.001, 0.0, APIS[1]), "no step of a Fetch"
    assert edge.late({code, ErrorCode.NOT_COORDINATOR}, 0.001, 0.0, APIS[11])


def test_an_expected_error_leaves_the_request_without_an_error() -> None:
    edge = Edge(ratio=1.0)
    trace = edge.tracing.sample(APIS[1], HEADER, None, b"")
    assert trace is not None
    trace.begin_write({ErrorCode.FETCH_SESSION_ID_NOT_FOUND}, 0.001, 0.0)
    trace.end()
    (request,) = (each for each in edge.close() if each.name == semconv.REQUEST)
    assert request.error is None
    assert request.events[0][2] == {semconv.ERROR_TYPE: "FETCH_SESSION_ID_NOT_FOUND"}


def test_a_storm_of_errors_leaves_a_bounded_number(edge: Edge) -> None:
    kept = sum(edge.late({ErrorCode.CORRUPT_MESSAGE}, 0.001, 0.0) for _ in range(1_000))
    assert 100 <= kept < 300


def test_malformed_bytes_leave_the_reason(edge: Edge) -> None:
    edge.tracing.trace_refusal("a frame of no sense")
    request, _ = edge.close()
    assert request.events[0][0] == semconv.MALFORMED
    assert request.events[0][2] == {semconv.REASON: "a frame of no sense"}


def test_a_request_has_the_type_of_its_operation_and_its_cluster() -> None:
    edge = Edge(ratio=1.0)
    named = {
        "Produce": "send",
        "Fetch": "receive",
        "ShareFetch": "receive",
        "OffsetCommit": "settle",
        "TxnOffsetCommit": "settle",
        "ShareAcknowledge": "settle",
    }
    for key, api in APIS.items():
        trace = edge.tracing.sample(api, RequestHeader(key, 0, 1, None), None, b"")
        assert trace is not None
        trace.end()
    edge.tenant.cluster.cluster_id = "a-cluster"
    trace = edge.tracing.sample(API, HEADER, None, b"")
    assert trace is not None
    trace.end()
    *spans, last = (span.attributes for span in edge.close() if span.name == semconv.REQUEST)
    found = {about[semconv.OPERATION]: about.get(semconv.OPERATION_TYPE) for about in spans}
    assert {name: kind for name, kind in found.items() if kind} == named
    unknown = {semconv.CLIENT_ID, semconv.CLUSTER_ID}
    assert not any(unknown & about.keys() for about in spans)
    assert (last[semconv.CLIENT_ID], last[semconv.CLUSTER_ID]) == ("client", "a-cluster")
