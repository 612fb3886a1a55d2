"""Inputs that hang, crash or exhaust other codecs of the Kafka protocol, by name."""

from __future__ import annotations

import contextlib
import gc
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quafka_proto import record_columns
from quafka_proto.codec import decode
from quafka_proto.compression import Codec, TooLarge, compress
from quafka_proto.errors import BatchError, ErrorCode, Malformed
from quafka_proto.headers import decode_request_header
from quafka_proto.message import Message
from quafka_proto.message_sets import encode_message, from_batches, to_batch
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import BATCH_HEADER_SIZE, assemble, read_header, split_batches
from quafka_proto.schema.metadata import MetadataRequest
from tests.fuzz.corpus import NOW, RECORDS
from tests.fuzz.targets import TARGETS
from tests.property.proto.messages import CASES
from tests.support.suites import more

MIB = 1 << 20
FLEXIBLE = [case for case in CASES if case[1] in case[0].flexible]
PLAIN = [case for case in CASES if case[1] not in case[0].flexible]


@contextmanager
def bounded(data: bytes, memory: int = 0) -> Iterator[None]:
    """At most 1 ms per KB and, besides `memory`, a small multiple of the data."""
    gc.disable()  # it would look through all that the suite has made
    tracemalloc.start()
    started = time.thread_time()
    try:
        yield
    finally:  # also, and above all, where the data are refused
        spent = time.thread_time() - started
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        gc.enable()
        # tracemalloc makes everything several times slower
        assert spent < 0.05 + 5 * len(data) / 1024 / 1000
        assert peak < 4 * len(data) + memory + 256 * 1024


@pytest.mark.parametrize("count", [0x7FFFFFFF, *more([-0x80000000, -2])], ids=hex)
@pytest.mark.parametrize(("message", "version"), PLAIN)
def test_forged_counts_everywhere(message: type[Message], version: int, count: int) -> None:
    """A count or length of 2^31 at any place of 400 bytes."""
    compiled(message, version)
    decode_in_bounds(message, version, bytes(4))
    for at in range(24):
        data = bytes(at) + struct.pack(">i", count) + bytes(400)
        decode_in_bounds(message, version, data)


@pytest.mark.parametrize(
    "length",
    [b"\x81\x80\x80\x80\x20", *more([b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"])],
    ids=["2^33", "2^32-1", "2^31-1"],
)
@pytest.mark.parametrize(("message", "version"), FLEXIBLE)
def test_array_length_2_33(message: type[Message], version: int, length: bytes) -> None:
    """Aborts kio. A compact length that no frame can hold, at any place of 400 bytes."""
    compiled(message, version)
    decode_in_bounds(message, version, bytes(4))
    for at in range(24):
        decode_in_bounds(message, version, bytes(at) + length + bytes(400))


def compiled(message: type[Message], version: int) -> None:
    """What is compiled on first use is not counted."""
    with contextlib.suppress(Malformed):
        decode(message, version, b"")


def decode_in_bounds(message: type[Message], version: int, data: bytes) -> None:
    try:
        with bounded(data):
            decode(message, version, data)
    except Malformed:
        pass


@pytest.mark.parametrize("fill", [0xFF, 0x80, 0x7F, 0x00])
@pytest.mark.parametrize("target", TARGETS)
def test_400_kb_of_one_byte(target: str, fill: int) -> None:
    """0xFF: a varint without end, which keeps kafka-python busy for 20 seconds."""
    data = bytes([fill]) * 400_000
    TARGETS[target](data[:1000])
    with bounded(data, 2 * MIB):
        TARGETS[target](data)


@pytest.mark.parametrize("fill", [b"\xff", *more([b"\x01"])])
@pytest.mark.parametrize(("message", "version"), CASES)
def test_400_kb_of_one_byte_as_every_message(
    message: type[Message], version: int, fill: bytes
) -> None:
    compiled(message, version)
    data = fill * 400_000
    started = time.thread_time()
    with pytest.raises(Malformed):
        decode(message, version, data)
    assert time.thread_time() - started < 0.4


def test_400_kb_of_0xff_as_records() -> None:
    assert record_columns, "numpy is imported before memory is measured"
    for body in (b"\xff" * 400_000, b"\x0c\x00" + b"\xff" * 400_000):
        batch = sealed(body, 1000)
        for look in (check_records, lambda data: list(iter_records(data))):
            with pytest.raises((BatchError, Malformed)), bounded(batch):
                look(batch)


@pytest.mark.parametrize("size", range(BATCH_HEADER_SIZE))
def test_a_batch_shorter_than_61_bytes(size: int) -> None:
    """Makes aiokafka's C parser read beyond the heap."""
    whole = bytes(build_batch(RECORDS))
    short = bytearray(whole[:size])
    if size >= 12:
        struct.pack_into(">i", short, 8, size - 12)
    for data in (whole[:size], bytes(short)):
        with pytest.raises(BatchError) as caught:
            split_batches(data)
        assert caught.value.code == (
            ErrorCode.CORRUPT_MESSAGE if data else ErrorCode.INVALID_RECORD
        )
        with pytest.raises(BatchError):
            check_records(data)
        for read in (read_header, iter_records):
            with pytest.raises(Malformed):
                read(data)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [0x7FFFFFFF, 1 << 24, -1, -0x80000000])
def test_record_count_2_31_in_a_small_batch(codec: int, count: int) -> None:
    batch = sealed(compress(codec, bytes(build_batch(RECORDS))[BATCH_HEADER_SIZE:]), count, codec)
    with bounded(batch):
        with pytest.raises(Malformed):
            iter_records(batch)
        with pytest.raises(BatchError):
            check_records(batch)
        with pytest.raises(BatchError):
            from_batches([batch], 1, 0, MIB)


@pytest.mark.parametrize("claim", [b"\xfe\xff\xff\xff\x0f", b"\xfe\xff\xff\x7f", b"\x01", b"\x7e"])
def test_record_header_count_forged(claim: bytes) -> None:
    """2^31-1 headers, and fewer that do not fit either."""
    record = b"\x00\x00\x00\x01\x01" + claim + bytes(16)
    batch = sealed(bytes([2 * len(record)]) + record, 1)
    with bounded(batch):
        with pytest.raises(Malformed):
            list(iter_records(batch))
        with pytest.raises(BatchError):
            check_records(batch)


@pytest.mark.parametrize("tags", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\xe5\x00"])
def test_deep_tag_counts(tags: bytes) -> None:
    """Tagged fields of no bytes, as many as fit or are claimed: in the header and in the body."""
    flood = tags + b"\x09\x00" * 200_000
    head = struct.pack(">hhih", 3, 12, 1, -1)
    decode_request_header(head + b"\x00")
    with bounded(flood), pytest.raises(Malformed):
        decode_request_header(head + flood)
    with bounded(flood), pytest.raises(Malformed):
        decode(MetadataRequest, 12, b"\x00\x00\x00" + flood)  # null topics, two booleans, tags


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_bombs(codec: int) -> None:
    """Zeros, 100 MB of them, as a batch and as a message."""
    packed = compress(codec, bytes(100 * MIB))
    batch = sealed(packed, 1, codec)
    with bounded(batch, 2 * MIB):
        with pytest.raises(TooLarge):
            iter_records(batch, MIB)
        with pytest.raises(BatchError) as caught:
            check_records(batch, MIB)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_nested_bombs(codec: int) -> None:
    """A compressed message in a compressed message in …: refused at the second, unread."""
    message = packed_message(codec, bytes(32 * MIB))
    for _ in range(3):
        message = packed_message(codec, message)
    with bounded(message, 16 * MIB):
        with pytest.raises(BatchError) as caught:
            to_batch(message, 8 * MIB)
        assert caught.value.code == ErrorCode.INVALID_RECORD


def packed_message(codec: int, content: bytes) -> bytes:
    return encode_message(Record(0, NOW, None, compress(codec, content), []), 1, codec)


def sealed(body: bytes, count: int, codec: int = 0) -> bytes:
    """A batch of any body and count, its length and CRC right."""
    header = read_header(build_batch(RECORDS))
    changed = header._replace(record_count=count, last_offset_delta=2, attributes=codec)
    return bytes(assemble(changed, body))
