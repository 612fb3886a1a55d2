"""Metrics as text, checked by Prometheus' own parsers, and the cost of reading them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from quafka_loop import clock, threads
from quafka_telemetry.exposition import metrics_page, prefers_openmetrics, render
from quafka_telemetry.metrics import (
    Family,
    FamilyKind,
    Histogram,
    Metrics,
    Sample,
    Value,
    counter,
    gauge,
)
from quafka_telemetry.operations import Operations
from tests.support.http_pages import fetch
from tests.support.prometheus import OPEN, lint, samples

ODD = 'a"b\\c\nd{e="f"}, é'


def families() -> Iterator[Family]:
    yield counter("things", "What was seen, \\ and\nmore", 3)
    yield gauge("size_bytes", "How large", 1.5e300)
    yield gauge("nothing", "Nobody knows", math.nan)
    yield Family(
        "most", FamilyKind.GAUGE, "Limits", [(("up",), math.inf), (("down",), -math.inf)], ("d",)
    )
    odd: list[Sample] = [((ODD, "0"), 1), (("plain", "1"), 2)]
    yield Family("odd", FamilyKind.GAUGE, "Labels", odd, ("name", "number"))
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    yield Family("took_seconds", FamilyKind.HISTOGRAM, "How long", [(("x",), histogram)], ("api",))
    yield Family("wait_seconds", FamilyKind.HISTOGRAM, "How long", [((), Histogram((1.0,)))])
    yield Family("none", FamilyKind.COUNTER, "There is none", [], ("api",))


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "OpenMetrics"])
def test_what_is_written_is_what_is_read(openmetrics: bool) -> None:
    read = samples("".join(render(families(), openmetrics=openmetrics)), openmetrics=openmetrics)
    assert read["things_total", frozenset()] == 3
    assert read["size_bytes", frozenset()] == 1.5e300
    assert math.isnan(read["nothing", frozenset()])
    assert read["most", frozenset({"d=up"})] == math.inf
    assert read["most", frozenset({"d=down"})] == -math.inf
    assert read["odd", frozenset({f"name={ODD}", "number=0"})] == 1
    by_bound = {
        bound: read["took_seconds_bucket", frozenset({"api=x", f"le={bound}"})]
        for bound in ("0.1", "1.0", "+Inf")
    }
    assert by_bound == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert read["took_seconds_count", frozenset({"api=x"})] == 4
    assert read["took_seconds_sum", frozenset({"api=x"})] == pytest.approx(7.65)
    assert read["wait_seconds_count", frozenset()] == 0


@pytest.mark.needs("promtool")
def test_promtool_has_nothing_against_it() -> None:
    assert lint("".join(render(families()))) == ""


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        (OPEN, True),
        ("application/openmetrics-text;version=1.0.0;escaping=x;q=0.5,text/plain;q=0.3", True),
        ("application/openmetrics-text;q=0.2,text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense,;,", False),
    ],
)
def test_who_asks_for_openmetrics_gets_it(accept: str, openmetrics: bool) -> None:
    assert prefers_openmetrics(accept) is openmetrics


@asynccontextmanager
async def serving(metrics: Metrics) -> AsyncIterator[int]:
    operations = Operations(dict)
    operations.add("/metrics", metrics_page(metrics))
    operations.add("/metrics/detail", metrics_page(metrics, detail=True))
    _, port = await operations.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await operations.close()


async def get(port: int, path: str, accept: str = "") -> tuple[int, str, str]:
    page = await fetch("127.0.0.1", port, path, headers={"Accept": accept} if accept else None)
    return page.status, page.kind, page.body.decode()


async def test_the_page_answers_in_the_format_asked_for() -> None:
    metrics = Metrics()
    metrics.add(families)
    async with serving(metrics) as port:
        _, kind, text = await get(port, "/metrics")
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        assert text == "".join(render(families()))
        _, kind, text = await get(port, "/metrics", OPEN)
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert text == "".join(render(families(), openmetrics=True))
        assert (await get(port, "/metrics/detail"))[2] == ""


async def test_many_samples_are_made_a_few_at_a_time_and_as_they_are_read() -> None:
    count = 200_000
    made = 0

    def many() -> Iterator[tuple[tuple[str, ...], Value]]:
        nonlocal made
        for number in range(count):
            made += 1
            yield (f"a-topic-with-a-name-{number}",), number

    metrics = Metrics()
    metrics.add(lambda: [Family("many", FamilyKind.GAUGE, "Many", many(), ("topic",))], detail=True)
    async with serving(metrics) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(b"GET /metrics/detail HTTP/1.0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        # The client does not read: the system's buffers fill, and rendering stops.
        before = -1
        while made != before:
            before = made
            await asyncio.sleep(0.1)
        assert 0 < made < count
        # Other tasks run meanwhile.
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(others())
        size = 0
        while piece := await reader.read(1 << 20):
            size += len(piece)
        beside.cancel()
        assert made == count
        assert size > count * 30
        assert turns > 50
        writer.close()
        await writer.wait_closed()


async def test_half_an_answer_does_not_look_like_a_whole_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> Iterator[Family]:
        yield gauge("first", "There", 1)
        raise ValueError("a mistake")

    metrics = Metrics()
    metrics.add(broken)
    async with serving(metrics) as port:
        with pytest.raises(Exception, match="without sending complete message body"):
            await get(port, "/metrics")
        assert "a mistake" in caplog.text
        status, _, _ = await get(port, "/livez")
        assert status == 200


async def test_a_figure_that_blocks_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quafka_telemetry.metrics._SLOWEST_READ", 0.05)
    calls = 0
    over = threads.Event()

    def blocks() -> None:
        nonlocal calls
        calls += 1
        over.wait(30)

    metrics = Metrics()
    metrics.before(blocks)
    metrics.add(families)
    async with serving(metrics) as port:
        began = clock.monotonic()
        for _ in range(3):
            await get(port, "/metrics")
        assert clock.monotonic() - began == pytest.approx(0.15)
        assert calls == 1, "what still waits is not asked again"
        over.set()
