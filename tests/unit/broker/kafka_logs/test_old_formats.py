"""Segments of formats 0 and 1, which Kafka kept until the records expired."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_proto.compression import Codec, compress
from quafka_proto.message_sets import encode_message
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import LOG_APPEND_TIME, read_header

NOW = 1_500_000_000_000
APPEND_TIME = 8


def record(offset: int, value: bytes = b"value", time: int = NOW) -> Record:
    return Record(offset, time + offset, b"key %d" % offset, value, [])


def wrapped(records: list[Record], magic: int, codec: int, attributes: int = 0) -> bytes:
    """One compressed message; with magic 1 its messages have relative offsets."""
    first = records[0].offset if magic else 0
    inner = b"".join(encode_message(r._replace(offset=r.offset - first), magic) for r in records)
    newest = max(r.timestamp for r in records)
    outer = Record(records[-1].offset, newest, None, compress(codec, inner), [])
    return encode_message(outer, magic, codec | attributes)


def log_of(folder: Path, *parts: bytes) -> PartitionLog:
    (folder / f"{0:020}.log").write_bytes(b"".join(parts))
    return PartitionLog(folder)


def read_all(log: PartitionLog, size: int) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start
    while batches := log.read(offset, size) if offset < log.log_end else []:
        found += [r for batch in batches for r in iter_records(batch.data)]
        offset = batches[-1].next_offset
    return found


@pytest.mark.parametrize("magic", [0, 1])
def test_all_kinds_of_messages(tmp_path: Path, magic: int) -> None:
    plain = [record(0), record(1), record(4)]
    packed = [
        ([record(base), record(base + 1), record(base + 3)], codec)
        for base, codec in ((5, Codec.GZIP), (10, Codec.SNAPPY), (20, Codec.LZ4))
    ]
    new = [record(30), record(31)]
    log = log_of(
        tmp_path,
        *(encode_message(r, magic) for r in plain),
        *(wrapped(records, magic, codec) for records, codec in packed),
        bytes(build_batch(new, 30)),
    )
    old = plain + [r for records, _ in packed for r in records]
    expected = [r if magic else r._replace(timestamp=-1) for r in old] + new
    assert (log.log_start, log.log_end) == (0, 32)
    for size in (1, 200, 1 << 20):
        assert read_all(log, size) == expected
    codecs = [read_header(batch.data).codec for batch in log.read(5, 1 << 20)]
    assert codecs == [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.NONE]
    assert [batch.path is None for batch in log.read(20, 1 << 20)] == [True, False]
    for offset, first in ((2, 4), (8, 5), (9, 10), (24, 30)):
        batch = log.read(offset, 1)[0]
        assert next(iter_records(batch.data)).offset == first
    found = log.offset_at(NOW + 12)
    assert found is not None
    assert found[1:] == ((13, -1) if magic else (30, 0))
    newest = log.newest()
    assert newest is not None
    assert newest.offset == 31


def test_append_times_stay(tmp_path: Path) -> None:
    """Of LogAppendTime, the outer message has the time of all."""
    log = log_of(
        tmp_path,
        encode_message(record(0), 1, APPEND_TIME),
        wrapped([record(1), record(2)], 1, Codec.GZIP, APPEND_TIME),
    )
    batches = log.read(0, 1 << 20)
    assert all(read_header(batch.data).attributes & LOG_APPEND_TIME for batch in batches)
    assert [r.timestamp for r in read_all(log, 1)] == [NOW, NOW + 2, NOW + 2]


def test_damaged_messages(tmp_path: Path) -> None:
    data = bytearray(encode_message(record(0), 1) + encode_message(record(1), 1))
    data[30] ^= 1
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(data)
    assert PartitionLog(tmp_path).log_end == 0
    log = PartitionLog(tmp_path, clean=True)
    assert log.log_end == 2
    with pytest.raises(KafkaLogError, match="position 0: a batch does not match its CRC"):
        log.read(0, 100)
    # A wrapper whose offset is not that of its last message.
    bad = bytearray(wrapped([record(1), record(2)], 0, Codec.GZIP))
    struct.pack_into(">q", bad, 0, 9)
    path.write_bytes(bad)
    with pytest.raises(KafkaLogError, match="do not ascend"):
        PartitionLog(tmp_path).read(0, 100)
