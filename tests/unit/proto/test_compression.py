"""Compression: other libraries' data are read, ours are read by them, bombs and garbage refused."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import kafka.codec as kafka_python
import lz4.frame
import pytest
from aiokafka import codec as aiokafka

from quafka_proto.compression import Codec, TooLarge, compress, decompress, mend_lz4
from quafka_proto.errors import Malformed

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
CHANCE = random.Random(3)
TEXT = b" ".join(b"%d bottles of beer" % (n % 99) for n in range(9000))
SAMPLES = [b"", b"x", TEXT[:100], TEXT, CHANCE.randbytes(70_000), bytes(400_000)]
LIMIT = 1 << 20

Coder = Callable[[bytes], bytes]
ENCODERS: dict[str, tuple[int, Coder]] = {
    "gzip": (1, gzip.compress),
    "kafka-python gzip": (1, kafka_python.gzip_encode),
    "kafka-python xerial": (2, kafka_python.snappy_encode),
    "kafka-python raw snappy": (2, lambda data: kafka_python.snappy_encode(data, False)),
    "raw snappy": (2, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "kafka-python lz4": (3, kafka_python.lz4_encode),
    "linked lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "kafka-python zstd": (4, kafka_python.zstd_encode),
    "aiokafka xerial": (2, lambda data: bytes(aiokafka.snappy_encode(data))),
    "aiokafka lz4": (3, lambda data: bytes(aiokafka.lz4_encode(data))),
    "aiokafka zstd": (4, lambda data: bytes(aiokafka.zstd_encode(data))),
}
DECODERS: list[tuple[int, Coder]] = [
    (1, gzip.decompress),
    (2, kafka_python.snappy_decode),
    (3, kafka_python.lz4_decode),
    (4, kafka_python.zstd_decode),
    (2, lambda data: bytes(aiokafka.snappy_decode(data))),
    (3, lambda data: bytes(aiokafka.lz4_decode(data))),
    (4, lambda data: bytes(aiokafka.zstd_decode(data))),
]


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_data_of_other_libraries_are_read(name: str, data: bytes) -> None:
    codec, encode = ENCODERS[name]
    assert decompress(codec, encode(data), LIMIT) == data
    assert decompress(codec, memoryview(bytearray(encode(data))), LIMIT) == data


@pytest.mark.parametrize(("codec", "decode"), DECODERS)
@pytest.mark.parametrize("data", SAMPLES[1:], ids=len)
def test_other_libraries_read_our_data(codec: int, decode: Coder, data: bytes) -> None:
    assert decode(compress(codec, data)) == data
    assert decode(compress(codec, memoryview(bytearray(data)))) == data


def test_snappy_is_written_as_java_frames_it() -> None:
    assert compress(Codec.SNAPPY, TEXT)[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def test_lz4_is_written_with_independent_blocks() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags >> 6 == 1  # the version
    assert flags & 0x20


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_the_limit_is_exact(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    for limit in {0, len(data) // 2, len(data) - 1} - {len(data), -1}:
        with pytest.raises(TooLarge, match=f"more than {limit} bytes"):
            decompress(codec, packed, limit)


def test_uncompressed_data_have_the_limit_too() -> None:
    assert decompress(0, TEXT, len(TEXT)) is TEXT
    with pytest.raises(TooLarge):
        decompress(0, TEXT, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(Malformed, match="not known"):
        decompress(codec, b"data")
    with pytest.raises(ValueError, match="not known"):
        compress(codec, b"data")


def test_none_is_a_codec() -> None:
    assert compress(Codec.NONE, memoryview(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_malformed(codec: int) -> None:
    packed = compress(codec, TEXT[:3000])
    for size in range(len(packed)):
        if codec == Codec.SNAPPY and size == 16:
            continue  # a header and no block is the empty stream
        with pytest.raises(Malformed):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_data_are_malformed(codec: int) -> None:
    with pytest.raises(Malformed):
        decompress(codec, compress(codec, TEXT) + b"and more", LIMIT)


def bomb(codec: int, size: int) -> bytes:
    """Data that decompress to `size` zeros, and are as small as the codec can make them."""
    zeros = bytes(size)
    if codec == Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(zeros))
    if codec == Codec.GZIP:
        return gzip.compress(zeros, 9)
    return compress(codec, zeros)


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bomb(codec: int) -> None:
    packed = bomb(codec, 256 << 20)
    assert len(packed) < 13 << 20
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, packed, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < LIMIT + (64 << 10)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_nested_decompression_bomb(codec: int) -> None:
    """Compressed twice, the outer data are small; only the inner data are too large."""
    inner = bomb(codec, 64 << 20)
    packed = compress(codec, inner)
    once = decompress(codec, packed, 16 << 20)
    assert once == inner
    with pytest.raises(TooLarge):
        decompress(codec, once, LIMIT)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xe8\x07"])
@pytest.mark.parametrize("framed", [False, True])
def test_a_snappy_block_that_claims_more_than_it_can_hold(claim: bytes, framed: bool) -> None:
    block = claim + b"\x00x"
    if framed:
        block = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="claim to be"):
            decompress(Codec.SNAPPY, block)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 4, (1 << 31) - 1])
def test_a_snappy_block_that_does_not_fit(length: int) -> None:
    with pytest.raises(Malformed, match="does not fit"):
        decompress(2, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"\x01\x00x")


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK = struct.pack("<I", 3 << 3 | 1)[:3] + b"abc"


@pytest.mark.parametrize("size", [1 << 20, 1 << 27, 1 << 40, (1 << 64) - 1])
def test_a_zstd_content_size_that_is_forged(size: int) -> None:
    with pytest.raises(Malformed):
        decompress(4, ZSTD_MAGIC + b"\xe0" + struct.pack("<Q", size) + ZSTD_BLOCK)


def test_a_zstd_window_that_is_too_large() -> None:
    """Level 22 needs 2^27; a larger window is refused before it is allocated."""
    assert decompress(4, ZSTD_MAGIC + b"\x00" + bytes([17 << 3]) + ZSTD_BLOCK) == b"abc"
    with pytest.raises(Malformed, match="too much memory"):
        decompress(4, ZSTD_MAGIC + b"\x00" + bytes([21 << 3]) + ZSTD_BLOCK)


@pytest.mark.parametrize("data", SAMPLES[1:], ids=len)
def test_lz4_header_checksum_of_kafka_3160(data: bytes) -> None:
    """Until message format 1 the checksum was computed over the magic number too."""
    old = kafka_python.lz4_encode_old_kafka(data)
    with pytest.raises(Malformed, match="headerChecksum"):
        decompress(3, old, LIMIT)
    assert decompress(3, mend_lz4(old), LIMIT) == data
    sound = compress(3, data)
    assert mend_lz4(sound) == sound


def test_lz4_header_checksums_of_all_descriptors() -> None:
    """Content size and dictionary id make the descriptor longer."""
    for content_size in (False, True):
        frame = lz4.frame.compress(TEXT, store_size=content_size)
        broken = bytearray(frame)
        broken[14 if content_size else 6] ^= 0x55
        assert mend_lz4(bytes(broken)) == frame
    cut_short = b"\x04\x22\x4d\x18\x49\x40" + bytes(3)
    assert mend_lz4(cut_short) == cut_short


@pytest.mark.parametrize("data", [b"", b"\x04\x22\x4d\x18", b"garbage, and no frame"])
def test_data_that_are_no_lz4_frame_are_not_mended(data: bytes) -> None:
    assert mend_lz4(data) == data
