"""Large batches: numpy's findings equal those of the check of single records."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quafka_proto import record_check
from quafka_proto.compression import Codec
from quafka_proto.errors import BatchError, ErrorCode
from quafka_proto.record_check import Effort, TooLongError, check_body, check_records
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    checked_part,
    read_header,
    stamp,
    whole_batch,
)
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


def both(batch: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    found: list[object] = []
    for few, window in ((1 << 31, 1 << 31), (0, 37)):
        monkeypatch.setattr(record_check, "FEW", few)
        monkeypatch.setattr(record_check, "WINDOW", window)
        found.append(outcome(batch))
    return found[0], found[1]


@settings(max_examples=60, deadline=None)
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
def test_both_ways_agree_on_whole_and_on_damaged_records(
    records: list[Record], times: int, damages: int, chance: random.Random
) -> None:
    batch = build_batch(records * times)
    for _ in range(damages):
        batch[chance.randrange(BATCH_HEADER_SIZE, len(batch))] = chance.randrange(256)
    with pytest.MonkeyPatch.context() as patch:
        one_by_one, vectors = both(bytes(batch), patch)
    assert one_by_one == vectors
    if not damages:
        assert one_by_one == (
            min(record.timestamp for record in records),
            max(record.timestamp for record in records),
        )


@pytest.mark.parametrize("headers", [0, 1, 3, 40])
def test_ten_thousand_records(headers: int) -> None:
    record = Record(0, NOW, b"key", bytes(30), [("name", b"value")] * headers)
    count = 10_000 if headers < 40 else 500
    batch = bytes(build_batch([record._replace(timestamp=NOW + n % 7) for n in range(count)]))
    assert check_records(batch) == (NOW, NOW + 6)
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
    assert len(pauses) >= 20_000 // record_check.WINDOW


def test_numpy_is_imported_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_check, "_columns", None)
    batch = bytes(build_batch([Record(0, NOW, None, None, [])] * (record_check.FEW + 1)))
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
        (resealed(ours(), attributes=0x10), ErrorCode.INVALID_TXN_STATE),
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
