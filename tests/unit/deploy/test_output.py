"""Tables, JSON and colours."""

from __future__ import annotations

import json
import sys

import pytest

from quafka.commands.output import (
    Quantity,
    as_json,
    catch_up,
    colour,
    facts,
    number,
    open_for,
    plain,
    size,
    span,
    table,
)
from quafka_client.topics import TopicSummary


def test_numbers_go_to_the_right_and_nothing_is_cut_short() -> None:
    long = "a-very-long-name-" * 20
    shown = table(("NAME", "COUNT", "BEHIND"), [("a", 5, span(90)), (long, 12_345, None)])
    head, first, second = shown.splitlines()
    assert head == f"{'NAME':{len(long)}}  COUNT  BEHIND"
    assert first == f"{'a':{len(long)}}      5  1m 30s"
    assert second == f"{long}  12345       -"


def test_a_table_of_nothing_is_its_headings() -> None:
    assert table(("NAME", "COUNT"), []) == "NAME  COUNT"


def test_wide_and_combining_characters_keep_the_columns() -> None:
    shown = table(("NAME", "X"), [("日本", "1"), ("e\u0301", "2"), ("abcd", "3")])
    assert shown.splitlines()[1:] == ["日本  1", "e\u0301     2", "abcd  3"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓", "plain ✓"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\u202e", "a\\nb\\u202e"),
    ],
)
def test_no_name_moves_a_cursor(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert shown in table(("NAME",), [(text,)])
    assert shown in facts([("name", text)])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.04, "<0.1s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (61, "1m 1s"),
        (3_600, "1h"),
        (3_661, "1h 1m"),
        (86_400 * 3 + 59, "3d"),
        (86_400 * 400 + 7_200, "400d 2h"),
    ],
)
def test_spans(seconds: float, shown: str) -> None:
    assert span(seconds) == shown
    assert isinstance(span(seconds), Quantity)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, None), (0.0, "just opened"), (0.9, "just opened"), (1.0, "1.0s"), (90, "1m 30s")],
)
def test_how_long_something_is_open(seconds: float | None, shown: str | None) -> None:
    assert open_for(seconds) == shown


@pytest.mark.parametrize(
    ("lag", "behind", "seconds", "followed", "shown"),
    [
        (None, None, None, True, None),
        (0, 0.0, None, False, "caught up"),
        (5, 3.0, 90.0, True, "1m 30s"),
        (5, 3.0, None, True, "never at this rate, or unknown"),
        (5, 3.0, None, False, "never: no member"),
        (5, None, None, False, None),
    ],
)
def test_until_a_group_has_caught_up(
    lag: int | None, behind: float | None, seconds: float | None, followed: bool, shown: str | None
) -> None:
    assert catch_up(lag, behind, seconds, followed=followed) == shown


def test_sizes() -> None:
    counts = (0, 999, 1_000, 1_536, 20_000_000_000, 3 << 60)
    assert list(map(size, counts)) == [
        "0 B", "999 B", "1.0 kB", "1.5 kB", "20.0 GB", "3458764.5 TB",
    ]  # fmt: skip
    assert size(None) is None


def test_no_span() -> None:
    assert span(None) is None


def test_json_has_the_fields_of_what_is_shown() -> None:
    document = {"topics": [TopicSummary("naïve", 3, 1, internal=False)], "n": None}
    assert json.loads(as_json(document)) == {
        "topics": [{"name": "naïve", "partitions": 3, "replicas": 1, "internal": False}],
        "n": None,
    }
    assert "naïve" in as_json(document)


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour("x", "red") == "x"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert colour("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("TERM", "dumb")
    assert colour("x", "red") == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert colour("x", "red") == "x"


def test_a_number_of_bytes_has_no_exponent() -> None:
    assert number(float(1 << 50)) == "1125899906842624"
    assert number(2.5) == "2.5"
