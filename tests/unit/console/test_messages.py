"""Records as texts, filters, and the reading of batches: for any bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_client.filters import containing
from quafka_client.records import FetchedBatches
from quafka_console.data.messages.decoding import Best, Choice, Part, Progress, decode
from quafka_console.data.messages.folding import folded
from quafka_console.data.messages.records import (
    SHOWN_BYTES,
    KeptBytes,
    Outcome,
    ReadRecord,
    kept,
    kept_headers,
)
from quafka_console.data.messages.texts import CUT, text_of, whole_of
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
)

ALL = Choice()


def record(value: bytes | None, key: bytes | None = None, *headers: tuple[str, bytes]) -> Record:
    return Record(0, 0, key, value, [*headers])


def shown(data: bytes | None) -> str:
    return text_of(kept(data))


def full(data: bytes | None) -> str:
    return whole_of(kept(data))


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
    assert text_of(kept(data)) == shown


def test_a_value_in_full() -> None:
    assert full(b'{"a": [1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert full(b'{"a": ') == '{"a": '
    assert full(None) == "(null)"
    assert full(b"\xff" + b"A" * 16).splitlines()[0].endswith(".AAAAAAAAAAAAAAA")
    assert full(b"x" * 100_000).endswith("… 100,000 bytes in all")
    assert full(b"[" * 60_000).startswith("[[["), "too deep for JSON"


@given(st.binary(max_size=3_000))
def test_any_bytes_are_shown(data: bytes) -> None:
    assert len(shown(data)) <= CUT + 1
    full(data)


@given(st.text(max_size=600))
def test_texts_are_shown_as_they_are(text: str) -> None:
    data = text.encode()
    assert shown(data) == (text if len(text) <= CUT and len(data) <= 4 * CUT else f"{text[:CUT]}…")


def test_filters_look_at_keys_values_and_headers() -> None:
    found = record(b"the value", b"key-7", ("source", b"web"))
    assert all(containing(words)(found) for words in ("", "value", "key-7 web", "source"))
    assert not any(containing(words)(found) for words in ("VALUE", "value key-8"))
    assert not containing("x")(record(None))


def read(
    batches: bytes, part: Part, choice: Choice = ALL, count: int = 100, most: int = 1 << 20,
    *, latest: bool = False, **fetched: Any,
) -> tuple[list[ReadRecord], Progress]:  # fmt: skip
    best, progress = Best(count, most), Progress()
    decode(
        FetchedBatches(memoryview(batches), **fetched), part, choice, best, progress, latest=latest
    )
    return best.records(), progress


def test_batches_are_cut_to_what_is_asked_and_damage_costs_one() -> None:
    batches = [
        build_batch([Record(n, n, b"k", json.dumps(n).encode(), []) for n in range(at, at + 3)], at)
        for at in (0, 3, 6)
    ]
    batches[1][70] ^= 0xFF
    marker = build_marker(TransactionMarker(MarkerType.COMMIT, 0), 9, 9, 1, 0)
    whole = b"".join([*map(bytes, batches), bytes(marker), b"cut"])
    part = Part(4, 1, 10)
    found, progress = read(whole, part)
    assert [each.offset for each in found if not each.mark][:2] == [1, 2]
    assert [(each.offset, each.mark) for each in found if each.mark] == [(9, "COMMIT")]
    assert {each.partition for each in found} == {4}
    assert (part.at, progress.unreadable) == (10, 1)
    assert progress.size == len(whole) - 3


def test_nothing_more_ends_a_part() -> None:
    part = Part(0, 5, 10)
    assert read(b"", part) == ([], Progress())
    assert part.at == 10


def test_large_keys_values_and_headers_are_cut_and_their_sizes_kept() -> None:
    large = b"x" * (3 * SHOWN_BYTES)
    headers: list[tuple[str, bytes | None]] = [
        ("h", large),
        *[(f"name-{n}", b"v" * 100) for n in range(10_000)],
    ]
    batch = bytes(build_batch([Record(0, 0, large, large, headers)]))
    (found,), _ = read(batch, Part(0, 0, 1))
    assert found.key is not None
    assert found.value is not None
    assert (len(found.key.data), found.key.size) == (SHOWN_BYTES, len(large))
    assert whole_of(found.value).endswith("… 196,608 bytes in all")
    assert found.all_headers == 10_001
    assert len(found.headers) == 1
    assert found.kept < 4 * SHOWN_BYTES
    (narrow,), _ = read(batch, Part(0, 0, 1), Choice(most=1_000))
    assert narrow.value == KeptBytes(b"x" * 1_000, len(large))


@given(
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=40)), max_size=9),
    st.integers(0, 200) | st.just(SHOWN_BYTES),
)
def test_the_headers_that_are_kept_are_the_first(
    headers: list[tuple[str, bytes | None]], most: int
) -> None:
    found = kept_headers(headers, most)
    assert [value and value.data for _, value in found[:-1]] == [
        value for _, value in headers[: max(0, len(found) - 1)]
    ]
    assert sum(len(name) + len(value.data if value else b"") for name, value in found) <= most
    if 5_000 * len(headers) <= most:
        assert len(found) == len(headers)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=60),
    st.integers(1, 8),
    st.booleans(),
)
def test_the_best_are_those_of_a_sorted_list(
    records: list[tuple[int, int]], count: int, latest: bool
) -> None:
    logs: dict[int, list[Record]] = {}
    for timestamp, partition in records:
        log = logs.setdefault(partition, [])
        log.append(Record(len(log), timestamp, None, b"", []))
    best = Best(count, 1 << 20)
    places: list[tuple[tuple[int, ...], int, int]] = []
    for partition, log in logs.items():
        time = 0
        for each in log:
            time = max(time, each.timestamp)
            place = (-each.timestamp, -each.offset, partition) if latest else (
                time, partition, each.offset
            )  # fmt: skip
            places.append((place, partition, each.offset))
        batch = memoryview(bytes(build_batch(log)))
        part = Part(partition, 0, len(log))
        decode(FetchedBatches(batch), part, ALL, best, Progress(), latest=latest)
    assert [(each.partition, each.offset) for each in best.records()] == [
        (partition, offset) for _, partition, offset in sorted(places)[:count]
    ]


def test_what_is_kept_is_bounded_by_bytes() -> None:
    batch = bytes(build_batch([Record(n, n, None, b"x" * 10_000, []) for n in range(50)]))
    found, progress = read(batch, Part(0, 0, 50), most=105_000)
    assert [each.offset for each in found] == list(range(10))
    assert progress.found == 50
    found, _ = read(batch, Part(0, 0, 50), most=105_000, latest=True)
    assert [each.offset for each in found] == list(range(49, 39, -1))
    assert len(read(batch, Part(0, 0, 50), most=1)[0]) == 1, "one is always kept"


def test_a_stopped_reading_looks_at_no_further_batch() -> None:
    batch = bytes(build_batch([Record(0, 0, None, b"", [])]))
    part, best, progress = Part(0, 0, 9), Best(9, 1), Progress(stopped=True)
    decode(FetchedBatches(memoryview(batch)), part, ALL, best, progress, latest=False)
    assert (part.at, best.records(), progress.scanned) == (0, [], 0)


def transactional(offset: int, producer: int) -> bytes:
    records = [Record(offset, 0, None, b"%d" % offset, [])]
    return bytes(build_batch(records, offset, transactional=True, producer_id=producer))


def ended(offset: int, producer: int, kind: MarkerType) -> bytes:
    return bytes(build_marker(TransactionMarker(kind, 0), offset, 0, producer, 0))


def test_outcomes_are_those_of_a_consumer_of_committed_records() -> None:
    batches = b"".join(
        [
            transactional(0, 1),
            ended(1, 1, MarkerType.COMMIT),
            transactional(2, 1),
            transactional(3, 2),
            bytes(build_batch([Record(4, 0, None, b"plain", [])], 4)),
            ended(5, 1, MarkerType.ABORT),
            transactional(6, 1),
            ended(7, 2, MarkerType.COMMIT),
            ended(8, 1, MarkerType.COMMIT),
        ]
    )
    fetched: dict[str, Any] = {"committed": True, "aborted": [(1, 2)]}
    found, _ = read(batches, Part(0, 0, 9), **fetched)
    outcomes = {each.offset: each.outcome for each in found if not each.mark}
    committed, aborted = Outcome.COMMITTED, Outcome.ABORTED
    assert outcomes == {
        0: committed, 2: aborted, 3: committed, 4: Outcome.NONE, 6: committed
    }  # fmt: skip
    visible, progress = read(batches, Part(0, 0, 9), Choice(committed=True), **fetched)
    assert [each.offset for each in visible] == [0, 3, 4, 6]
    assert progress.scanned == 9
    held, _ = read(batches, Part(0, 0, 9))
    assert {each.outcome for each in held} == {Outcome.HELD}


def test_deeply_nested_json_is_shown_as_it_was_written() -> None:
    # Indented, these 60 KB would be 18 MB.
    value = b"[" * 300 + b",".join([b"1"] * 30_000) + b"]" * 300
    assert full(value) == value.decode()


def as_kept(value: object) -> KeptBytes:
    data = json.dumps(value).encode()
    return KeptBytes(data, len(data))


def test_json_is_a_tree_that_can_be_folded() -> None:
    tree = folded(as_kept({"order": {"id": 2**63, "items": ["a", {}]}, "x": None}))
    assert tree == [
        {
            "id": 1, "label": "order (2)", "children": [
                {"id": 2, "label": f"id: {2**63}"},
                {"id": 3, "label": "items (2)", "children": [
                    {"id": 4, "label": '0: "a"'}, {"id": 5, "label": "1: {}"},
                ]},
            ],
        },
        {"id": 6, "label": "x: null"},
    ]  # fmt: skip
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    cut = KeptBytes(b'{"a": 1}', 1_000)
    for other in (None, cut, as_kept(deep), as_kept(list(range(3_000))), as_kept(7)):
        assert folded(other) is None
