"""The mesh's spans, recorded by a tracer of the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

import pytest

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.base import OpCode, WireStruct
from quafka_mesh_ops.ops.topics import DescribeTopics, DescribeTopicsResp
from quafka_telemetry.tracing import INTERNAL, NO_SPAN, Span, TraceContext, Tracer
from tests.unit.mesh_ops.mesh import mesh, over_tls


class NotedSpan:
    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self.failed = ""
        self.ended = False

    @property
    def context(self) -> TraceContext | None:
        return self._context

    def set(self, attributes: Mapping[str, str | int | bool | float]) -> None:
        pass

    def event(
        self, name: str, attributes: Mapping[str, str | int | bool | float] | None = None
    ) -> None:
        pass

    def fail(self, error: str) -> None:
        self.failed = error

    def link(self, contexts: Iterable[TraceContext]) -> None:
        pass

    def end(self, at: int | None = None) -> None:
        self.ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.end()


class NotingTracer(Tracer):
    def __init__(self) -> None:
        self.spans: list[tuple[str, int, NotedSpan]] = []

    def start(
        self,
        name: str,
        parent: TraceContext | None,
        attributes: Mapping[str, str | int | bool | float] | None = None,
        kind: str = INTERNAL,
        begun: int | None = None,
    ) -> Span:
        if parent is None:
            return NO_SPAN
        span = NotedSpan(TraceContext(parent.trace_id, len(self.spans) + 100, parent.tracestate))
        self.spans.append((name, parent.span_id, span))
        return span


@pytest.mark.parametrize("bulk", [BulkCarrier.QUIC, BulkCarrier.TLS])
async def test_one_trace_crosses_the_mesh_and_comes_back(bulk: BulkCarrier) -> None:
    """Also where the answer comes over TLS."""
    tracer = NotingTracer()
    stored = TraceContext(5, 77)

    async def handle(context: OpContext, op: DescribeTopics) -> WireStruct:
        assert context.trace == TraceContext(5, 101, "vendor=1")
        context.ack_parent = stored
        return DescribeTopicsResp("c" * 50_000 if bulk is BulkCarrier.TLS else "c", [])

    async with mesh({OpCode.DESCRIBE_TOPICS: handle}, tracer=tracer, bulk=bulk) as m:
        if bulk is BulkCarrier.TLS:
            await over_tls(m)
        trace = TraceContext(5, 6, "vendor=1")
        await m.client.call(DescribeTopics(), org_id=1, deadline=2, trace=trace)
        assert bool(m.client.counters().bulk_tls_bytes) is (bulk is BulkCarrier.TLS)
    assert [(name, parent) for name, parent, _ in tracer.spans] == [
        ("mesh.kafkaop.sent", 6),
        ("mesh.kafkaop.handle", 100),
        ("kafkaop.ack", 77),
        ("kafkaop.ack_received", 102),
    ]
    assert all(span.ended for _, _, span in tracer.spans)


async def test_an_unsampled_call_makes_no_spans() -> None:
    tracer = NotingTracer()
    async with mesh(tracer=tracer) as m:
        await m.client.call(DescribeTopics(), org_id=1, deadline=2)
    assert tracer.spans == []
