"""Late traces of requests that were not sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

import pytest

from quafka_gateway.api import APIS
from quafka_gateway.context import Services
from quafka_gateway.edge.connected_client import ConnectedClient
from quafka_gateway.edge.request_trace import ConnectionTracing
from quafka_proto.errors import ErrorCode
from quafka_proto.headers import RequestHeader
from quafka_telemetry import semconv
from quafka_telemetry.otlp import OtlpTracer, RecordedSpan, SpanQueue
from quafka_telemetry.sampling import FAILED, SLOW, EdgeSampling, Sampler

API, HEADER = APIS[1], RequestHeader(1, 12, 42, "client")


class Org:
    """The part of a tenant that traces need."""

    org_id = 7


class Edge:
    """A connection's tracing that samples no request, and the spans that it records late."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self._queue = SpanQueue(self._take, limit=1_000, batch=1_000, delay=60)
        tail = EdgeSampling(slow_seconds=0.5, failed=True)
        services = cast(Services, self)
        self.tracer = OtlpTracer(Sampler(0.0, True, tail), self._queue)
        self.tenant = Org()
        self.tracing = ConnectionTracing(services, ConnectedClient("127.0.0.1", 5, 3))

    def _take(self, spans: Sequence[RecordedSpan]) -> bool:
        self.spans += spans
        return True

    def late(self, errors: Collection[int], seconds: float, parked: float) -> bool:
        return self.tracing.trace_late(API, HEADER, errors, seconds, parked) is not None

    def close(self) -> list[RecordedSpan]:
        self._queue.close(5.0)
        return self.spans


@pytest.fixture
def edge() -> Iterator[Edge]:
    made = Edge()
    yield made
    made.close()


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
    assert not edge.late({code}, 0.001, 0.0)


def test_a_storm_of_errors_leaves_a_bounded_number(edge: Edge) -> None:
    kept = sum(edge.late({ErrorCode.CORRUPT_MESSAGE}, 0.001, 0.0) for _ in range(1_000))
    assert 100 <= kept < 300


def test_malformed_bytes_leave_the_reason(edge: Edge) -> None:
    edge.tracing.trace_refusal("a frame of no sense")
    request, _ = edge.close()
    assert request.events[0][0] == semconv.MALFORMED
    assert request.events[0][2] == {semconv.REASON: "a frame of no sense"}
