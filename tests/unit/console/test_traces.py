"""Traces in the console: what is kept, the tree of one, and exports of anybody."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from quafka_console.data.traces import otlp
from quafka_console.data.traces.otlp import BadExportError, spans_of
from quafka_console.data.traces.receiver import TraceReceiver
from quafka_console.data.traces.search import TraceQuery, linking, path_of, search
from quafka_console.data.traces.spans import TracedPlace, TraceSpan
from quafka_console.data.traces.store import TraceStore
from quafka_console.data.traces.waterfall import waterfall
from quafka_telemetry import semconv
from quafka_telemetry.page_access import PageAccess
from quafka_telemetry.page_files import PageFiles


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
            span("t", "2", "1", 10, 9_000_000_010, "gateway.fetch.park"),
            replace(
                span("t", "1", "", 0, 10_000_000_000, semconv.REQUEST),
                attributes={semconv.PARKED_MS: "9000.0"},
            ),
        ]
    )
    (trace,) = store.last()
    assert (trace.waiting_seconds, trace.working_seconds) == (9, 1)
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
    assert (rows[3].left, round(rows[3].width, 6)) == (0.25, 0.05)
    cut = waterfall(store.last()[0], 20, 40)
    assert [(each.left, each.width) for each in cut[:2]] == [(0, 1), (0, 0.5)]


@pytest.mark.parametrize("ahead", [-3_000_000, 0, 5_000_000])
def test_another_clock_is_corrected_where_calls_show_it(ahead: int) -> None:
    """The broker's clock is ahead of the gateway's; the acknowledgement lies after its parent."""

    def made(own: str, parent: str, start: int, end: int, instance: str, kind: str) -> TraceSpan:
        shift = ahead if instance == "broker" else 0
        return replace(
            span("t", own, parent, start + shift, end + shift), instance=instance,
            is_server=kind == "server", is_client=kind == "client",
        )  # fmt: skip

    store = TraceStore(1 << 20)
    store.add(
        [
            made("request", "", 1_000_000, 2_000_000, "gateway", ""),
            made("sent", "request", 1_100_000, 1_900_000, "gateway", "client"),
            made("handle", "sent", 1_200_000, 1_800_000, "broker", "server"),
            made("store", "handle", 1_300_000, 1_700_000, "broker", ""),
            made("received", "store", 1_850_000, 1_900_000, "gateway", ""),
        ]
    )
    trace = store.find("t")
    assert trace is not None
    seen = [
        (each.span.span_id, round(each.left, 6), round(each.width, 6)) for each in waterfall(trace)
    ]
    assert seen == [
        ("request", 0, 1), ("sent", 0.1, 0.8), ("handle", 0.2, 0.6), ("store", 0.3, 0.4),
        ("received", 0.85, 0.05),
    ]  # fmt: skip


def request(trace: str, api: str, start: int, **about: str) -> TraceSpan:
    made = span(trace, f"{trace} request", "connect", start, start + 2_000_000, semconv.REQUEST)
    return replace(made, attributes={semconv.OPERATION: api, **about})


def carrying(trace: str, name: str, *places: TracedPlace, links: tuple[str, ...] = ()) -> TraceSpan:
    made = span(trace, f"{trace} {name}", f"{trace} request", 50, 60, name)
    return replace(made, places=places, links=links)


def filled() -> TraceStore:
    """A produce of orders/1 at 5 to 9, two deliveries of parts of it, and others."""
    store = TraceStore(1 << 20)
    store.add(
        [
            request("other", "Produce", 1, **{semconv.CLIENT_ID: "writer"}),
            carrying("other", semconv.GATEWAY_PRODUCE, TracedPlace("orders", 2, 5, 9)),
            request("wrote", "Produce", 2, **{semconv.CLIENT_ID: "writer", semconv.ORG: "7"}),
            carrying("wrote", semconv.GATEWAY_PRODUCE, TracedPlace("orders", 1, 5, 9)),
            request("none", "Fetch", 3, **{semconv.CLIENT_ID: "reader"}),
            carrying("none", semconv.GATEWAY_FETCH, TracedPlace("orders", 1, -1, -1)),
            request("late", "ShareFetch", 5, **{semconv.GROUP: "team"}),
            carrying("late", semconv.GATEWAY_SHARE_FETCH, TracedPlace("orders", 1, 9, 12)),
            request("soon", "Fetch", 4, **{semconv.CLIENT_ID: "reader"}),
            carrying(
                "soon", semconv.GATEWAY_FETCH, TracedPlace("x", 1, 5, 9),
                TracedPlace("orders", 1, 0, 9), links=("wrote",),
            ),
        ]
    )  # fmt: skip
    store.add([replace(request("slow", "Fetch", 6), end=900_000_006, failed=True)])
    return store


async def test_a_record_is_followed_from_its_producer_to_who_received_it() -> None:
    store = filled()
    path = await path_of(store, "orders", 1, 9)
    assert path.produced is not None
    assert path.produced.trace_id == "wrote"
    assert [each.trace_id for each in path.delivered] == ["soon", "late"]
    without = await path_of(store, "orders", 1, 9, without_client="reader")
    assert [each.trace_id for each in without.delivered] == ["late"]
    for place in (("orders", 1, 13), ("orders", 3, 9), ("other", 1, 9)):
        nothing = await path_of(store, *place)
        assert (nothing.produced, list(nothing.delivered)) == (None, [])
    assert [each.trace_id for each in await linking(store, "wrote")] == ["soon"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (TraceQuery(), ["slow", "late", "soon", "none", "wrote", "other"]),
        (TraceQuery(words="prod WRIT"), ["wrote", "other"]),
        (TraceQuery(api="Fetch"), ["slow", "soon", "none"]),
        (TraceQuery(topic="x"), ["soon"]),
        (TraceQuery(client="reader", topic="orders"), ["soon", "none"]),
        (TraceQuery(client="read"), []),
        (TraceQuery(without_client="reader", api="Fetch"), ["slow"]),
        (TraceQuery(group="team"), ["late"]),
        (TraceQuery(org="7"), ["wrote"]),
        (TraceQuery(seconds=0.5), ["slow"]),
        (TraceQuery(failed=True), ["slow"]),
    ],
)
async def test_traces_are_found_by_what_they_name(query: TraceQuery, found: list[str]) -> None:
    page = await search(filled(), query, 0)
    assert [each.trace_id for each in page.rows] == found
    assert (page.total, page.matching) == (6, len(found))


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


def test_an_export_names_processes_partitions_and_links() -> None:
    export = ExportTraceServiceRequest()
    resource = export.resource_spans.add()
    instance = resource.resource.attributes.add(key="service.instance.id")
    instance.value.string_value = "gateway-1"
    made = resource.scope_spans.add().spans.add(
        trace_id=b"\x01" * 16, span_id=bytes(8), kind=3, name=semconv.GATEWAY_FETCH
    )
    made.links.add(trace_id=b"\x02" * 16)
    made.links.add(trace_id=b"\x02" * 16)
    made.links.add(trace_id=b"short")
    for number in range(2):
        event = made.events.add(name=semconv.PARTITION)
        for name, value in (
            (semconv.DESTINATION, "orders"), (semconv.PARTITION_ID, str(number)),
            *(((semconv.BASE_OFFSET, "5"), (semconv.LAST_OFFSET, "7")) if number else ()),
        ):  # fmt: skip
            event.attributes.add(key=name).value.string_value = value
    (found,) = spans_of(export.SerializeToString(), "")
    assert (found.instance, found.is_client, found.is_server) == ("gateway-1", True, False)
    assert found.links == ("02" * 16,)
    assert found.places == (TracedPlace("orders", 0, -1, -1), TracedPlace("orders", 1, 5, 7))


def wrapped(data: bytes, *fields: int) -> bytes:
    """Bytes as nested messages, the outermost field first."""
    for field in reversed(fields):
        size, rest = b"", len(data)
        while rest > 127:
            size, rest = size + bytes([rest & 127 | 128]), rest >> 7
        data = bytes([field << 3 | 2]) + size + bytes([rest]) + data
    return data


_MILLION = 1 << 20
_EMPTY = {
    "resources": b"\x0a\x00" * (3 * _MILLION),
    "scopes": wrapped(b"\x12\x00" * (3 * _MILLION), 1),
    "spans": wrapped(b"\x12\x00" * (3 * _MILLION), 1, 2),
    "attributes of a span": wrapped(b"\x4a\x00" * (3 * _MILLION), 1, 2, 2),
    "attributes of a resource": wrapped(b"\x0a\x00" * (3 * _MILLION), 1, 1),
    "unknown fields": b"\x78\x00" * (3 * _MILLION),
}


@pytest.mark.parametrize("what", _EMPTY)
def test_few_bytes_do_not_become_much_memory(what: str) -> None:
    """Six MiB of empty messages, which gzip makes to six KiB."""
    packed = gzip.compress(_EMPTY[what])
    tracemalloc.start()
    try:
        with suppress(BadExportError):
            assert spans_of(packed, "gzip") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20


def test_exports_of_anybody_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = spans_of(exported(500), "")
    assert len(found.attributes) == 64
    monkeypatch.setattr(otlp, "_MOST_SPANS", 10)
    assert len(spans_of(exported(1, 50), "")) == 10
    bomb = zlib.compressobj(wbits=31)
    packed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(9)) + bomb.flush()
    for body, encoding in (
        (b"\xff\xff", ""), (b"no gzip", "gzip"), (b"", "br"), (packed, "gzip"),
        (b"\x0a\x05ab", ""), (b"\x0b", ""), (b"\xff" * 20, ""),
        (wrapped(b"\xff", 1, 2, 2), ""),
    ):  # fmt: skip
        with pytest.raises(BadExportError):
            spans_of(body, encoding)


async def in_parts(data: bytes, size: int = 1 << 16) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def test_who_has_no_token_exports_nothing(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-some-length\n")
    tokens.chmod(0o600)
    store = TraceStore(1 << 20)
    guarded = TraceReceiver(store, PageAccess(PageFiles(token=tokens)))
    for header in (b"", b"Bearer another-token-of-some-length", b"Basic a-token-of-some-length"):
        assert (await guarded.receive(header, "", in_parts(exported()))).status == 401
    closed = TraceReceiver(store, None)
    answer = await closed.receive(b"Bearer a-token-of-some-length", "", in_parts(exported()))
    assert answer.status == 403
    assert "console.traces.token.file" in answer.text
    assert len(store) == 0
    allowed = await guarded.receive(b"Bearer a-token-of-some-length", "", in_parts(exported()))
    assert (allowed.status, len(store)) == (200, 1)


async def test_exports_that_do_not_end_hold_up_nobody_for_long() -> None:
    receiver = TraceReceiver(TraceStore(1 << 20), PageAccess())

    async def slowly() -> AsyncIterator[bytes]:
        while True:
            yield b""
            await asyncio.sleep(1)

    slow = [asyncio.create_task(receiver.receive(b"", "", slowly())) for _ in range(8)]
    await asyncio.sleep(0)
    assert (await receiver.receive(b"", "", in_parts(exported()))).status == 503
    assert {(await each).status for each in slow} == {408}
    assert (await receiver.receive(b"", "", in_parts(exported()))).status == 200
    assert (await receiver.receive(b"", "", in_parts(bytes(5 << 20)))).status == 413


@given(st.binary(max_size=300))
def test_any_bytes_are_spans_or_refused(body: bytes) -> None:
    try:
        spans_of(body, "")
    except BadExportError:
        return
