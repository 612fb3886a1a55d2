"""Recorded spans: the data and the names that the SDK's exporters receive."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from quafka_proto.errors import ErrorCode
from quafka_telemetry import semconv
from quafka_telemetry.destinations import (
    MAX_PARTITION_EVENTS,
    Destination,
    describe_destinations,
)
from quafka_telemetry.otlp import OtlpTracer, RecordedSpan, SpanQueue
from quafka_telemetry.otlp_export import Translator
from quafka_telemetry.sampling import EdgeSampling, Sampler
from quafka_telemetry.tracing import (
    INTERNAL,
    MAX_LINKS,
    ProducedBy,
    TraceContext,
    fail_with,
    parse_client,
)
from quafka_telemetry.version import version
from tests.support.recorded_spans import RecordedSpans

PARENT = TraceContext(5, 6, "vendor=1")
ROOT = Path(__file__).parents[3]


class Out:
    """A tracer and its ended spans."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.ended: list[RecordedSpan] = []
        self.queue = SpanQueue(self._take, limit=100, batch=100, delay=60)
        self.tracer = OtlpTracer(Sampler(1.0, True, EdgeSampling()), self.queue)
        self._translator = Translator("service", env or {})

    def _take(self, spans: Sequence[RecordedSpan]) -> bool:
        self.ended += spans
        return True

    def one(self) -> ReadableSpan:
        """The only span so far."""
        (span,) = self.all()
        return span

    def all(self) -> list[ReadableSpan]:
        """The spans so far."""
        self.queue.close(5.0)
        return [self._translator.readable(each) for each in self.ended]


@pytest.fixture
def out() -> Iterator[Out]:
    made = Out()
    yield made
    made.queue.close(5.0)


def test_a_span_is_all_that_it_was_told(out: Out) -> None:
    with out.tracer.start(semconv.HANDLE, PARENT, {semconv.OP: "X"}, "server", begun=10) as span:
        span.set({semconv.ORG: 7})
        span.event(semconv.MALFORMED, {semconv.REASON: "r"})
        span.link(TraceContext(n, n) for n in range(1, 100))
    seen = out.one()
    assert (seen.name, seen.kind, seen.start_time) == (semconv.HANDLE, SpanKind.SERVER, 10)
    assert seen.parent is not None
    assert (seen.parent.trace_id, seen.parent.span_id, seen.parent.is_remote) == (5, 6, True)
    assert seen.parent.trace_state.to_header() == "vendor=1"
    assert dict(seen.attributes or {}) == {
        semconv.SYSTEM: "kafka",
        semconv.OP: "X",
        semconv.ORG: 7,
    }
    assert [(e.name, dict(e.attributes or {})) for e in seen.events] == [
        (semconv.MALFORMED, {semconv.REASON: "r"})
    ]
    assert len(seen.links) == MAX_LINKS
    assert seen.status.status_code is StatusCode.UNSET


def test_a_trace_is_linked_once_and_only_some_contexts_are_looked_at(out: Out) -> None:
    looked_at: list[int] = []

    def contexts() -> Iterator[TraceContext]:
        for number in range(10_000):
            looked_at.append(number)
            yield TraceContext(1 + number // 30, 1)

    with out.tracer.start(semconv.FETCH_READ, PARENT) as span:
        span.link(contexts())
    assert [link.context.trace_id for link in out.one().links] == [1, 2, 3]
    assert len(looked_at) == 64


def test_only_the_first_end_counts(out: Out) -> None:
    span = out.tracer.start(semconv.HANDLE, PARENT, begun=10)
    span.end(20)
    span.end(30)
    assert out.one().end_time == 20


def test_a_clock_that_is_set_back_ends_no_span_before_its_beginning(out: Out) -> None:
    out.tracer.start(semconv.HANDLE, PARENT, begun=10).end(5)
    assert out.one().end_time == 10


def test_the_first_error_counts_and_is_said_once(out: Out) -> None:
    with out.tracer.start(semconv.HANDLE, PARENT) as span:
        span.fail("NOT_COORDINATOR")
        span.fail("UNKNOWN_SERVER_ERROR")
    seen = out.one()
    assert (seen.status.status_code, seen.status.description) == (
        StatusCode.ERROR,
        "NOT_COORDINATOR",
    )
    assert [dict(event.attributes or {}) for event in seen.events] == [
        {semconv.ERROR_TYPE: "NOT_COORDINATOR"}
    ]


def test_what_a_protocol_asks_for_is_no_failure(out: Out) -> None:
    with out.tracer.start(semconv.HANDLE, PARENT) as span:
        fail_with(span, [0, ErrorCode.MEMBER_ID_REQUIRED], "JoinGroup")
    seen = out.one()
    assert seen.status.status_code is StatusCode.UNSET
    assert [dict(event.attributes or {}) for event in seen.events] == [
        {semconv.ERROR_TYPE: "MEMBER_ID_REQUIRED"}
    ]


@pytest.mark.parametrize(
    ("codes", "step"),
    [
        ([ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NOT_COORDINATOR], "JoinGroup"),
        ([ErrorCode.NOT_COORDINATOR], "JoinGroup"),
    ],
)
def test_a_failure_beside_an_expected_error_counts(codes: list[int], step: str, out: Out) -> None:
    with out.tracer.start(semconv.HANDLE, PARENT) as span:
        fail_with(span, codes, step)
    assert out.one().status.description == "NOT_COORDINATOR"


@pytest.mark.parametrize(
    ("raised", "status", "event"),
    [
        (asyncio.CancelledError, StatusCode.UNSET, semconv.CANCELLED),
        (ValueError, StatusCode.ERROR, semconv.KAFKA_ERROR),
    ],
)
def test_cancelled_is_not_failed(
    raised: type[BaseException], status: StatusCode, event: str, out: Out
) -> None:
    with pytest.raises(raised), out.tracer.start(semconv.HANDLE, PARENT):
        raise raised
    seen = out.one()
    assert seen.status.status_code is status
    assert [each.name for each in seen.events] == [event]


@pytest.mark.parametrize(
    ("opted", "names", "schema"),
    [
        ("", {"messaging.system"}, "1.44.0"),
        ("http,database", {"messaging.system"}, "1.44.0"),
        ("http, messaging", {"messaging.system.name"}, "1.45.0"),
        ("messaging,messaging/dup", {"messaging.system", "messaging.system.name"}, "1.44.0"),
    ],
)
def test_names_follow_what_was_opted_for(opted: str, names: set[str], schema: str) -> None:
    out = Out({semconv.OPT_IN: opted})
    out.tracer.root(semconv.CONNECT, 1).end()
    seen = out.one()
    assert set(seen.attributes or {}) == {*names, semconv.SAMPLED_BY}
    assert seen.instrumentation_scope is not None
    assert seen.instrumentation_scope.schema_url == f"https://opentelemetry.io/schemas/{schema}"


def test_every_renamed_attribute_is_in_the_table_of_attributes() -> None:
    assert semconv.RENAMED.keys() <= semconv.ATTRIBUTES
    assert semconv.RENAMED[semconv.CLUSTER_ID] == "kafka.cluster.id"


def test_rare_work_is_traced_whatever_the_ratio_within_a_bound() -> None:
    recorded = RecordedSpans(ratio=0)
    for shard in range(1_000):
        recorded.tracer.own_root(semconv.TAKE_OVER, {semconv.SHARD: shard}).end()
    spans = recorded.close()
    assert 100 <= len(spans) < 300
    assert len({span.context.trace_id for span in spans if span.context is not None}) == len(spans)
    assert spans[0].attributes == {semconv.SHARD: 0, semconv.SAMPLED_BY: "always"}
    assert (spans[0].parent, spans[0].kind) == (None, INTERNAL)


def test_every_name_in_the_code_is_of_the_table() -> None:
    """All attribute names are in the table: a literal in `span.set` fails this test."""
    named = re.compile(r'(?:\.set\(|\.event\(|\.start\(|\.child\()\s*\{?\s*f?"([^"]+)"')
    found: set[str] = set()
    for path in ROOT.glob("*/quafka*/**/*.py"):
        found |= set(named.findall(path.read_text()))
    # The span of an API's handler is named after the API.
    assert {name for name in found if not name.startswith("gateway.kafka.")} == set()


def test_only_the_newest_produces_are_remembered() -> None:
    produced_by = ProducedBy(limit=3)
    for offset in range(5):
        produced_by.record("partition", offset, TraceContext(1 + offset, 1))
    assert len(produced_by) == 3
    assert produced_by.find("partition", 1) is None
    assert produced_by.find("partition", 4) == TraceContext(5, 1)
    assert produced_by.find("another", 4) is None


def test_what_a_client_has_not_sampled_is_known_as_that() -> None:
    found = parse_client("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    assert found is not None
    assert not found.sampled


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("vendor=1", "vendor=1"),
        ("a=1, \t b@c=x y ,,", "a=1,b@c=x y"),
        (",".join(["k=" + "v" * 98] * 9), ",".join(["k=" + "v" * 98] * 5)),
        ("k=" + "v" * 300, ""),
        ("A=1", ""),
        ("a=1,b", ""),
        ("a=b=c", ""),
        ("a=\n", ""),
        ("\u00e9=1", ""),
    ],
)
def test_a_state_is_kept_in_whole_members_or_not_at_all(state: str, kept: str) -> None:
    found = parse_client("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", state)
    assert found is not None
    assert found.context.tracestate == kept


def test_several_partitions_are_events_with_a_bound(out: Out) -> None:
    with out.tracer.start(semconv.GATEWAY_FETCH, PARENT) as span:
        describe_destinations(span, [("t", bytes(15) + b"\1", n) for n in range(100)])
    seen = out.one()
    topic = {semconv.DESTINATION: "t", semconv.TOPIC_ID: "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert seen.attributes == {semconv.SYSTEM: "kafka", **topic}
    assert [(each.name, each.attributes) for each in seen.events] == [
        (semconv.PARTITION, {**topic, semconv.PARTITION_ID: str(n)})
        for n in range(MAX_PARTITION_EVENTS)
    ]


def test_partitions_with_records_have_the_first_events_and_their_offsets(out: Out) -> None:
    partitions = [("t", b"", n) for n in range(100)]
    with out.tracer.start(semconv.GATEWAY_FETCH, PARENT) as span:
        describe_destinations(span, partitions, [None] * 99 + [(5, 7)])
    with out.tracer.start(semconv.GATEWAY_FETCH, PARENT) as span:
        describe_destinations(span, partitions[:1], [(8, 8)])
    several, one = out.all()
    found = [each.attributes for each in several.events]
    assert len(found) == MAX_PARTITION_EVENTS
    assert found[0] == {
        semconv.DESTINATION: "t", semconv.PARTITION_ID: "99", semconv.BASE_OFFSET: 5,
        semconv.LAST_OFFSET: 7,
    }  # fmt: skip
    assert found[1] == {semconv.DESTINATION: "t", semconv.PARTITION_ID: "0"}
    assert {semconv.BASE_OFFSET: 8, semconv.LAST_OFFSET: 8}.items() <= dict(
        one.attributes or {}
    ).items()


def test_partitions_of_several_topics_share_no_name(out: Out) -> None:
    with out.tracer.start(semconv.GATEWAY_FETCH, PARENT) as span:
        describe_destinations(span, [("a", b"", 0), ("", bytes(16), 1)])
    seen = out.one()
    assert seen.attributes == {semconv.SYSTEM: "kafka"}
    assert [each.attributes for each in seen.events] == [
        {semconv.DESTINATION: "a", semconv.PARTITION_ID: "0"},
        {semconv.PARTITION_ID: "1"},
    ]


def test_the_resource_has_the_instance_and_the_version(out: Out) -> None:
    out.tracer.start(semconv.HANDLE, PARENT).end()
    about = out.one().resource.attributes
    assert about["service.version"] == version()
    assert about["service.instance.id"]


def test_of_very_many_partitions_the_first_are_looked_at(out: Out) -> None:
    looked_at: list[int] = []

    def partitions() -> Iterator[Destination]:
        for number in range(100_000):
            looked_at.append(number)
            yield "t", b"", number

    with out.tracer.start(semconv.GATEWAY_FETCH, PARENT) as span:
        describe_destinations(span, partitions())
    seen = out.one()
    assert seen.attributes == {semconv.SYSTEM: "kafka"}
    assert len(seen.events) == MAX_PARTITION_EVENTS
    assert len(looked_at) < 1_100
