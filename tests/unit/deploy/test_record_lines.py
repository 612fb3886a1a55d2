"""Records as text by templates, and as JSON that can be read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka.commands.records import ConsoleRecord, as_line, from_line, template

RECORD = ConsoleRecord("t", 3, 7, 1_700, b"k", b"v\xff", [("a", b"1"), ("b", None)])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"%s\n", b"v\xff\n"),
        ("%t/%p@%o %k=%s", b"t/3@7 k=v\xff"),
        ("%T %K %S %h%%", b"1700 1 2 a=1,b%"),
        (r"\t\r\0\\\x41", b"\t\r\0\\A"),
        ("ż%k", "żk".encode()),
        ("", b""),
    ],
)
def test_templates(text: str, shown: bytes) -> None:
    assert template(text)(RECORD) == shown


def test_a_template_shows_nothing_of_what_is_not_there() -> None:
    assert template("[%k|%s|%K|%S|%h]")(ConsoleRecord("t")) == b"[||-1|-1|]"


@pytest.mark.parametrize("text", ["%q", "%", "x%", "\\", r"\q", "\\xg0"])
def test_templates_that_mean_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (a token|an escape)|middle"):
        template(text)


def test_json_is_one_line_of_named_fields() -> None:
    line = as_line(RECORD)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700,
        "key": "k",
        "value": None,
        "value_base64": "dv8=",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }


blobs = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@given(
    st.builds(
        ConsoleRecord,
        topic=st.just("t"),
        timestamp=st.integers(-1, 1 << 50),
        key=blobs,
        value=blobs,
        headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3),
    )
)
def test_what_is_shown_can_be_read_again(record: ConsoleRecord) -> None:
    elsewhere = from_line(as_line(record), "u")
    assert elsewhere == replace(record, topic="u")


def test_json_may_leave_things_out_and_hold_more() -> None:
    assert from_line(b"{}", "t") == ConsoleRecord("t")
    assert (
        from_line(b'{"value": {"a": [1, "\xc5\xbc"]}, "x": 1}', "t").value
        == '{"a": [1, "ż"]}'.encode()
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"timestamp": "now"}', "timestamp"),
        (b'{"timestamp": true}', "timestamp"),
        (b'{"headers": {}, "value": 1}', None),
        (b'{"headers": {"a": 1}}', "headers"),
        (b'{"headers": [{"value": "x"}]}', "headers"),
        (b'{"key_base64": "?"}', "key_base64"),
    ],
)
def test_lines_that_are_no_records(line: bytes, why: str | None) -> None:
    if why is None:
        assert from_line(line, "t").value == b"1"
        return
    with pytest.raises(ValueError, match=why):
        from_line(line, "t")
