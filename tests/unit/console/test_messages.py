"""Records as texts, filters, and the reading of batches: for any bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_console.data.messages import reading
from quafka_console.data.messages.reading import ReadRecord
from quafka_console.data.messages.texts import CUT, containing, text_of, whole_of
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)


def record(
    value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes]
) -> ReadRecord:
    return ReadRecord(0, 0, 0, key, value, headers)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, ""),
        (b"plain", "plain"),
        ("ü".encode() * 300, "ü" * CUT + "…"),
        (b"\xff\x00", "0xff00"),
        (bytes(range(128, 178)), "0x" + bytes(range(128, 168)).hex() + "…"),
    ],
)
def test_a_value_in_a_list(data: bytes | None, shown: str) -> None:
    assert text_of(data) == shown


def test_a_value_in_full() -> None:
    assert whole_of(b'{"a": [1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert whole_of(b'{"a": ') == '{"a": '
    assert whole_of(None) == "(null)"
    assert whole_of(b"\xff" + b"A" * 16).splitlines()[0].endswith(".AAAAAAAAAAAAAAA")
    assert whole_of(b"x" * 100_000).endswith("… 100,000 bytes in all")
    assert whole_of(b"[" * 60_000).startswith("[[["), "too deep for JSON"


@given(st.binary(max_size=3_000))
def test_any_bytes_are_shown(data: bytes) -> None:
    assert len(text_of(data)) <= CUT + 1
    whole_of(data)


@given(st.text(max_size=600))
def test_texts_are_shown_as_they_are(text: str) -> None:
    data = text.encode()
    assert text_of(data) == (
        text if len(text) <= CUT and len(data) <= 4 * CUT else f"{text[:CUT]}…"
    )


def test_filters_look_at_keys_values_and_headers() -> None:
    found = record(b"the value", b"key-7", ("source", b"web"))
    assert all(containing(words)(found) for words in ("", "value", "key-7 web", "source"))
    assert not any(containing(words)(found) for words in ("VALUE", "value key-8"))
    assert not containing("x")(record(None))


def test_batches_are_cut_to_what_is_asked_and_damage_costs_one() -> None:
    batches = [
        build_batch([Record(n, n, b"k", json.dumps(n).encode(), []) for n in range(at, at + 3)], at)
        for at in (0, 3, 6)
    ]
    batches[1][70] ^= 0xFF
    marker = build_marker(TransactionMarker(MarkerType.COMMIT, 0), 9, 9, 1, 0)
    whole = b"".join([*map(bytes, batches), bytes(marker), b"cut"])
    found = reading._decoded(memoryview(whole), 4, 1, 10)
    assert [each.offset for each in found.records if not each.mark][:2] == [1, 2]
    assert [(each.offset, each.mark) for each in found.records if each.mark] == [(9, "COMMIT")]
    assert {each.partition for each in found.records} == {4}
    assert found.next == 10


def test_deeply_nested_json_is_shown_as_it_was_written() -> None:
    # Indented, these 60 KB would be 18 MB.
    value = b"[" * 300 + b",".join([b"1"] * 30_000) + b"]" * 300
    assert whole_of(value) == value.decode()
