"""Message sets: two clients' builders and readers agree with ours, both ways; refused sets."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AioReader
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonReader
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from quafka_proto.compression import PIECE, Codec, compress
from quafka_proto.errors import BatchError, ErrorCode
from quafka_proto.message_sets import encode_message, from_batches, iter_messages, to_batch
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import (
    PAUSE_RECORDS,
    MarkerType,
    Record,
    TransactionMarker,
    build_batch,
    build_marker,
    iter_records,
)
from quafka_proto.records import is_transactional, read_header, split_batches
from tests.support.suites import examples
from tests.unit.proto.batches import resealed

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
BUILDERS = [KafkaPythonBuilder, AioBuilder]
READERS = [KafkaPythonReader, AioReader]
NOW = 1_700_000_000_000
LIMIT = 1 << 20
PAYLOADS = st.none() | st.binary(max_size=100)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 1 << 41), PAYLOADS, PAYLOADS, st.just([])),
    min_size=1,
    max_size=8,
).map(lambda records: [r._replace(offset=i) for i, r in enumerate(records)])
SOME = [
    Record(0, NOW, b"key", b"value", []),
    Record(1, NOW + 7, None, b"x" * 300, []),
    Record(2, NOW - 9, b"", None, []),
]


def message_set(records: list[Record], magic: int = 1) -> bytes:
    return b"".join(encode_message(record, magic) for record in records)


def wrapped(content: bytes | None, magic: int = 1, attributes: int = 1, offset: int = 0) -> bytes:
    return encode_message(Record(offset, NOW, None, content, []), magic, attributes)


@given(records=RECORDS, magic=st.sampled_from([0, 1]))
@example(records=[SOME[0]._replace(timestamp=NOW | 1 << 28, value=bytes(40))], magic=1)
def test_no_timestamp_makes_a_set_transactional(records: list[Record], magic: int) -> None:
    """The attributes of a batch lie where the timestamp of a message does."""
    assert not is_transactional(message_set(records, magic))


def as_magic(records: list[Record], magic: int) -> list[Record]:
    return records if magic else [record._replace(timestamp=-1) for record in records]


@pytest.mark.parametrize(
    ("builder", "magic", "codec"),
    [
        (builder, magic, codec)
        for builder in BUILDERS
        for magic in (0, 1)
        for codec in CODECS
        if (builder, magic, codec) != (AioBuilder, 0, Codec.LZ4)  # which it does not write
    ],
)
@examples(30)
@given(records=RECORDS)
def test_message_sets_of_old_producers(
    builder: Any, magic: int, codec: Codec, records: list[Record]
) -> None:
    made = builder(magic, codec, 1 << 20)
    for r in records:
        made.append(r.offset, r.timestamp, r.key, r.value)
    data = bytes(made.build())
    expected = as_magic(records, magic)
    batch = to_batch(data)
    assert list(iter_records(batch)) == expected
    assert read_header(batch).codec == codec
    assert len(split_batches(batch)) == 1
    check_records(batch)
    if codec == Codec.NONE:
        assert data == message_set(records, magic)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@examples(30)
@given(records=RECORDS, base_offset=st.integers(0, 1 << 62), skipped=st.integers(0, 7))
def test_message_sets_for_old_consumers(
    reader: Any, magic: int, codec: Codec, records: list[Record], base_offset: int, skipped: int
) -> None:
    stored = build_batch(records, base_offset, codec=codec)
    data = from_batches([stored], magic, base_offset + skipped, LIMIT)
    got = []
    for message in messages_of(data):
        batch = reader(message, magic)
        assert batch.validate_crc()
        got += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    expected = [
        (base_offset + r.offset, r.timestamp if magic else None, r.key, r.value)
        for r in records[skipped:]
    ]
    assert got == expected


def messages_of(data: bytes) -> list[bytes]:
    """A set cut into its messages, as a client does before it reads them."""
    messages = []
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        messages.append(data[:end])
        data = data[end:]
    return messages


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@examples(30)
@given(records=RECORDS, base=st.integers(0, 1 << 40))
def test_offsets_inside_compressed_messages(
    magic: int, codec: Codec, records: list[Record], base: int
) -> None:
    """As brokers store them: absolute with magic 0, relative to the last with magic 1 (KIP-31)."""
    absolute = as_magic([r._replace(offset=base + r.offset) for r in records], magic)
    inner = message_set(records if magic else absolute, magic)
    last = absolute[-1].offset
    data = (
        wrapped(compress(codec, inner), magic, codec, last)
        if codec
        else message_set(absolute, magic)
    )
    assert list(iter_messages(data)) == absolute
    if codec == Codec.LZ4 and magic == 0:
        return  # kafka-python looks for KAFKA-3160's checksum
    theirs = [
        Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, [])
        for message in messages_of(data)
        for r in KafkaPythonReader(message, magic)
    ]
    assert theirs == absolute


def test_append_time_of_a_compressed_message() -> None:
    data = wrapped(compress(Codec.GZIP, message_set(SOME)), 1, Codec.GZIP | 0x08, 2)
    assert [r.timestamp for r in iter_messages(data)] == [NOW] * 3
    assert [r.timestamp for r in KafkaPythonReader(data, 1)] == [NOW] * 3


@pytest.mark.parametrize("reader", READERS)
def test_append_time_is_passed_on(reader: Any) -> None:
    stored = build_batch(SOME, append_time=NOW + 99)
    for message in messages_of(from_batches([stored], 1, 0, LIMIT)):
        (record,) = reader(message, 1)
        assert (record.timestamp, record.timestamp_type) == (NOW + 99, 1)
    for message in messages_of(from_batches([stored], 0, 0, LIMIT)):
        assert message[17] == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 1)])
def test_a_compressed_message_stands_alone(order: tuple[int, int]) -> None:
    plain = message_set(SOME[:2])
    packed = wrapped(compress(Codec.SNAPPY, message_set(SOME)), 1, Codec.SNAPPY)
    header = read_header(to_batch(packed))
    assert (header.codec, header.record_count, header.base_offset) == (Codec.SNAPPY, 3, 0)
    with pytest.raises(BatchError) as caught:
        to_batch(b"".join((plain, packed)[which] for which in order))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_both_formats_in_one_set() -> None:
    batch = to_batch(message_set(SOME[:1], 0) + message_set(SOME[1:], 1))
    assert [r.timestamp for r in iter_records(batch)] == [-1, NOW + 7, NOW - 9]


def test_headers_and_control_records_are_left_out() -> None:
    with_headers = [SOME[0]._replace(headers=[("trace", b"1")])]
    first = build_batch(with_headers, 10, producer_id=4, producer_epoch=0, transactional=True)
    marker = build_marker(TransactionMarker(MarkerType.COMMIT, 1), 11, NOW, 4, 0)
    last = build_batch(SOME, 12)
    data = from_batches([first, marker, last], 1, 0, LIMIT)
    assert [r.offset for r in iter_messages(data)] == [10, 12, 13, 14]
    assert all(r.headers == [] for r in iter_messages(data))
    assert from_batches([marker], 1, 0, LIMIT) == b""


def test_offsets_that_compaction_left() -> None:
    kept = [SOME[0]._replace(offset=5), SOME[1]._replace(offset=900)]
    stored = build_batch(kept, 5, keep_offsets=True)
    assert list(iter_messages(from_batches([stored], 1, 0, LIMIT))) == kept
    assert list(iter_messages(from_batches([stored], 1, 6, LIMIT))) == kept[1:]


def test_a_set_ends_before_max_bytes_but_has_one_message() -> None:
    stored = [build_batch(SOME, 0), build_batch(SOME, 3)]
    whole = from_batches(stored, 1, 0, LIMIT)
    sizes = [len(message) for message in messages_of(whole)]
    for max_bytes in range(len(whole) + 1):
        data = from_batches(stored, 1, 0, max_bytes)
        count = len(messages_of(data))
        assert whole.startswith(data)
        assert count == 1 or len(data) <= max_bytes
        assert count == 6 or sum(sizes[: count + 1]) > max_bytes


def test_zstd_is_not_for_old_consumers() -> None:
    zstd = build_batch(SOME, 3, codec=Codec.ZSTD)
    with pytest.raises(BatchError) as caught:
        from_batches([zstd], 1, 0, LIMIT)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    data = from_batches([build_batch(SOME, 0), zstd], 1, 0, LIMIT)
    assert [r.offset for r in iter_messages(data)] == [0, 1, 2]


def test_a_garbled_batch_ends_the_set() -> None:
    garbled = resealed(bytes(build_batch(SOME, 3)), attributes=Codec.GZIP)
    data = from_batches([build_batch(SOME, 0), garbled], 1, 0, LIMIT)
    assert [r.offset for r in iter_messages(data)] == [0, 1, 2]
    with pytest.raises(BatchError) as caught:
        from_batches([garbled], 1, 0, LIMIT)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    """The first message with a field changed and its CRC made right."""
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    end = 12 + int.from_bytes(out[8:12], "big")
    struct.pack_into(">I", out, 12, zlib.crc32(out[16:end]))
    return bytes(out)


ONE = message_set(SOME[:1])
PACKED = compress(Codec.GZIP, message_set(SOME))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (changed(ONE, 8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 8, ">i", 0), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 8, ">i", 5), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 8, ">i", 12), ErrorCode.CORRUPT_MESSAGE),
        (ONE[:8] + struct.pack(">i", 0x7FFFFFFF) + ONE[12:], ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 26, ">i", -2), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 26, ">i", 0x7FFFFFFF), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 26, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 33, ">i", 4), ErrorCode.CORRUPT_MESSAGE),
        (changed(ONE, 16, ">b", 2), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(ONE, 16, ">b", -1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (bytes(build_batch(SOME)), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(ONE, 17, ">b", 0x08), ErrorCode.INVALID_TIMESTAMP),
        (changed(ONE, 18, ">q", -2), ErrorCode.INVALID_TIMESTAMP),
        (changed(ONE, 18, ">q", (1 << 63) - 1), ErrorCode.INVALID_TIMESTAMP),
        (wrapped(None), ErrorCode.INVALID_RECORD),
        (wrapped(b"garbage"), ErrorCode.CORRUPT_MESSAGE),
        (wrapped(compress(Codec.GZIP, b"")), ErrorCode.INVALID_RECORD),
        (wrapped(compress(Codec.GZIP, ONE[:-1])), ErrorCode.CORRUPT_MESSAGE),
        (wrapped(PACKED, 0), ErrorCode.INVALID_RECORD),
        (wrapped(compress(Codec.GZIP, wrapped(PACKED))), ErrorCode.INVALID_RECORD),
        (wrapped(compress(Codec.ZSTD, ONE), 1, 4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (wrapped(PACKED, 1, 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(BatchError) as caught:
        to_batch(data)
    assert caught.value.code == code
    if data:
        with pytest.raises(BatchError):
            to_batch(ONE + data)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_truncation_and_every_changed_byte_is_corrupt(magic: int) -> None:
    data = message_set(SOME, magic)
    ends = {0}
    for message in messages_of(data):
        ends.add(max(ends) + len(message))
    for size in set(range(len(data))) - ends:
        with pytest.raises(BatchError) as caught:
            to_batch(data[:size])
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    one = message_set(SOME[:1], magic)
    for at in range(12, len(one)):
        with pytest.raises(BatchError):
            to_batch(one[:at] + bytes([one[at] ^ 0x10]) + one[at + 1 :])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_limit_is_for_the_uncompressed_messages(codec: int) -> None:
    inner = message_set(SOME)
    packed = wrapped(compress(codec, inner), 1, codec, 2)
    assert read_header(to_batch(packed, len(inner))).record_count == 3
    assert len(list(iter_messages(packed * 3, 3 * len(inner)))) == 9
    with pytest.raises(BatchError) as caught:
        to_batch(packed, len(inner) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompression_bomb(codec: int) -> None:
    packed = wrapped(compress(codec, bytes(64 << 20)), 1, codec)
    tracemalloc.start()
    try:
        with pytest.raises(BatchError) as caught:
            to_batch(packed, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < LIMIT + 2 * len(packed) + (64 << 10)
    finally:
        tracemalloc.stop()
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_many_empty_messages_take_little_more_than_their_size() -> None:
    inner = message_set([Record(i, NOW, None, None, []) for i in range(20_000)])
    packed = wrapped(compress(Codec.GZIP, inner))
    tracemalloc.start()
    try:
        batch = to_batch(packed, len(inner))
        assert tracemalloc.get_traced_memory()[1] < 3 * len(inner)
    finally:
        tracemalloc.stop()
    assert read_header(batch).record_count == 20_000


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_conversion_pauses_between_pieces(codec: int) -> None:
    """A thread that copies 16 MiB at once would stop the event loop for 15 ms."""
    pauses: list[None] = []
    value = bytes(16 << 20)
    batch = build_batch([Record(0, NOW, None, value, [])], codec=codec)
    converted = from_batches([batch], 1, 0, 1, pause=lambda: pauses.append(None))
    assert next(iter_messages(converted)).value == value
    assert len(pauses) >= 2 * (len(value) // PIECE - 1)  # of the batch, and of the value


def test_the_conversion_of_many_records_pauses_between_them() -> None:
    pauses: list[None] = []
    records = [Record(number, NOW, None, b"", []) for number in range(10_000)]
    from_batches([build_batch(records)], 1, 0, 1 << 30, pause=lambda: pauses.append(None))
    assert len(pauses) == len(records) // PAUSE_RECORDS
    pauses.clear()
    to_batch(
        b"".join(encode_message(each, 1) for each in records), pause=lambda: pauses.append(None)
    )
    assert len(pauses) == len(records) // PAUSE_RECORDS
