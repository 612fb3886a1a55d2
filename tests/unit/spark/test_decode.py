"""The vectorised decode gives what the plain one gives, for any records; any bytes are records or
damage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_quafka.arrow_schema import arrow_schema
from pyspark_quafka.batches import Batches
from pyspark_quafka.bodies import Arena
from pyspark_quafka.columns import COLUMNS
from pyspark_quafka.damage import BatchDamage
from pyspark_quafka.decode import Wanted, decode
from quafka_proto import varints
from quafka_proto.compression import Codec
from quafka_proto.primitives import write_varint
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import LOG_APPEND_TIME, PATCHED_SIZE, crc32c, empty_batch, read_header
from tests.support.suites import examples
from tests.unit.proto.batches import resealed, with_body

NOW = 1_700_000_000_000
PAYLOADS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), PAYLOADS), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record, st.just(0), st.integers(NOW - 10**9, NOW + 10**9), PAYLOADS, PAYLOADS, HEADERS
    ),
    min_size=1,
    max_size=8,
)
EVERYTHING = Wanted(COLUMNS)
ENDLESS = 1 << 62


def batches_of(
    batches: Sequence[bytes | bytearray], first: int = 0, until: int = ENDLESS
) -> Batches:
    lengths = np.array([len(batch) for batch in batches], np.int64)
    data = np.frombuffer(b"".join(batches), np.uint8)
    many = len(batches)
    return Batches(
        data, np.cumsum(lengths) - lengths, lengths, np.zeros(many, np.int64),
        np.full(many, first), np.full(many, until), [("orders", 3)],
    )  # fmt: skip


def decoded(batches: Batches, wanted: Wanted) -> tuple[pa.RecordBatch, list[BatchDamage]]:
    [found] = decode(batches, wanted, Arena())
    return found


def row_of(record: Record, timestamp_type: int = 0) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp // 1000, UTC).replace(
            microsecond=record.timestamp % 1000 * 1000
        ),
        "timestampType": timestamp_type,
        "headers": headers or None,
    }


def plainly(batches: Sequence[bytes | bytearray]) -> list[dict[str, Any]]:
    return [
        row_of(record, int(bool(read_header(batch).attributes & LOG_APPEND_TIME)))
        for batch in batches
        for record in iter_records(batch)
    ]


@examples(100)
@given(st.lists(st.tuples(RECORDS, st.sampled_from(Codec)), min_size=1, max_size=4))
def test_the_same_as_record_by_record(parts: list[tuple[list[Record], Codec]]) -> None:
    batches = [build_batch(records, 100 * at, codec=c) for at, (records, c) in enumerate(parts)]
    found, damages = decoded(batches_of(batches), EVERYTHING)
    found.validate(full=True)
    assert not damages
    assert found.to_pylist() == plainly(batches)


def test_many_small_batches_beside_a_large_one() -> None:
    batches = [
        build_batch(
            [Record(0, NOW, b"k" * (at % 90), b"v" * at, []) for at in range(1 + number % 7)],
            number * 1_000,
        )
        for number in range(200)
    ]
    large = [Record(0, NOW + at, None, b"x" * (at * 7 % 20_000), []) for at in range(300)]
    batches.insert(5, build_batch(large, 5_000_000, codec=Codec.ZSTD))
    found, damages = decoded(batches_of(batches), EVERYTHING)
    assert not damages
    assert found.to_pylist() == plainly(batches)


def test_offsets_that_compaction_left_out_and_append_time() -> None:
    kept = [Record(offset, NOW + offset, b"k", b"v", []) for offset in (7, 9, 200)]
    batches = [
        build_batch(kept, 7, keep_offsets=True),
        build_batch([Record(0, NOW, b"k", b"v", [])] * 2, 300, append_time=NOW + 5),
    ]
    found, _ = decoded(batches_of(batches), EVERYTHING)
    assert found.to_pylist() == plainly(batches)
    offsets, _ = decoded(batches_of(batches), Wanted(("offset",)))
    assert offsets.column("offset").to_pylist() == [7, 9, 200, 300, 301]


def test_only_the_wanted_offsets_and_columns() -> None:
    batches = [build_batch([Record(0, NOW, b"k", b"v", [])] * 10, 10 * at) for at in range(3)]
    for columns in (("value", "offset"), ("offset",)):
        found, _ = decoded(batches_of(batches, 7, 24), Wanted(columns))
        assert found.schema.equals(arrow_schema(columns))
        assert found.column("offset").to_pylist() == list(range(7, 24))
    found, _ = decoded(batches_of(batches, 7, 24), Wanted(()))
    assert (found.num_rows, found.num_columns) == (17, 0)


def test_control_batches_and_batches_of_lost_records_have_no_rows() -> None:
    batches: list[bytes | bytearray] = [
        build_batch([Record(0, NOW, b"k", b"v", [])], 0),
        build_batch([Record(0, NOW, b"\0\0\0\0", b"", [])], 1, control=True),
        empty_batch(2, 50),
        build_batch([Record(0, NOW, b"k", b"w", [])], 52),
    ]
    for columns in (COLUMNS, ("offset",)):
        found, damages = decoded(batches_of(batches), Wanted(columns))
        assert not damages
        assert found.column("offset").to_pylist() == [0, 52]


@pytest.mark.parametrize("codec", Codec)
def test_a_damaged_batch_is_told_and_left_out(codec: Codec) -> None:
    batches = [
        build_batch([Record(0, NOW, b"k", b"value" * 9, [])] * 4, 4 * at, codec=codec)
        for at in range(3)
    ]
    batches[1][-3] ^= 0x40
    found, damages = decoded(batches_of(batches), EVERYTHING)
    assert damages == [BatchDamage("orders", 3, 4, "it does not match its CRC")]
    assert found.column("offset").to_pylist() == [0, 1, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("columns", [(), ("offset",), ("value",), COLUMNS])
@pytest.mark.parametrize("count", [100_000, (1 << 31) - 1])
def test_records_that_are_only_claimed_are_no_rows(
    codec: Codec, columns: tuple[str, ...], count: int
) -> None:
    """As brokers stored them before they looked at records."""
    good = build_batch([Record(0, NOW, None, b"good", [])])
    hollow = resealed(with_body(b""), attributes=codec)
    hollow = resealed(hollow, record_count=count, last_offset_delta=count - 1)
    hollow = (1).to_bytes(8, "big") + hollow[8:]
    found, damages = decoded(batches_of([good, hollow]), Wanted(columns))
    assert found.num_rows == 1
    assert [damage.offset for damage in damages] == [1]


def test_what_decompresses_to_very_much_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions in Arrow have 31 bits: of a few compressed bytes there may be more."""
    monkeypatch.setattr("pyspark_quafka.bodies._MOST_BYTES", 10_000)
    batches = [
        build_batch([Record(0, NOW, b"k", bytes(size), [])], at, codec=Codec.ZSTD)
        for at, size in enumerate([4_000] * 9 + [20_000] + [10] * 9)
    ]
    parts = [
        found for found, damages in decode(batches_of(batches), EVERYTHING, Arena()) if not damages
    ]
    assert [row for part in parts for row in part.to_pylist()] == plainly(batches)
    assert max(part.nbytes for part in parts if part.num_rows > 1) < 15_000
    assert len(parts) < len(batches)


@pytest.mark.parametrize("time", [NOW * 1_000_000, -(1 << 60)])
def test_a_time_that_spark_has_not_is_told_where_it_is_wanted(time: int) -> None:
    """Nanoseconds, by mistake: as microseconds they would wrap around."""
    batches = [
        build_batch([Record(0, at, b"k", b"v", [])], number)
        for number, at in enumerate([NOW, time])
    ]
    found, damages = decoded(batches_of(batches), EVERYTHING)
    assert found.to_pylist() == plainly(batches[:1])
    assert [damage.offset for damage in damages] == [1]
    found, damages = decoded(batches_of(batches), Wanted(("value",)))
    assert (found.num_rows, damages) == (2, [])


def test_a_batch_as_large_as_consumers_read() -> None:
    batch = build_batch([Record(0, NOW, None, bytes(65 << 20), [])], 0, codec=Codec.ZSTD)
    found, damages = decoded(batches_of([batch]), Wanted(("offset", "timestamp")))
    assert (found.num_rows, damages) == (1, [])


@pytest.mark.long
def test_memory_is_used_again_and_grows() -> None:
    """What was decoded into it before is not what is found, and not changed by what comes."""
    arena = Arena()
    sizes = [10, 40 << 20, 300, 17 << 20, 0]
    kept: list[pa.RecordBatch] = []
    codecs = Codec.LZ4, Codec.SNAPPY, Codec.GZIP, Codec.ZSTD
    for codec in codecs:
        batches = [
            build_batch([Record(0, NOW, None, bytes([codec]) * size, [])], at, codec=codec)
            for at, size in enumerate(sizes)
        ]
        [(found, damages)] = decode(batches_of(batches), Wanted(("value",)), arena)
        assert not damages
        kept.append(found)
    for codec, found in zip(codecs, kept, strict=True):
        values = found.column("value").to_pylist()
        assert [len(value) for value in values] == sizes
        assert all(set(value) <= {codec} for value in values)


def test_damage_takes_no_room_of_what_follows() -> None:
    """A damaged batch that is larger than all the memory there is yet."""
    large = build_batch([Record(0, NOW, None, random.Random(1).randbytes(20 << 20), [])], 0)
    large[22] |= Codec.LZ4  # which the body is not
    large[17:21] = crc32c(large[PATCHED_SIZE:]).to_bytes(4, "big")
    small = build_batch([Record(0, NOW, None, b"x" * 500, [])], 1, codec=Codec.LZ4)
    found, damages = decoded(batches_of([large, small]), EVERYTHING)
    assert [damage.offset for damage in damages] == [0]
    assert found.to_pylist() == plainly([small])


def test_a_batch_that_is_too_large_is_told() -> None:
    small = build_batch([Record(0, NOW, None, b"x", [])], 0)
    large = build_batch([Record(0, NOW, None, b"x" * 5_000, [])], 1, codec=Codec.ZSTD)
    found, damages = decoded(batches_of([small, large]), Wanted(COLUMNS, limit=1_000))
    assert [damage.offset for damage in damages] == [1]
    assert found.num_rows == 1


@examples(200)
@given(RECORDS, st.randoms(use_true_random=False))
def test_damage_under_a_right_crc_gives_records_or_damage(
    records: list[Record], chance: random.Random
) -> None:
    batch = build_batch(records)
    for _ in range(chance.randint(1, 5)):
        batch[chance.randrange(PATCHED_SIZE, len(batch))] = chance.randrange(256)
    batch[17:21] = crc32c(batch[PATCHED_SIZE:]).to_bytes(4, "big")
    good = build_batch([Record(0, NOW, b"k", b"v", [])], 1_000)
    for columns in (COLUMNS, ("value",), ("offset",)):
        found, damages = decoded(batches_of([batch, good]), Wanted(columns))
        found.validate(full=True)
        assert found.num_rows >= 1
        assert len(damages) <= 1


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20))
def test_varints_of_all_lengths(numbers: list[int]) -> None:
    data = bytearray()
    at = []
    for number in numbers:
        at.append(len(data))
        write_varint(data, number)
    found, behind = varints.read_varints(np.frombuffer(data, np.uint8), np.array(at, np.int64))
    assert found.tolist() == numbers
    assert behind.tolist() == [*at[1:], len(data)]
