"""The status page: its values are escaped, and its rows are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from quafka_telemetry.metrics import Histogram
from quafka_telemetry.operations import PageRequest
from quafka_telemetry.status_page import (
    Cell,
    Facts,
    PageTable,
    Section,
    StatusPage,
    age,
    count,
    duration,
    moment,
    size,
    text,
    trace,
)

EVIL = "<script>alert('1')</script>\"&\ud800"


async def shown(*sections: Section, problems: Mapping[str, str] | None = None) -> str:
    async def every() -> Iterable[Section]:
        return sections

    page = StatusPage("broker", lambda: problems or {}, every).page
    reply = await page(PageRequest())
    assert reply.content_type == "text/html; charset=utf-8"
    assert not isinstance(reply.body, bytes)
    return b"".join(reply.body).decode()


async def test_nothing_that_somebody_called_something_is_markup() -> None:
    table = PageTable(EVIL, [EVIL], [[text(EVIL)], [Cell(EVIL, bad=True)], [Cell(EVIL, url=EVIL)]])
    facts = Facts(EVIL, [(EVIL, text(EVIL))])
    html = await shown(table, facts, problems={EVIL: EVIL})
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&quot;&amp;?") == 11


async def test_the_page_says_whether_it_is_ready_and_why_not() -> None:
    assert ">ready</p>" in await shown()
    html = await shown(problems={"broker": "recovering the log"})
    assert ">not ready</p>" in html
    assert "broker: recovering the log" in html


async def test_no_more_rows_are_made_than_are_shown() -> None:
    made = 0

    def rows() -> Iterator[list[Cell]]:
        nonlocal made
        while True:
            made += 1
            yield [count(made)]

    html = await shown(PageTable("Many", ["number"], rows()))
    assert html.count("<tr>") == 1 + 500
    assert "only the first 500 rows are shown" in html
    assert made == 501
    html = await shown(PageTable("Few", ["number"], [[count(1)], [count(2)]]))
    assert "are shown" not in html
    assert "<p>nobody</p>" in await shown(PageTable("None", ["number"], [], "nobody"))


async def as_json(*sections: Section, problems: Mapping[str, str] | None = None) -> Any:
    async def every() -> Iterable[Section]:
        return sections

    page = StatusPage("broker", lambda: problems or {}, every).page
    reply = await page(PageRequest(accept="application/json"))
    assert reply.content_type == "application/json"
    assert not isinstance(reply.body, bytes)
    return json.loads(b"".join(reply.body))


async def test_programs_get_the_numbers_without_their_units() -> None:
    row = [text(EVIL), count(1_234), size(1 << 30), duration(0.25), duration(None), moment(12.5)]
    table = PageTable("Rows", list("abcdef"), [row, [*row[:-1], trace("f" * 32, "")]])
    found = await as_json(
        Facts("Facts", [("state", text("fine", bad=True)), ("since", age(None))]), table
    )
    assert (found["program"], found["ready"], found["problems"]) == ("broker", True, {})
    facts, rows = found["sections"]
    assert facts == {"title": "Facts", "facts": {"state": "fine", "since": "none"}}
    assert (rows["title"], rows["columns"], rows["more"]) == ("Rows", list("abcdef"), False)
    assert rows["rows"] == [
        [EVIL, 1_234, 1 << 30, 0.25, None, 12.5],
        [EVIL, 1_234, 1 << 30, 0.25, None, "f" * 32],
    ]


async def test_programs_learn_of_problems_and_of_rows_that_are_left_out() -> None:
    found = await as_json(
        PageTable("Many", ["number"], ([count(at)] for at in range(501))),
        PageTable("None", ["number"], []),
        problems={"log": "full"},
    )
    assert (found["ready"], found["problems"]) == (False, {"log": "full"})
    many, none = found["sections"]
    assert (len(many["rows"]), many["more"], none["rows"], none["more"]) == (500, True, [], False)


@pytest.mark.parametrize("accept", ["", "*/*", "text/html,application/json;q=0.9"])
async def test_people_get_the_page(accept: str) -> None:
    async def none() -> Iterable[Section]:
        return ()

    reply = await StatusPage("broker", dict, none).page(PageRequest(accept=accept))
    assert reply.content_type.startswith("text/html")


def test_a_trace_is_a_link_where_it_is_known_where_to_look() -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    url = "http://localhost:16686/trace/{trace_id}"
    linked = trace(trace_id, url)
    assert (linked.text, linked.url) == (trace_id[:16], url.replace("{trace_id}", trace_id))
    assert trace(trace_id, "").url == ""
    assert trace("", url) == Cell("")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (0.0, "0 s"), (0.000_25, "250 µs"), (0.0123, "12.3 ms"), (1.5, "1.5 s"),
     (600, "10 min"), (86_400, "24 h"), (864_000, "10 days")],
)  # fmt: skip
def test_how_long(seconds: float | None, words: str) -> None:
    assert duration(seconds).text == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "none"), (0.0, "under 1 s"), (0.9, "under 1 s"), (61.0, "61 s")]
)
def test_since_when(seconds: float | None, words: str) -> None:
    assert age(seconds).text == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"),
        (5 << 50, "5,120.0 TiB"),
    ],
)  # fmt: skip
def test_how_large(value: int, words: str) -> None:
    assert size(value).text == words


def test_a_quantile_lies_within_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) is None
    for value in (0.5, 1.5, 1.6, 3.0):
        histogram.observe(value)
    assert histogram.quantile(0.25) == 1.0
    assert histogram.quantile(0.5) == 1.5
    assert histogram.quantile(1.0) == 4.0
    histogram.observe(100.0)
    assert histogram.quantile(1.0) == 4.0
