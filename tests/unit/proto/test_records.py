"""Record batches: two clients' builders and readers agree with ours; refused batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from quafka_proto.errors import BatchError, ErrorCode
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import (
    BATCH_HEADER_SIZE,
    crc32c,
    read_header,
    rebase,
    split_batches,
)
from tests.unit.proto.batches import RECORDS, ours, resealed, with_length


def theirs(builder: Callable[..., Any]) -> bytes:
    made = builder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        made.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    return bytes(made.build())


@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AioBuilder])
def test_clients_build_the_same_bytes(builder: Callable[..., Any]) -> None:
    mine = build_batch(RECORDS, producer_id=77, producer_epoch=3, base_sequence=11)
    made = bytearray(theirs(builder))
    rebase(made, 0, 0)  # a client writes its own idea of the leader epoch
    assert made == mine


@pytest.mark.parametrize("reader", [KafkaPythonBatch, AioBatch])
def test_clients_read_our_batches(reader: Callable[..., Any]) -> None:
    batch = reader(ours(base_offset=500))
    assert batch.validate_crc()
    got = [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert got == [record._replace(offset=500 + record.offset) for record in RECORDS]


def test_header_of_a_clients_batch() -> None:
    data = theirs(KafkaPythonBuilder)
    header = read_header(data)
    assert header.length == len(data)
    assert header.magic == 2
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 11)
    assert (header.record_count, header.last_offset_delta) == (4, 3)
    assert header.base_timestamp == RECORDS[0].timestamp
    assert header.max_timestamp == RECORDS[1].timestamp


def test_rebase_keeps_the_crc() -> None:
    batch = bytearray(ours())
    rebase(batch, 1 << 40, 9)
    ((header, _),) = split_batches(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert [r.offset - (1 << 40) for r in iter_records(batch)] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_split_gives_views_of_each_batch(kind: Callable[[bytes], Any]) -> None:
    first, second = ours(RECORDS[:1]), ours(RECORDS)
    batches = split_batches(kind(first + second))
    assert [bytes(view) for _, view in batches] == [first, second]
    assert [header.length for header, _ in batches] == [len(first), len(second)]


def test_crc32c_has_the_published_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"456789"), crc32c(b"123")) == 0xE3069283


def test_every_changed_bit_under_the_crc_is_found() -> None:
    batch = ours(RECORDS[:1])
    for at in range(17, len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 0x10
        with pytest.raises(BatchError) as caught:
            split_batches(changed)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_every_truncation_is_corrupt() -> None:
    batch = ours()
    for size in range(1, len(batch)):
        for data in (batch[:size], batch + batch[:size]):
            with pytest.raises(BatchError) as caught:
                split_batches(data)
            assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def with_magic(magic: int) -> bytes:
    return ours()[:16] + bytes([magic]) + ours()[17:]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (with_length(-1), ErrorCode.CORRUPT_MESSAGE),
        (with_length(0), ErrorCode.CORRUPT_MESSAGE),
        (with_length(BATCH_HEADER_SIZE - 13), ErrorCode.CORRUPT_MESSAGE),
        (with_length(0x7FFFFFFF), ErrorCode.CORRUPT_MESSAGE),
        (with_length(-0x80000000), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (with_magic(1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (with_magic(3), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (resealed(ours(), record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (resealed(ours(), record_count=-4), ErrorCode.INVALID_RECORD),
        (resealed(ours(), record_count=5), ErrorCode.INVALID_RECORD),
        (resealed(ours(), last_offset_delta=0x7FFFFFFF), ErrorCode.INVALID_RECORD),
        (resealed(ours(), attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (resealed(ours(), attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
        (resealed(ours(), attributes=0x20), ErrorCode.INVALID_RECORD),
    ],
)
def test_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(BatchError) as caught:
        split_batches(data)
    assert caught.value.code == code
