"""The log's bytes: they read back as written, and every changed byte is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_proto.errors import Malformed
from quafka_proto.log_format import (
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_MAGIC,
    INDEX_ROW_SIZE,
    LOG_MAGIC,
    REWRITTEN,
    EntryStart,
    IndexRow,
    check_entry,
    check_entry_header,
    check_file_header,
    decode_row,
    encode_entry_header,
    encode_file_header,
    encode_row,
    encode_rows,
    row_of,
)
from quafka_proto.records import PATCHED_SIZE, rebase
from tests.unit.broker.tools import batch_of

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
i16, i32, i64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
hashes = st.binary(min_size=16, max_size=16)
rows = st.builds(
    IndexRow, u64, u64, u64, hashes, i64, i64, i32, u32, u32, u32, u32, u32, i16, u16, i32
)  # fmt: skip
flips = st.tuples(st.integers(0, 2**16), st.integers(0, 7))


def flipped(data: bytes, flip: tuple[int, int]) -> bytes:
    place, bit = flip
    place %= len(data)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def entry(salt: int, values: list[bytes], numbers: tuple[int, ...], topic_hash: bytes) -> bytes:
    batch = batch_of(*values)
    global_id, base_offset, durable, org, partition, generation = numbers
    header = encode_entry_header(
        batch[:PATCHED_SIZE],
        salt=salt,
        length=len(batch),
        global_id=global_id,
        base_offset=base_offset,
        durable_position=durable,
        topic_hash=topic_hash,
        org_id=org,
        partition=partition,
        generation=generation,
        record_count=len(values),
    )
    assert len(header) == ENTRY_HEADER_SIZE
    return header + batch


entries = st.builds(
    entry,
    st.just(7),
    st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    st.tuples(u64, u64, u64, u32, u32, u32),
    hashes,
)


@given(rows)
def test_a_row_reads_back(row: IndexRow) -> None:
    encoded = encode_row(row)
    assert len(encoded) == INDEX_ROW_SIZE
    assert decode_row(b"??" + encoded + b"??", 2) == row


@given(rows, flips)
def test_a_changed_bit_of_a_row_is_noticed(row: IndexRow, flip: tuple[int, int]) -> None:
    with pytest.raises(Malformed):
        decode_row(flipped(encode_row(row), flip))


@given(st.lists(rows, max_size=3))
def test_rows_lie_side_by_side(several: list[IndexRow]) -> None:
    assert encode_rows(several) == b"".join(map(encode_row, several))


@given(
    u32, st.lists(st.tuples(u64, st.integers(0, 2**63 - 1), u64, hashes, u32, u32, u32, i32))
)  # fmt: skip
def test_the_entries_of_one_batch(
    salt: int, places: list[tuple[int, int, int, bytes, int, int, int, int]]
) -> None:
    """A batch in several places has the bytes that it would have alone in each."""
    batch = bytearray(batch_of(b"a", b"b"))
    start = EntryStart(batch[:PATCHED_SIZE], salt, len(batch))
    for global_id, offset, durable, topic_hash, org, partition, generation, epoch in places:
        rebase(batch, offset, epoch)
        header = encode_entry_header(
            batch[:PATCHED_SIZE],
            salt=salt,
            length=len(batch),
            global_id=global_id,
            base_offset=offset,
            durable_position=durable,
            topic_hash=topic_hash,
            org_id=org,
            partition=partition,
            generation=generation,
            record_count=2,
        )
        placed = start.placed(
            global_id, offset, durable, topic_hash, org, partition, generation, 2, epoch
        )
        assert placed == header + batch[:PATCHED_SIZE]


@given(st.sampled_from([LOG_MAGIC, INDEX_MAGIC]), u64, u32, flips)
def test_file_headers(magic: bytes, number: int, salt: int, flip: tuple[int, int]) -> None:
    header = encode_file_header(magic, number, salt, REWRITTEN)
    assert len(header) == FILE_HEADER_SIZE
    assert check_file_header(header, magic, number) == (salt, REWRITTEN)
    for data in (flipped(header, flip), header[:-1], b""):
        with pytest.raises(Malformed):
            check_file_header(data, magic, number)
    with pytest.raises(Malformed):
        check_file_header(header, magic, number + 1)


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    st.tuples(u64, u64, u64, u32, u32, u32),
    hashes,
)
def test_an_entry_reads_back(
    values: list[bytes], numbers: tuple[int, ...], topic_hash: bytes
) -> None:
    data = entry(7, values, numbers, topic_hash)
    found = check_entry(b"?" + data + b"?", 1, 7)
    assert found.size == len(data)
    assert found == check_entry_header(data, 0, 7)
    global_id, base_offset, durable, org, partition, generation = numbers
    assert (found.global_id, found.base_offset, found.durable_position) == (
        global_id,
        base_offset,
        durable,
    )
    row = row_of(found, 32, data[ENTRY_HEADER_SIZE:])
    assert (row.org_id, row.partition, row.generation) == (org, partition, generation)
    assert (row.topic_hash, row.record_count, row.length) == (topic_hash, len(values), found.length)
    assert row.end == 32 + len(data)


@given(entries, flips)
def test_a_changed_bit_of_an_entry_is_noticed(data: bytes, flip: tuple[int, int]) -> None:
    with pytest.raises(Malformed):
        check_entry(flipped(data, flip), 0, 7)


@given(entries, st.integers(0, 2**16))
def test_a_cut_entry_is_noticed(data: bytes, at: int) -> None:
    with pytest.raises(Malformed):
        check_entry(data[: at % len(data)], 0, 7)


@given(entries, u32.filter(lambda salt: salt != 7))
def test_an_entry_of_another_file_is_noticed(data: bytes, salt: int) -> None:
    with pytest.raises(Malformed):
        check_entry(data, 0, salt)
