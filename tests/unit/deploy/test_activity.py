"""What `quafka top` shows: rates of two samples, in the space that a terminal has."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from quafka.commands.screen import clipped
from quafka.commands.top import ORDERS, TopicOrder, page, text
from quafka_client.activity import ActivitySample, GatewayTraffic, between
from quafka_client.groups import GroupSummary

NAMES = [f"topic-{n:02}" for n in range(40)]


def sampled(at: float, factor: int, requests: int, *, anew: str = "") -> ActivitySample:
    """Topic number n has n times `factor` records of 10 bytes."""
    ends = {name: n * factor for n, name in enumerate(NAMES)}
    return ActivitySample(
        at,
        {name: b"new" if name == anew else b"old" for name in NAMES},
        dict.fromkeys(NAMES, 2),
        ends,
        {name: 10 * end for name, end in ends.items()},
        [GroupSummary(f"group-{n:02}", "Stable", "consumer", 1, n, None) for n in range(20)],
        (3, requests, 10 * requests, 100 * requests),
    )


def test_rates_are_differences() -> None:
    found = between(sampled(10.0, 100, 50), sampled(12.0, 300, 250, anew="topic-39"))
    assert found.seconds == 2.0
    topics = {topic.name: topic for topic in found.topics}
    busy = topics["topic-38"]
    assert (busy.records_per_second, busy.bytes_per_second, busy.bytes) == (3800, 38_000, 114_000)
    anew = topics["topic-39"]
    assert (anew.records_per_second, anew.bytes_per_second) == (0, 0), "created anew meanwhile"
    assert found.gateway == GatewayTraffic(3, 100.0, 1_000.0, 10_000.0)


@pytest.mark.parametrize("chosen", ORDERS, ids=str)
def test_the_first_rows_of_each_order_fit_a_terminal(chosen: TopicOrder) -> None:
    activity = between(sampled(10.0, 100, 50), sampled(12.0, 300, 250))
    lines = text(activity, chosen, 10, 4).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 20
    assert lines[1].startswith("connections 3   100 requests/s")
    first = lines[4].split()[0]
    assert first == ("topic-00" if chosen.name == "name" else "topic-39")
    assert [line.split()[0] for line in lines[-4:-1]] == [f"group-{n}" for n in range(19, 16, -1)]
    assert lines[13] == "… 31 more topics"
    assert lines[-1] == "… 17 more groups"


@pytest.mark.parametrize("chosen", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("columns", "lines"), [(80, 24), (50, 12), (50, 40), (30, 24), (200, 10), (40, 9)]
)
def test_a_terminal_of_any_size_has_whole_lines(
    chosen: TopicOrder, columns: int, lines: int
) -> None:
    activity = between(sampled(10.0, 100, 50), sampled(12.0, 300, 250))
    head = ["localhost:9092", "2026-11-28 15:00:00", "every 2 s"]
    shown = page(activity, chosen, head, os.terminal_size((columns, lines))).splitlines()
    assert max(map(len, shown)) <= columns
    assert len(shown) <= lines
    for what, kind, number in (("TOPIC", "topics", 40), ("GROUP", "groups", 20)):
        at = next(n for n, line in enumerate(shown) if line.startswith(what))
        rest = next(n for n, line in enumerate(shown) if line.endswith(f" more {kind}"))
        assert shown[rest] == f"… {number - (rest - at - 1)} more {kind}"
    assert sum("*" in line for line in shown) == 1, "the order is named"
    keys = shown[[line.startswith("q quit") for line in shown].index(True) :]
    assert all(f" {each.key}" in f" {' '.join(keys)}" for each in ORDERS)


def test_long_names_are_shortened_in_a_narrow_terminal_only() -> None:
    name = "x" * 200
    before = ActivitySample(1.0, {name: b"i"}, {name: 1}, {name: 0}, {name: 0}, [], None)
    activity = between(before, replace(before, at=2.0, ends={name: 7}))
    shown = page(activity, ORDERS[0], ["a:1"], os.terminal_size((40, 24)))
    assert max(map(len, shown.splitlines())) <= 40
    assert "xxxx…  " in shown
    assert name in text(activity, ORDERS[0], 20, 20)


@pytest.mark.parametrize(
    ("line", "columns", "shown"),
    [
        ("short", 5, "short"),
        ("too long", 5, "too l"),
        ("\x1b[1mbold\x1b[0m and plain", 6, "\x1b[1mbold\x1b[0m a\x1b[0m"),
        ("\x1b[2mdimmed\x1b[0m", 6, "\x1b[2mdimmed\x1b[0m"),
        ("日本語", 5, "日本"),
    ],
)
def test_a_line_is_clipped_by_columns(line: str, columns: int, shown: str) -> None:
    assert clipped(line, columns) == shown
