"""Parts of a layout read the same bytes as the whole, and the layouts are those documented."""

from __future__ import annotations

import numpy as np
import pytest

from quafka_proto.layout import Layout
from quafka_proto.log_format import (
    CHECKED_SIZE,
    ENTRY_HEADER_SIZE,
    FILE_HEADER_SIZE,
    INDEX_ROW,
    INDEX_ROW_SIZE,
    ROW_CRC_AT,
    entry_leader_epoch,
)
from quafka_proto.records import BATCH_HEADER, BATCH_HEADER_SIZE, LENGTH_FROM, PATCHED_SIZE
from quafka_proto.zone_format import ZONE, ZONE_SIZE, ZONES_HEADER_SIZE

LAYOUT = Layout(magic="2s", small="b", unused="3x", number="i", wide="Q", key="4s", crc="I")
VALUES = (b"QK", -3, -70_000, 1 << 40, b"\x01\x02\x03\x04", 0xDEADBEEF)
DATA = LAYOUT.whole.pack(*VALUES)


def test_fields_lie_side_by_side() -> None:
    assert LAYOUT.size == len(DATA) == 26
    assert [LAYOUT.offset(field) for field in ("magic", "small", "number", "crc")] == [0, 2, 6, 22]
    assert LAYOUT.end("number") == LAYOUT.offset("wide") == 10
    with pytest.raises(KeyError):
        LAYOUT.offset("other")


def test_a_part_reads_its_fields_and_needs_no_more_bytes() -> None:
    part = LAYOUT.part("small", "wide")
    assert part.unpack_from(DATA) == (-3, 1 << 40)
    assert part.size == LAYOUT.end("wide")
    assert LAYOUT.before("crc").unpack_from(DATA) == VALUES[:-1]
    assert LAYOUT.before("crc").size == LAYOUT.offset("crc")


def test_a_part_of_each_walks_over_whole_structures() -> None:
    part = LAYOUT.part_of_each("number", "crc")
    assert list(part.iter_unpack(DATA * 3)) == [(-70_000, 0xDEADBEEF)] * 3


def test_joined_fields_are_read_as_bytes() -> None:
    joined = LAYOUT.joined("owner", "number", "key")
    assert joined.size == LAYOUT.size
    assert joined.part("owner", "crc").unpack_from(DATA) == (DATA[6:22], 0xDEADBEEF)


def test_columns_hold_what_the_whole_reads() -> None:
    columns = np.frombuffer(DATA * 2, np.dtype(LAYOUT.columns))
    assert columns.dtype.itemsize == LAYOUT.size
    fields = ("magic", "small", "number", "wide", "key", "crc")
    assert tuple(columns[field].tolist()[1] for field in fields) == VALUES


def test_the_layouts_of_batches_entries_rows_and_zones_are_those_documented() -> None:
    assert BATCH_HEADER.whole.format == ">qiibIhiqqqhii"
    assert (BATCH_HEADER_SIZE, PATCHED_SIZE, LENGTH_FROM) == (61, 21, 12)
    assert BATCH_HEADER.offset("max_timestamp") == 35
    assert INDEX_ROW.whole.format == ">QQQ16sqqiIIIIIhHi4xI"
    assert (INDEX_ROW_SIZE, ROW_CRC_AT, INDEX_ROW.offset("org_id")) == (96, 92, 60)
    assert (FILE_HEADER_SIZE, ENTRY_HEADER_SIZE, CHECKED_SIZE) == (32, 68, 89)
    assert BATCH_HEADER.offset("leader_epoch") == 12
    assert entry_leader_epoch(bytes(80) + b"\xff\xff\xff\xfe" + bytes(5)) == -2
    assert ZONE.whole.format == ">16sIIIIQQQQqII8x"
    assert (ZONE_SIZE, ZONES_HEADER_SIZE) == (88, 20)
