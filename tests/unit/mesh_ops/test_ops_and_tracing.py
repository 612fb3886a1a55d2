"""The ops' wire order and the trace context's header form."""

from __future__ import annotations

import pytest

from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.base import OpCode, OpKind
from quafka_mesh_ops.ops.codec import from_wire, to_wire
from quafka_mesh_ops.ops.groups import JoinGroup, SyncGroup
from quafka_mesh_ops.ops.probe import Probe, ProbeResp
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps, FetchOpsResp, ProduceOps
from quafka_mesh_ops.ops.table import OPS
from quafka_mesh_ops.ops.topics import CreateTopic, DescribeTopics
from quafka_proto.schema.groups import SyncGroupRequestAssignment
from quafka_telemetry.tracer_setup import tracer_from_environment
from quafka_telemetry.tracing import (
    NO_SPAN,
    TraceContext,
    Tracer,
    parse_traceparent,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_every_code_has_an_op_and_rafkas_are_kept() -> None:
    assert set(OPS) == set(OpCode)
    assert [OpCode.PRODUCE, OpCode.FETCH, OpCode.LIST_OFFSETS, OpCode.DELETE_TOPIC] == [2, 3, 4, 5]


async def test_an_op_type_names_its_answer_and_makes_the_item_of_a_handler_table() -> None:
    async def probe(_context: object, _op: Probe) -> ProbeResp:
        return ProbeResp("1", 2)

    assert Probe().response is ProbeResp
    code, handler = Probe.handled_by(probe)
    assert code is OpCode.PROBE
    assert await handler(None, Probe()) == ProbeResp("1", 2)


def test_only_ops_that_wait_or_carry_much_have_credit_of_their_own() -> None:
    leader = SyncGroup("g", 1, "m", "", [SyncGroupRequestAssignment("m", b"")])
    follower = SyncGroup("g", 1, "m", "", [])
    join = JoinGroup("g", "m", "", "consumer", [], 10_000, 10_000)
    assert [op.kind for op in (ProduceOps([]), FetchOps([]), join, follower)] == [
        OpKind.RECORDS, OpKind.FETCHES, OpKind.GROUP_WAITS, OpKind.GROUP_WAITS,
    ]  # fmt: skip
    assert leader.kind is Probe().kind is OpKind.SMALL_OPS


def test_fields_travel_in_the_order_of_their_declaration() -> None:
    op = FetchOps([FetchOp("t", 1, 2, 3)], max_wait_ms=5)
    assert to_wire(op) == [[["t", 1, 2, 3, b"", -1, -1]], 5, 0, 0x7FFFFFFF, 0, -1, True, 0, False]
    assert from_wire(FetchOps, to_wire(op)) == op


def test_missing_values_take_defaults_and_unknown_ones_are_ignored() -> None:
    assert from_wire(CreateTopic, ["t"]) == CreateTopic("t")
    assert from_wire(CreateTopic, ["t", 3, True, None, "later", 9]) == CreateTopic("t", 3, True)
    assert from_wire(DescribeTopics, []) == DescribeTopics()


def test_an_op_may_have_nothing_to_say() -> None:
    assert to_wire(Probe()) == []
    assert from_wire(Probe, to_wire(Probe())) == Probe()
    assert from_wire(Probe, ["later"]) == Probe()


@pytest.mark.parametrize(
    "values", [None, {}, [], [5], [["t", 1]], [[["t", 1, 2]]], [[["t", 1, True, 3]]], [[5]]]
)
def test_wrong_shapes_are_protocol_errors(values: object) -> None:
    with pytest.raises(ProtocolError):
        from_wire(FetchOps, values)


def test_optional_lists_and_records() -> None:
    answer = FetchOpsResp([FetchOpResp([b"batch"], 7)])
    assert from_wire(FetchOpsResp, to_wire(answer)) == answer
    assert from_wire(DescribeTopics, [None, [b"i" * 16], True]).topic_ids == [b"i" * 16]


def test_a_sampled_context_survives_its_header() -> None:
    context = parse_traceparent(TRACEPARENT, "vendor=1")
    assert context is not None
    assert context.traceparent == TRACEPARENT
    assert context.tracestate == "vendor=1"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        TRACEPARENT[:-1] + "0",
        TRACEPARENT + "-extra",
        TRACEPARENT.upper(),
        "01" + TRACEPARENT[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    ],
)
def test_headers_that_are_absent_invalid_or_unsampled(header: str) -> None:
    assert parse_traceparent(header) is None


def test_nothing_is_sampled_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    tracer = tracer_from_environment("test")
    assert type(tracer) is Tracer
    assert tracer.root("x", 1) is NO_SPAN
    assert tracer.start("x", TraceContext(1, 2)) is NO_SPAN


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_SAMPLER", "sometimes"), ("OTEL_TRACES_SAMPLER_ARG", "2")],
)
def test_settings_that_are_not_allowed_name_themselves(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}='{value}'"):
        tracer_from_environment("test")
