"""Records as files, read back by other programs."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_console.data.messages import files
from quafka_console.data.messages.records import KeptBytes, Outcome, ReadRecord, kept

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=9).map(str.encode)
RECORDS = st.lists(
    st.builds(
        ReadRecord,
        partition=st.integers(0, 9),
        offset=st.integers(0, 1 << 40),
        timestamp=st.integers(0, 1 << 42),
        key=BYTES.map(kept),
        value=BYTES.map(kept),
        headers=st.lists(st.tuples(st.text(max_size=5), BYTES.map(kept)), max_size=3),
    ),
    max_size=5,
)


def file(records: list[ReadRecord], form: str, topic: str = "t") -> bytes:
    return b"".join(files.written(records, topic, form))


def data(kept: KeptBytes | None) -> bytes | None:
    return None if kept is None else kept.data


def from_json(found: Any) -> bytes | None:
    if isinstance(found, dict):
        return base64.b64decode(str(cast("dict[str, Any]", found)["base64"]))
    return None if found is None else str(found).encode()


@given(RECORDS)
def test_json_lines_have_the_records(records: list[ReadRecord]) -> None:
    lines = [json.loads(line) for line in file(records, files.JSONL).split(b"\n") if line]
    assert [
        (line["partition"], line["offset"], line["timestamp"], from_json(line["key"]),
         from_json(line["value"]),
         [(each["name"], from_json(each["value"])) for each in line["headers"]])
        for line in lines
    ] == [
        (each.partition, each.offset, each.timestamp, data(each.key), data(each.value),
         [(name, data(value)) for name, value in each.headers])
        for each in records
    ]  # fmt: skip


def cell(text: str, encoding: str) -> bytes | None:
    text = text.removeprefix("'")
    if not encoding:
        return None
    return base64.b64decode(text) if encoding == "base64" else text.encode()


@given(RECORDS)
def test_csv_has_the_records_and_no_formulas(records: list[ReadRecord]) -> None:
    rows = list(csv.reader(io.StringIO(file(records, files.CSV).decode(), newline="")))
    assert rows[0] == list(files.COLUMNS)
    found = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert [
        (int(row["offset"]), cell(row["key"], row["key_encoding"]),
         cell(row["value"], row["value_encoding"]))
        for row in found
    ] == [(each.offset, data(each.key), data(each.value)) for each in records]  # fmt: skip
    for row in rows:
        assert not any(each[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") for each in row if each)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "＝1"])
def test_cells_are_no_formulas(text: str) -> None:
    assert files.safe_cell(text) == f"'{text}"
    row = file([ReadRecord(0, 0, 0, kept(text.encode()), None, ())], files.CSV, "-2+3")
    found = list(csv.reader(io.StringIO(row.decode(), newline="")))[1]
    assert found[0] == "'-2+3"
    assert found[4] == f"'{text}"
    assert files.safe_cell("1=1") == "1=1"


def test_files_come_in_pieces() -> None:
    records = [ReadRecord(0, n, 0, None, kept(b"x" * 50_000), ()) for n in range(100)]
    pieces = list(files.written(records, "t", files.JSONL))
    assert len(pieces) > 10
    assert max(map(len, pieces)) < 400_000
    aborted = ReadRecord(0, 0, 0, None, None, (), outcome=Outcome.ABORTED)
    assert json.loads(file([aborted], files.JSONL))["transaction"] == "aborted"


def test_parquet_has_the_records() -> None:
    parquet: Any = pq
    records = [
        ReadRecord(2, 7, 1_000, kept(b"k"), kept(b"\xff\x00"), [("h", kept(b"1")), ("n", None)]),
        ReadRecord(2, 8, 2_000, None, None, ()),
    ]
    assert files.PARQUET in files.writable()
    rows = parquet.read_table(io.BytesIO(file(records, files.PARQUET))).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (7, b"k", b"\xff\x00"), (8, None, None)
    ]  # fmt: skip
    assert rows[0]["headers"] == [{"name": "h", "value": b"1"}, {"name": "n", "value": None}]
    assert rows[1]["timestamp"].timestamp() == 2.0
    assert list(rows[0]) == [
        "topic", "partition", "offset", "timestamp", "key", "value", "headers"
    ]  # fmt: skip
    assert parquet.read_table(io.BytesIO(file([], files.PARQUET))).num_rows == 0


def test_parquet_is_offered_only_where_pyarrow_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None: ...

    monkeypatch.setattr(files, "find_spec", missing)
    assert files.writable() == (files.JSONL, files.CSV)
