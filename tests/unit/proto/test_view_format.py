"""Views: what they carry, what they cover, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quafka_proto.chain_format import file_path, part_name
from quafka_proto.errors import Malformed
from quafka_proto.snapshot_format import SegmentPiece, SnapshotManifest
from quafka_proto.view_format import (
    WHOLE,
    View,
    decode_view,
    encode_view,
    view_path,
    zones_path,
)


def piece(number: int, name: str, position: int, length: int) -> SegmentPiece:
    log = file_path(3, name, 9, 1 << 63)
    return SegmentPiece(number, 1, position, length, log, 0, log, 0, 1, zones_path(3, log))


PIECES = [
    piece(1, "000000000001.log", 0, 500),
    piece(2, part_name("000000000002.log", 0), 0, 300),
    piece(2, part_name("000000000002.log", 300), 300, 50),
]
VIEW = View(3, 17, SnapshotManifest("1-x", 5, "c", 40, None, None, PIECES, [], []))


def test_a_round_trip() -> None:
    assert decode_view(encode_view(VIEW), 3) == VIEW


def test_a_view_of_an_earlier_version_has_no_crc() -> None:
    assert decode_view(json.dumps(_without_crc()).encode(), 3) == VIEW


def test_a_flipped_bit_is_refused_or_changes_nothing() -> None:
    whole = encode_view(VIEW)
    refused = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_view(bytes(data), 3) == VIEW
        except Malformed:
            refused += 1
    assert refused > 7 * len(whole)


def _without_crc() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(encode_view(VIEW))
    del values["crc"]
    return values


def test_a_segment_is_covered_wholly_and_its_parts_up_to_their_end() -> None:
    assert VIEW.covered() == {1: WHOLE, 2: 350}


def test_paths_sort_in_the_order_of_writing() -> None:
    paths = [view_path(3, epoch, number) for epoch in (1, 2, 10) for number in (1, 2, 10)]
    assert paths == sorted(paths)
    assert zones_path(3, "files/0003/a") == "zones/0003/a"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "?"}, "lacks"),
        ({"version": 2}, "version 2; known is 1"),
        ({"shard": 4}, "shard 4"),
        ({"from": -1}, "beginning of the chain"),
        ({"from": "1"}, "beginning of the chain"),
        ({"snapshot": {}}, "snapshot"),
        ({"snapshot": "{}"}, "manifest"),
        ({"snapshot": "\ud800"}, "UTF-8"),
        ({"crc": 1}, "CRC"),
    ],
)
def test_what_is_refused(change: dict[str, Any], reason: str) -> None:
    values = _without_crc() | change
    with pytest.raises(Malformed, match=reason):
        decode_view(json.dumps(values).encode(), 3)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff"])
def test_what_is_no_view(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_view(data, 3)


def test_a_piece_elsewhere_is_refused() -> None:
    data = json.dumps(_without_crc()).replace("files/0003", "secret/003").encode()
    with pytest.raises(Malformed, match="secret"):
        decode_view(data, 3)
