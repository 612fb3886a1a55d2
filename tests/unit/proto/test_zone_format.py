"""Zones files: zones agree with their index rows; damaged files are refused."""

from __future__ import annotations

import pytest

from quafka_proto.errors import Malformed
from quafka_proto.log_format import IndexRow, encode_row
from quafka_proto.zone_format import decode_zones, encode_zones, zones_of


def _row(topic: bytes, offset: int, count: int, timestamp: int, position: int) -> bytes:
    return encode_row(
        IndexRow(1, offset, position, topic * 16, timestamp, -1, -1, 1, 0, 0, count, 100, -1)
    )


def test_zones_agree_with_their_rows() -> None:
    rows = b"".join(
        (
            _row(b"b", 0, 2, 5, 32),
            _row(b"a", 10, 3, 9, 200),
            _row(b"a", 13, 1, 7, 400),
            _row(b"b", 2, 1, -1, 600),
        )
    )
    zones = zones_of(rows)
    assert [(z.topic_hash[:1], z.first_offset, z.end_offset, z.max_timestamp) for z in zones] == [
        (b"a", 10, 14, 9),
        (b"b", 0, 3, 5),
    ]
    assert [(z.batches, z.records, z.bytes, z.first_row, z.end_row) for z in zones] == [
        (2, 4, 200, 1, 3),
        (2, 3, 200, 0, 4),
    ]
    assert decode_zones(encode_zones(zones)) == zones


def test_zones_that_are_not_whole_are_refused() -> None:
    data = encode_zones(zones_of(_row(b"a", 0, 1, 1, 32)))
    for at in range(len(data)):
        with pytest.raises(Malformed):
            decode_zones(data[:at])
        with pytest.raises(Malformed):
            decode_zones(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
