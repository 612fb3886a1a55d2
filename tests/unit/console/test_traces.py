"""Traces in the console: what is kept, the tree of one, and exports of anybody."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from quafka_console.data.traces import otlp
from quafka_console.data.traces.otlp import BadExportError, spans_of
from quafka_console.data.traces.store import TraceSpan, TraceStore, waterfall


def span(
    trace: str, own: str, parent: str = "", start: int = 0, end: int = 100, name: str = "a",
    **attributes: str,
) -> TraceSpan:  # fmt: skip
    return TraceSpan(trace, own, parent, name, "quafka", start, end, attributes)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400)), max_size=60))
def test_the_store_keeps_its_bound_and_what_came_last(added: list[tuple[int, int]]) -> None:
    store = TraceStore(20_000)
    for number, (trace, length) in enumerate(added):
        store.add([span(str(trace), str(number), start=number, value="x" * length)])
        assert 0 <= store.size <= 20_000
        assert store.size == sum(each.size for each in store.last())
        assert store.find(str(trace)) is not None
    starts = [each.start for each in store.last()]
    assert starts == sorted(starts, reverse=True)


@pytest.mark.parametrize(
    ("attributes", "value", "name"),
    [(64, "", "a"), (20, "\N{GRINNING FACE}" * 500, "a"), (0, "", "n" * 480)],
)
def test_the_bound_is_of_memory(attributes: int, value: str, name: str) -> None:
    """As spans come from an export, every text is an object of its own."""
    store = TraceStore(1 << 20)
    tracemalloc.start()
    try:
        for number in range(3_000):
            own = {f"{number} {each}": value + str(each) for each in range(attributes)}
            made = span(f"{number:032}", f"{number:016}", name=name + str(number))
            store.add([replace(made, attributes=own)])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(store) < 3_000
    assert held < 1.2 * (1 << 20)


def test_a_trace_is_listed_once_its_beginning_has_come() -> None:
    store = TraceStore(1 << 20)
    store.add([span("t", "2", "1", 5, 6, "gateway.fetch.cache")])
    assert store.last() == []
    store.add([span("t", "1", "the client's", 0, 10, "gateway.kafka.request")])
    assert [each.trace_id for each in store.last()] == ["t"]


def test_one_trace_has_a_bound() -> None:
    store = TraceStore(1 << 30)
    store.add(span("t", str(number)) for number in range(5_000))
    (trace,) = store.last()
    assert len(trace.spans) == 1_000


def test_waiting_is_told_apart() -> None:
    store = TraceStore(1 << 20)
    store.add(
        [
            span("t", "1", "", 0, 10_000_000_000, "gateway.kafka.request"),
            span("t", "2", "1", 10, 9_000_000_010, "gateway.fetch.park"),
        ]
    )
    (trace,) = store.last()
    assert trace.waiting_seconds == 9
    assert trace.root.span_id == "1"


def test_a_tree_has_children_in_their_order_and_every_span_once() -> None:
    store = TraceStore(1 << 20)
    store.add(
        [
            span("t", "late", "root", 50, 60), span("t", "root", "", 0, 100),
            span("t", "early", "root", 10, 30), span("t", "below", "early", 15, 20),
            span("t", "orphan", "never came", 5, 200),
        ]
    )  # fmt: skip
    rows = waterfall(store.last()[0])
    assert [(each.span.span_id, each.depth) for each in rows] == [
        ("root", 0), ("early", 1), ("below", 2), ("late", 1), ("orphan", 0),
    ]  # fmt: skip
    assert (rows[3].left, rows[3].width) == (0.25, 0.05)


def test_circles_end() -> None:
    store = TraceStore(1 << 20)
    store.add([span("t", "a", "b"), span("t", "b", "a"), span("t", "c", "")])
    trace = store.find("t")
    assert trace is not None
    assert [each.span.span_id for each in waterfall(trace)] == ["c"]


def exported(attributes: int = 1, spans: int = 1) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    name = resource.resource.attributes.add(key="service.name")
    name.value.string_value = "quafka-gateway"
    scope = resource.scope_spans.add()
    for number in range(spans):
        made = scope.spans.add(
            trace_id=b"\x01" * 16, span_id=number.to_bytes(8), name="x" * 2_000,
            start_time_unix_nano=1, end_time_unix_nano=2,
        )  # fmt: skip
        for each in range(attributes):
            made.attributes.add(key=f"k{each}").value.int_value = each
    data: bytes = request.SerializeToString()
    return data


def test_an_export_is_read() -> None:
    (found,) = spans_of(gzip.compress(exported(2)), "gzip")
    assert (found.trace_id, found.service) == ("01" * 16, "quafka-gateway")
    assert found.attributes == {"k0": "0", "k1": "1"}
    assert len(found.name) == 500


def test_exports_of_anybody_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = spans_of(exported(500), "")
    assert len(found.attributes) == 64
    monkeypatch.setattr(otlp, "_MOST_SPANS", 10)
    assert len(spans_of(exported(1, 50), "")) == 10
    bomb = zlib.compressobj(wbits=31)
    packed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(33)) + bomb.flush()
    for body, encoding in ((b"\xff\xff", ""), (b"no gzip", "gzip"), (b"", "br"), (packed, "gzip")):
        with pytest.raises(BadExportError):
            spans_of(body, encoding)


@given(st.binary(max_size=300))
def test_any_bytes_are_spans_or_refused(body: bytes) -> None:
    try:
        spans_of(body, "")
    except BadExportError:
        return
