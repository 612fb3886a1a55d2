"""Removing records from batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_proto.compression import Codec
from quafka_proto.errors import Malformed
from quafka_proto.log_format import ROW_ABORT, row_flags
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
    iter_records,
    read_marker,
)
from quafka_proto.record_filter import (
    delete_horizon,
    find_records,
    uncompressed,
    with_records,
    without_records,
)
from quafka_proto.records import LOG_APPEND_TIME, PATCHED_SIZE, crc32c, read_header

_BYTES = st.one_of(st.none(), st.binary(max_size=200))
_RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1 << 45),
        _BYTES,
        _BYTES,
        st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


@given(
    _RECORDS, st.sampled_from(Codec), st.data(),
    st.one_of(st.none(), st.integers(0, (1 << 63) - 1)), st.booleans(),
)  # fmt: skip
def test_the_other_records_stay_as_they_are(
    records: list[Record],
    codec: Codec,
    data: st.DataObject,
    horizon: int | None,
    append_time: bool,
) -> None:
    batch = build_batch(
        records, 1_000, codec=codec, append_time=7 if append_time else None, leader_epoch=3,
        producer_id=5, producer_epoch=1, base_sequence=9,
    )  # fmt: skip
    header = read_header(batch)
    every = list(iter_records(batch))
    kept = data.draw(
        st.lists(st.sampled_from(range(len(records))), min_size=1, unique=True).map(sorted)
    )
    body = uncompressed(header, batch)
    found = find_records(header, body)
    assert found.keys == [record.key for record in every]
    assert found.has_values == [record.value is not None for record in every]
    assert [1_000 + delta for delta in found.offset_deltas] == [record.offset for record in every]
    left = with_records(header, body, kept, horizon)
    assert list(iter_records(left)) == [every[number] for number in kept]
    after = read_header(left)
    assert after.crc == crc32c(left[PATCHED_SIZE:])
    newest = 7 if append_time else max(every[number].timestamp for number in kept)
    assert (after.max_timestamp, delete_horizon(after)) == (newest, horizon)
    same = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch",
            "base_sequence", "codec")  # fmt: skip
    assert [getattr(after, name) for name in same] == [getattr(header, name) for name in same]
    again = with_records(after, uncompressed(after, left), range(len(kept)))
    assert again == left


def test_a_batch_without_records_keeps_its_bounds() -> None:
    batch = build_batch(
        [Record(0, 5, b"a", b"b", [])] * 3, 40, codec=Codec.LZ4, append_time=9, producer_id=5,
        producer_epoch=1, base_sequence=9, transactional=True,
    )  # fmt: skip
    empty = read_header(without_records(read_header(batch)))
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (40, 42, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 1, 9)
    assert (empty.codec, empty.max_timestamp) == (0, 9)
    assert empty.attributes & LOG_APPEND_TIME


@pytest.mark.parametrize("kind", list(MarkerType))
def test_a_marker_with_a_horizon_is_known_by_its_row(kind: MarkerType) -> None:
    marker = build_marker(TransactionMarker(kind, 2), 40, 1_000, 5, 1)
    header = read_header(marker)
    for horizon in (0, 1_001, 1 << 62):
        left = with_records(header, uncompressed(header, marker), [0], horizon)
        (record,) = iter_records(left)
        assert read_marker(record) == TransactionMarker(kind, 2)
        assert record.timestamp == 1_000
        flags = row_flags(read_header(left).attributes, left)
        assert bool(flags & ROW_ABORT) == (kind == MarkerType.ABORT)


@given(st.binary(max_size=60), st.integers(0, 9))
def test_garbled_records_are_refused(body: bytes, count: int) -> None:
    header = read_header(build_batch([Record(0, 5, b"a", b"b", [])]))
    header = header._replace(record_count=count)
    try:
        found = find_records(header, body)
    except Malformed:
        return
    assert len(found.keys) == count
