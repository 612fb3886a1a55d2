"""The objects of a log in an object store: round trips, and no damage that goes unnoticed."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_proto.chain_format import (
    ENTRIES,
    FENCE,
    HEADER_SIZE,
    MAGIC,
    ChainHeader,
    Owner,
    ShardManifest,
    StoredFile,
    chain_path,
    decode_directory,
    decode_header,
    decode_manifest,
    directory_path,
    encode_directory,
    encode_header,
    encode_manifest,
    epoch_of,
    file_path,
    manifest_path,
    seq_of,
)
from quafka_proto.errors import Malformed
from quafka_proto.log_format import FILE_HEADER_SIZE, INDEX_ROW_SIZE
from quafka_proto.records import crc32c
from tests.fuzz.chain import chain_object, is_whole

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
headers = st.builds(
    ChainHeader,
    st.sampled_from((ENTRIES, FENCE)),
    U32, U64, U64, st.binary(min_size=16, max_size=16), U64, U64, U64, U32, U32, U64,
)  # fmt: skip
paths = st.text(st.characters(codec="utf-8"), max_size=20)
manifests = st.builds(
    ShardManifest,
    st.integers(0, 9_999),
    epoch=U64,
    owner=st.none() | st.builds(Owner, paths, paths),
    lease_until_ms=U64,
    directory=paths,
    chain_start=U64,
    tail_start=U64,
    view=paths,
    nonce=paths,
)


@given(headers)
def test_headers(header: ChainHeader) -> None:
    data = encode_header(header)
    assert len(data) == HEADER_SIZE
    assert decode_header(data, header.shard, header.seq) == header


@given(headers, st.integers(0, 8 * HEADER_SIZE - 1))
def test_a_flipped_bit_of_a_header_is_noticed(header: ChainHeader, bit: int) -> None:
    data = bytearray(encode_header(header))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Malformed):
        decode_header(bytes(data), header.shard, header.seq)


def test_every_byte_of_an_object_is_checked() -> None:
    """Entries and index rows have checksums of their own; the header has their length."""
    whole = chain_object()
    assert is_whole(whole)
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[at] ^= flip
            assert not is_whole(bytes(damaged)), at
    for length in range(len(whole)):
        assert not is_whole(whole[:length]), length


def test_another_object_is_refused() -> None:
    data = encode_header(ChainHeader(FENCE, 3, 5, 1, bytes(16)))
    for shard, seq in ((3, 6), (4, 5)):
        with pytest.raises(Malformed, match="it is object 5 of shard 3"):
            decode_header(data, shard, seq)


def test_offsets_in_an_object() -> None:
    header = ChainHeader(
        ENTRIES, 0, 0, 1, bytes(16), position=FILE_HEADER_SIZE, entries=2, length=100
    )
    assert header.offset_of(FILE_HEADER_SIZE) == HEADER_SIZE
    assert header.rows_at == HEADER_SIZE + 100
    assert header.size == HEADER_SIZE + 100 + 2 * INDEX_ROW_SIZE


@given(manifests)
def test_manifests(manifest: ShardManifest) -> None:
    assert decode_manifest(encode_manifest(manifest), manifest.shard) == manifest


def test_a_manifest_with_unknown_fields_is_read_and_others_are_not() -> None:
    manifest = ShardManifest(2, 5, Owner("a", "b:1"))
    known = {"version": 1, **asdict(manifest)}
    assert decode_manifest(_sealed({**known, "later": 1}), 2) == manifest
    for change in (
        {"version": 2}, {"version": None}, {"shard": 3}, {"epoch": "5"}, {"epoch": True},
        {"owner": "a"}, {"owner": {"node": "a"}}, {"directory": 1}, {"nonce": None},
        {"chain_start": 1.5},
    ):  # fmt: skip
        with pytest.raises(Malformed):
            decode_manifest(_sealed({**known, **change}), 2)
    for data in (b"", b"[]", b"\xff", b"{", b"[" * 100_000):
        with pytest.raises(Malformed):
            decode_manifest(data, 2)


def _sealed(values: dict[str, object]) -> bytes:
    plain = json.dumps(values, separators=(",", ":"), sort_keys=True)
    return json.dumps({**values, "crc": crc32c(plain.encode())}).encode()


def test_a_flipped_bit_of_a_manifest_is_noticed() -> None:
    manifest = ShardManifest(2, 5, Owner("a", "b:1"), 3, "directory", 7, 9, "view", "nonce")
    whole = encode_manifest(manifest)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with suppress(Malformed):
            assert decode_manifest(bytes(damaged), 2) == manifest, "white space"


@given(st.lists(st.builds(StoredFile, paths, paths, U64)))
def test_directories(files: list[StoredFile]) -> None:
    assert decode_directory(encode_directory(files)) == files


def test_damage_of_a_directory_is_noticed() -> None:
    files = [StoredFile(f"{n}.log", f"files/0000/{n}", n) for n in range(9)]
    whole = encode_directory(files)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        with suppress(Malformed):
            assert decode_directory(bytes(damaged)) == files, "a bit that means nothing"
        with pytest.raises(Malformed):
            decode_directory(whole[:at])
    for found in ({}, {"files": 1}, {"files": [1]}, {"files": [["a", "b"]]}):
        with pytest.raises(Malformed):
            decode_directory(zlib.compress(json.dumps({"version": 1, **found}).encode()))


@given(st.integers(0, 9_999), st.integers(0, 10**12 - 1), U64)
def test_paths(shard: int, number: int, nonce: int) -> None:
    assert seq_of(chain_path(shard, number)) == number
    for path in (file_path(shard, "1.log", number, nonce), directory_path(shard, number, nonce)):
        assert epoch_of(path) == number
    assert seq_of(manifest_path(shard)) is None
    assert epoch_of(chain_path(shard, number)) is None


def test_paths_sort_as_their_numbers() -> None:
    found = [chain_path(1, seq) for seq in (0, 9, 10, 99_999, 10**11)]
    assert found == sorted(found)


def test_the_header_begins_with_the_magic() -> None:
    header = ChainHeader(FENCE, 1, 2, 3, bytes(16))
    assert encode_header(header).startswith(MAGIC)
