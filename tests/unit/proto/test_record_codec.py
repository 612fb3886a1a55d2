"""The records of a batch: compression, control records, times, holes; refused batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from quafka_proto.compression import Codec, TooLarge
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import (
    MarkerType,
    Record,
    TransactionMarker,
    build_marker,
    iter_records,
    read_marker,
)
from quafka_proto.records import BATCH_HEADER_SIZE, read_header, split_batches
from tests.unit.proto.batches import EMPTY, RECORDS, ours, resealed, with_body, with_length

CODECS = list(Codec)
READERS = [KafkaPythonBatch, AioBatch]
NOW = 1_700_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back(codec: int) -> None:
    batch = ours(codec=codec, base_offset=70)
    ((header, _),) = split_batches(batch)
    assert header.codec == codec
    assert list(iter_records(batch)) == [r._replace(offset=70 + r.offset) for r in RECORDS]
    assert list(iter_records(memoryview(batch))) == list(iter_records(batch))
    assert check_records(batch) == (RECORDS[2].timestamp, RECORDS[1].timestamp, True)


def test_header_names_may_repeat_and_keep_their_order() -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b"2"), ("", b"")]
    (record,) = iter_records(ours([Record(0, NOW, None, None, headers)]))
    assert record.headers == headers


@pytest.mark.parametrize("reader", READERS)
def test_append_time_is_every_records_time(reader: Any) -> None:
    batch = ours(append_time=NOW + 5)
    assert {r.timestamp for r in iter_records(batch)} == {NOW + 5}
    assert {r.timestamp for r in reader(batch)} == {NOW + 5}
    assert read_header(batch).max_timestamp == NOW + 5


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", CODECS)
def test_offsets_may_have_holes(reader: Any, codec: int) -> None:
    kept = [RECORDS[1], RECORDS[3]._replace(offset=1 << 20)]
    batch = ours(kept, codec=codec, base_offset=0, keep_offsets=True)
    assert list(iter_records(batch)) == kept
    assert [r.offset for r in reader(batch)] == [1, 1 << 20]
    assert read_header(batch).last_offset == 1 << 20
    with pytest.raises(BatchError, match="offset delta is 1, not 0") as caught:
        check_records(batch)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", list(MarkerType))
def test_markers(kind: MarkerType, reader: Any) -> None:
    batch = build_marker(TransactionMarker(kind, 7), 90, NOW, producer_id=5, producer_epoch=2)
    theirs = reader(bytes(batch))
    assert theirs.is_control_batch
    assert theirs.is_transactional
    assert theirs.validate_crc()
    (record,) = iter_records(batch)
    assert (record.offset, record.timestamp) == (90, NOW)
    assert read_marker(record) == TransactionMarker(kind, 7)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)


def control(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, NOW, key, value, [])


def test_control_records_that_are_no_markers() -> None:
    assert read_marker(control(struct.pack(">hh", 0, 2), b"")) is None  # a leader change
    later = control(struct.pack(">hhq", 3, 1, 9), struct.pack(">hiq", 4, 7, 9))
    assert read_marker(later) == TransactionMarker(MarkerType.COMMIT, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0\0\0", b"\0" * 6),
        (b"\0" * 4, None),
        (b"\0" * 4, b"\0" * 5),
        (b"\xff\xff\0\0", b"\0" * 6),
        (b"\0" * 4, b"\xff\xff" + b"\0" * 4),
    ],
)
def test_control_records_that_are_garbled(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Malformed):
        read_marker(control(key, value))


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_holds_for_the_uncompressed_records(codec: int) -> None:
    batch = ours(codec=codec)
    size = len(ours()) - BATCH_HEADER_SIZE
    assert len(list(iter_records(batch, size))) == len(RECORDS)
    check_records(batch, size)
    with pytest.raises(TooLarge):
        iter_records(batch, size - 1)
    with pytest.raises(BatchError) as caught:
        check_records(batch, size - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS[1:])
def test_records_that_do_not_decompress(codec: int) -> None:
    batch = resealed(ours(), attributes=codec)
    assert len(split_batches(batch)) == 1
    with pytest.raises(Malformed):
        iter_records(batch)
    with pytest.raises(BatchError) as caught:
        check_records(batch)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [(1 << 31) - 1, 1 << 16, -1, -(1 << 31)])
@pytest.mark.parametrize("codec", CODECS)
def test_a_record_count_that_is_forged(count: int, codec: int) -> None:
    batch = resealed(ours(codec=codec), record_count=count)
    with pytest.raises(Malformed, match=f"are not {count} records"):
        iter_records(batch)
    with pytest.raises(BatchError):
        check_records(batch)


def test_an_empty_batch_is_one_that_compaction_leaves() -> None:
    assert list(iter_records(resealed(with_body(b""), record_count=0))) == []


@pytest.mark.parametrize(
    "body",
    [
        EMPTY + EMPTY,  # the same offset twice
        b"\x0c\x00\x00\x02\x01\x01\x00" + EMPTY,  # 1 before 0
    ],
)
def test_bodies_that_only_the_check_refuses(body: bytes) -> None:
    batch = with_body(body, len(body) // len(EMPTY))
    assert list(iter_records(batch))
    with pytest.raises(BatchError) as caught:
        check_records(batch)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"\x0c\x01\x00\x00\x01\x01\x00", []),  # attributes, which are unused
        (b"\x14\x00\x00\x00\x01\x01\x02\x04\xc3\x28\x01", ["\ufffd("]),  # a name not in UTF-8
    ],
)
def test_bodies_that_kafka_accepts_are_accepted(body: bytes, names: list[str]) -> None:
    batch = with_body(body)
    assert check_records(batch).oldest == RECORDS[0].timestamp
    (record,) = iter_records(batch)
    assert [name for name, _ in record.headers] == names


def test_the_hostile_bodies_begin_as_a_real_one_does() -> None:
    (record,) = iter_records(with_body(EMPTY))
    assert (record.key, record.value, record.headers) == (None, None, [])


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        ours()[:-1],
        with_length(-20),
        with_length(0x7FFFFFFF),
        with_body(b""),
        with_body(EMPTY, 2),
        with_body(EMPTY * 2, 1),
        with_body(EMPTY, 0),
        with_body(EMPTY, -1),
        with_body(b"\x0c\x00\x00\x02\x01\x01\x00"),  # an offset delta of 1, after the last
        with_body(b"\x0c\x00\x00\x01\x01\x01\x00"),  # of -1
        with_body(b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x01\x00"),  # year 292278994
        with_body(b"\x00"),  # a record of no bytes
        with_body(b"\x01" + EMPTY[1:]),  # of minus one
        with_body(b"\x80" * 11),  # a length without end
        with_body(b"\x0c\x00\x00\x00\x07\x01\x00"),  # a key of minus four bytes
        with_body(b"\x0c\x00\x00\x00\x7e\x01\x00"),  # a key of 63 bytes
        with_body(b"\x0c\x00\x00\x00\x01\x01\x01"),  # minus one headers
        with_body(b"\x0c\x00\x00\x00\x01\x01\x7e"),  # 63 headers
        with_body(b"\x0e\x00\x00\x00\x01\x01\x00\x00"),  # a byte after the headers
        with_body(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01"),  # a header without a name
        with_body(b"\x1e\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00"),  # a delta above 64 bits
    ],
)
def test_records_that_do_not_match_the_batch(batch: bytes) -> None:
    with pytest.raises(Malformed):
        list(iter_records(batch))
    with pytest.raises(BatchError):
        check_records(batch)
