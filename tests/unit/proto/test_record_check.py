"""Large batches: the findings of runs and of numpy equal those of the check of single records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_proto import record_check, record_runs
from quafka_proto.compression import Codec
from quafka_proto.errors import BatchError, ErrorCode
from quafka_proto.record_check import Effort, TooLongError, check_body, check_records, without_key
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    checked_part,
    read_header,
    stamp,
    whole_batch,
)
from tests.support.suites import examples
from tests.unit.proto.batches import EMPTY, ours, resealed, with_body

NOW = 1_700_000_000_000
_PAYLOADS = (
    st.none() | st.binary(max_size=3) | st.sampled_from([bytes(63), bytes(64), bytes(9_000)])
)
_HEADERS = st.lists(st.tuples(st.text(max_size=2), _PAYLOADS), max_size=2)


def outcome(batch: bytes) -> object:
    try:
        return check_records(batch)
    except BatchError as e:
        return e.code


_NEVER = 1 << 31


def all_ways(batch: bytes) -> list[object]:
    """The outcomes of the check of single records, of numpy, and of runs with either."""
    found: list[object] = []
    for few, window, least in (
        (_NEVER, _NEVER, _NEVER), (0, 37, _NEVER), (_NEVER, _NEVER, 2), (0, 37, 2),
    ):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_check, "FEW", few)
            patch.setattr(record_check, "WINDOW", window)
            patch.setattr(record_runs, "LEAST", least)
            found.append(outcome(batch))
    return found


@examples(60)
@given(
    st.lists(
        st.builds(
            Record, st.just(0), st.integers(NOW - 99, NOW + 9**9), _PAYLOADS, _PAYLOADS, _HEADERS
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 30),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_all_ways_agree_on_whole_and_on_damaged_records(
    records: list[Record], times: int, damages: int, chance: random.Random
) -> None:
    batch = build_batch(records * times)
    for _ in range(damages):
        batch[chance.randrange(BATCH_HEADER_SIZE, len(batch))] = chance.randrange(256)
    one_by_one, *others = all_ways(bytes(batch))
    assert others == [one_by_one] * len(others)
    if not damages:
        assert one_by_one == (
            min(record.timestamp for record in records),
            max(record.timestamp for record in records),
            any(record.key is None for record in records),
        )


@examples(150)
@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 30, 63, 64, 8_191, 1 << 20]), min_size=2, max_size=9),
    st.integers(2, 300),
    st.sampled_from([None, b"", b"k", bytes(63), bytes(64)]),
    st.sampled_from([None, b"", b"v" * 40, bytes(120), bytes(128), bytes(8_200)]),
    st.integers(0, 2),
    st.randoms(use_true_random=False),
)
def test_all_ways_agree_on_records_of_one_layout(
    steps: list[int],
    count: int,
    key: bytes | None,
    value: bytes | None,
    damages: int,
    chance: random.Random,
) -> None:
    times = list(accumulate((steps[n % len(steps)] for n in range(count)), initial=NOW))[:count]
    batch = build_batch([Record(0, time, key, value, []) for time in times])
    size = (len(batch) - BATCH_HEADER_SIZE) // count
    for _ in range(damages):  # most of it in a record's first or last fields
        at = BATCH_HEADER_SIZE + chance.randrange(count) * size + chance.randrange(-3, 9)
        batch[min(max(at, BATCH_HEADER_SIZE), len(batch) - 1)] = chance.choice(
            [0, 1, 2, 127, 128, 129, 255, chance.randrange(256)]
        )
    one_by_one, *others = all_ways(bytes(batch))
    assert others == [one_by_one] * len(others)
    if not damages:
        assert one_by_one == (times[0], times[-1], key is None)


@pytest.mark.parametrize("count", [15, 16, 63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_runs_cover_records_of_one_layout(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_check, "_columns", None)
    monkeypatch.setattr(record_runs, "LEAST", 1)
    records = [Record(0, NOW + n // 50, b"k", b"value", []) for n in range(count)]
    batch = bytes(build_batch(records))
    header = read_header(batch)
    found = check_body(header, batch, BATCH_HEADER_SIZE, len(batch), Effort(vectors=False))
    assert found == (NOW, NOW + (count - 1) // 50, False)
    scratch = bytearray(batch) + b"\x12" * 50  # what an earlier batch has left behind
    assert check_body(header, scratch, BATCH_HEADER_SIZE, len(batch), Effort(vectors=False))
    with pytest.raises(BatchError):
        check_body(header, scratch, BATCH_HEADER_SIZE, len(batch) - 1)


@pytest.mark.parametrize("newest", [3, 70, 9_000])
def test_timestamps_that_do_not_grow(newest: int) -> None:
    times = [NOW + (n * 37 % (newest + 1)) for n in range(300)]
    batch = bytes(build_batch([Record(0, time, None, b"v", []) for time in times]))
    assert set(all_ways(batch)) == {(min(times), max(times), True)}


@pytest.mark.parametrize("headers", [0, 1, 3, 40])
def test_ten_thousand_records(headers: int) -> None:
    record = Record(0, NOW, b"key", bytes(30), [("name", b"value")] * headers)
    count = 10_000 if headers < 40 else 500
    batch = bytes(build_batch([record._replace(timestamp=NOW + n % 7) for n in range(count)]))
    assert check_records(batch) == (NOW, NOW + 6, False)
    with pytest.raises(BatchError, match="follow the last record"):
        check_records(resealed(batch, record_count=count - 1, last_offset_delta=count - 2))
    with pytest.raises(BatchError, match=f"record {count}: it is cut short"):
        check_records(resealed(batch, record_count=count + 1, last_offset_delta=count))


def test_a_wrong_offset_among_many_is_named() -> None:
    records = [Record(n, NOW, None, b"v", []) for n in range(9_000)]
    records[7_000] = records[7_000]._replace(offset=6_999)
    batch = bytes(build_batch(records, keep_offsets=True))
    with pytest.raises(BatchError, match="record 7000: its offset delta is 6999, not 7000"):
        check_records(batch)


@pytest.mark.parametrize("count", [1, 40, 9_000])
@pytest.mark.parametrize("keyless", [[], [0], [3, 7_000], range(9_000)])
def test_records_without_a_key_are_found(count: int, keyless: Sequence[int]) -> None:
    expected = [n for n in range(count) if n in keyless]
    records = [Record(0, NOW, None if n in keyless else b"k", b"v", []) for n in range(count)]
    batch = bytes(build_batch(records))
    assert set(all_ways(batch)) == {(NOW, NOW, bool(expected))}
    assert list(without_key(read_header(batch), batch, BATCH_HEADER_SIZE)) == expected


def test_a_null_key_may_have_a_longer_varint() -> None:
    batch = with_body(b"\x10\x00\x00\x00\x81\x00\x02v\x00")
    assert check_records(batch).keyless
    assert list(without_key(read_header(batch), batch, BATCH_HEADER_SIZE)) == [0]
    assert not check_records(with_body(b"\x0e\x00\x00\x00\x00\x02v\x00")).keyless


def test_the_effort_is_bounded() -> None:
    headers: list[tuple[str, bytes | None]] = [("", None)] * 300
    batch = bytes(build_batch([Record(0, NOW, None, None, headers)] * 5))
    header = read_header(batch)
    check_body(header, batch, BATCH_HEADER_SIZE, len(batch), Effort(headers=1_500))
    with pytest.raises(TooLongError):
        check_body(header, batch, BATCH_HEADER_SIZE, len(batch), Effort(headers=1_499))
    pauses: list[int] = []
    effort = Effort(pause=lambda: pauses.append(1))
    many = bytes(build_batch([Record(0, NOW, None, None, [])] * 20_000))
    check_body(read_header(many), many, BATCH_HEADER_SIZE, len(many), effort)
    assert len(pauses) >= 20_000 // (2 * record_check.WINDOW)


def test_numpy_is_imported_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_check, "_columns", None)
    values = [bytes(n % 7) for n in range(record_check.FEW + 1)]
    batch = bytes(build_batch([Record(0, NOW, None, value, []) for value in values]))
    body = read_header(batch), batch, BATCH_HEADER_SIZE, len(batch)
    with pytest.raises(TooLongError):
        check_body(*body, Effort(vectors=False))
    assert not record_check.vectors_loaded()
    check_body(*body)
    assert record_check.vectors_loaded()


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (ours()[:16], ErrorCode.INVALID_RECORD),
        (ours()[:-1], ErrorCode.INVALID_RECORD),
        (ours() + b"\0", ErrorCode.INVALID_RECORD),
        (ours() + ours(), ErrorCode.INVALID_RECORD),
        (ours()[:16] + b"\1" + ours()[17:], ErrorCode.INVALID_RECORD),
        (ours()[:16] + b"\3" + ours()[17:], ErrorCode.CORRUPT_MESSAGE),
        (ours()[:8] + b"\0\0\0\x30" + ours()[12:], ErrorCode.CORRUPT_MESSAGE),
        (ours()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (ours(base_offset=1), ErrorCode.INVALID_RECORD),
        (resealed(ours(), record_count=(1 << 31) - 1), ErrorCode.INVALID_RECORD),
        (resealed(ours(), last_offset_delta=4), ErrorCode.INVALID_RECORD),
        (resealed(ours(), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (resealed(ours(), attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (resealed(ours(), attributes=0x20), ErrorCode.INVALID_RECORD),
    ],
)
def test_one_whole_batch(records: bytes, code: ErrorCode) -> None:
    assert checked_part(ours(), whole_batch(ours())) == ours()[21:]
    with pytest.raises(BatchError) as caught:
        checked_part(records, whole_batch(records))
    assert caught.value.code == code


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_nothing_that_claims_records(codec: int) -> None:
    empty = resealed(with_body(b""), attributes=codec)
    for count in (1, (1 << 31) - 1):
        claiming = resealed(empty, record_count=count, last_offset_delta=count - 1)
        with pytest.raises(BatchError) as caught:
            check_records(claiming)
        assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_negative_length_that_adds_up() -> None:
    with pytest.raises(BatchError):
        check_records(with_body(b"\x0d" + EMPTY[1:]))


def test_a_max_timestamp_is_corrected_in_a_copy() -> None:
    batch = ours()
    corrected = bytes(stamp(batch, NOW + 5, append_time=False))
    assert read_header(corrected).max_timestamp == NOW + 5
    assert checked_part(corrected, whole_batch(corrected))
    assert corrected[61:] == batch[61:]
    assert read_header(corrected).attributes == read_header(batch).attributes
