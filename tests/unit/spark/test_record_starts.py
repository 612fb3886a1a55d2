"""Lanes find the records that a walk from the front finds, wherever they are taken to begin."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_quafka import record_starts
from pyspark_quafka.record_starts import find_records
from quafka_proto.primitives import write_varint
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import BATCH_HEADER_SIZE
from quafka_proto.varints import Longs
from tests.support.suites import examples

NOW = 1_700_000_000_000
PAYLOADS = st.none() | st.binary(max_size=30) | st.integers(0, 40).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=3), PAYLOADS), max_size=2)
BODIES = st.lists(
    st.builds(Record, st.just(0), st.just(NOW), PAYLOADS, PAYLOADS, HEADERS),
    min_size=1,
    max_size=40,
).map(lambda records: (bytes(build_batch(records)[BATCH_HEADER_SIZE:]), len(records)))


@pytest.fixture(autouse=True)
def _many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_starts, "RECORDS_A_LANE", 4)
    monkeypatch.setattr(record_starts, "FEWEST_LANES", 2)


def find(bodies: list[bytes], counts: list[int]) -> list[list[int]]:
    """Within each body."""
    sizes = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join(bodies), np.uint8)
    found = find_records(data, ends - sizes, ends, np.array(counts, np.int64))
    parts = np.split(found, np.cumsum(counts)[:-1])
    return [
        (part - end + size).tolist() for part, end, size in zip(parts, ends, sizes, strict=True)
    ]


def walk(body: bytes) -> Iterator[int]:
    at = 0
    while at < len(body):
        yield at
        size, shift = 0, 0
        while True:
            byte = body[at]
            size |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if byte < 0x80:
                break
        at += size >> 1


@examples(150)
@given(st.lists(BODIES, min_size=1, max_size=5))
def test_any_records(batches: list[tuple[bytes, int]]) -> None:
    found = find([body for body, _ in batches], [count for _, count in batches])
    assert found == [list(walk(body)) for body, _ in batches]


def test_lanes_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ordinary records no batch has to be walked from the front."""

    def walked(*_: object) -> Longs:
        raise AssertionError

    monkeypatch.setattr(record_starts, "_walk_batch", walked)
    records = [
        Record(
            0, NOW + at, b"key-%d" % at, b'{"number": %d}' % at * (at % 9), [("h", b"x")] * (at % 2)
        )
        for at in range(5_000)
    ]
    body = bytes(build_batch(records)[BATCH_HEADER_SIZE:])
    assert find([body, body], [5_000, 5_000]) == [list(walk(body))] * 2


def test_records_within_a_value_begin_no_lane() -> None:
    """They look just like the real ones, and there are more of them."""
    inner = bytes(build_batch([Record(0, NOW, b"k", b"v", [])] * 200)[BATCH_HEADER_SIZE:])
    for shift in range(12):
        records = [Record(0, NOW, b"x" * shift, inner, [])] * 16
        body = bytes(build_batch(records)[BATCH_HEADER_SIZE:])
        assert find([body] * 3, [16] * 3) == [list(walk(body))] * 3


def test_a_false_beginning_is_found_out_where_the_number_is_right() -> None:
    """Four false records, the last of which spans the next four."""

    def small(number: int) -> Record:
        return Record(0, NOW, None, b"%020d" % number, [])

    size = len(build_batch([small(1)])) - BATCH_HEADER_SIZE
    false = bytearray()
    for delta in (1, 2, 3):
        write_varint(false, 6)
        false += bytes([0, 0, 2 * delta, 0, 0, 0])
    write_varint(false, 1 + 4 * size)  # from behind it: the end of its record and four others
    for place in range(1, 55):
        records = [small(number) for number in range(60)]
        records[place] = Record(0, NOW, None, b"x" * 30 + bytes(false), [])
        body = bytes(build_batch(records)[BATCH_HEADER_SIZE:])
        assert find([body] * 2, [60] * 2) == [list(walk(body))] * 2


def test_one_large_record_among_small_ones() -> None:
    """A lane of which no beginning is seen is walked with the one before."""
    sizes = [1] * 50 + [100_000] + [1] * 3_000
    body = bytes(
        build_batch([Record(0, NOW, None, b"v" * size, []) for size in sizes])[BATCH_HEADER_SIZE:]
    )
    assert find([body], [len(sizes)]) == [list(walk(body))]


@examples(300)
@given(st.lists(BODIES, min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_what_is_garbled_gives_so_many_positions(
    batches: list[tuple[bytes, int]], chance: random.Random
) -> None:
    """And those of the batches beside it are right."""
    garbled = bytearray(batches[0][0])
    for _ in range(chance.randint(1, 5)):
        garbled[chance.randrange(len(garbled))] = chance.randrange(256)
    bodies = [bytes(garbled), *(body for body, _ in batches[1:])]
    found = find(bodies, [count for _, count in batches])
    assert [len(part) for part in found] == [count for _, count in batches]
    assert found[1:] == [list(walk(body)) for body in bodies[1:]]


def test_a_length_that_no_array_can_hold_ends_the_batch() -> None:
    body = b"\xff" * 12 + b"\x7f"
    assert find([body], [3]) == [[0, len(body), len(body)]]
    assert find([body] * 4, [3] * 4) == [[0, len(body), len(body)]] * 4


def test_too_many_and_too_few() -> None:
    body = bytearray()
    for size in (6, 6, 6):
        write_varint(body, size)
        body += bytes(size)
    assert find([bytes(body)] * 3, [2, 3, 5]) == [[0, 7], [0, 7, 14], [0, 7, 14, 21, 21]]
