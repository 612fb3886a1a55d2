"""Record batches of any records come back; any bytes are records, or refused."""

from __future__ import annotations

import contextlib
import random

from hypothesis import given
from hypothesis import strategies as st

from quafka_proto.compression import Codec
from quafka_proto.errors import BatchError, Malformed
from quafka_proto.primitives import read_uvarint, read_varint, write_uvarint, write_varint
from quafka_proto.record_check import check_records
from quafka_proto.record_codec import Record, build_batch, iter_records
from quafka_proto.records import PATCHED_SIZE, crc32c, split_batches
from tests.support.suites import examples

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


@examples(100)
@given(RECORDS, st.integers(0, 1 << 62), st.sampled_from(Codec))
def test_records_come_back(records: list[Record], base_offset: int, codec: Codec) -> None:
    batch = build_batch(records, base_offset, codec=codec)
    assert len(split_batches(batch)) == 1
    expected = [r._replace(offset=base_offset + i) for i, r in enumerate(records)]
    assert list(iter_records(batch)) == expected
    times = [record.timestamp for record in records]
    assert check_records(batch) == (min(times), max(times), any(r.key is None for r in records))


@examples(100)
@given(RECORDS, st.randoms(use_true_random=False))
def test_damage_under_a_right_crc_gives_records_or_malformed(
    records: list[Record], chance: random.Random
) -> None:
    batch = build_batch(records)
    for _ in range(chance.randint(1, 5)):
        batch[chance.randrange(PATCHED_SIZE, len(batch))] = chance.randrange(256)
    batch[17:21] = crc32c(batch[PATCHED_SIZE:]).to_bytes(4, "big")
    with contextlib.suppress(BatchError):
        split_batches(batch)
    with contextlib.suppress(BatchError):
        check_records(batch)
    with contextlib.suppress(Malformed):
        assert all(isinstance(record, Record) for record in iter_records(batch))


@examples(200)
@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        assert split_batches(data)
    with contextlib.suppress(BatchError):
        check_records(data)
    with contextlib.suppress(Malformed):
        list(iter_records(data))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_come_back(value: int) -> None:
    out = bytearray(b"x")
    write_varint(out, value)
    assert read_varint(bytes(out), 1) == (value, len(out))
    assert len(out) <= 11


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned_varints_come_back(value: int) -> None:
    out = bytearray(b"x")
    write_uvarint(out, value)
    assert read_uvarint(bytes(out), 1) == (value, len(out))
    assert len(out) <= 6
