"""Records as files: JSON lines, CSV, Parquet. Pure.

In JSON lines and CSV, keys and values that are UTF-8 are text, and others base64.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from quafka_console.data.messages.records import KeptBytes, ReadRecord

JSONL, CSV, PARQUET = "jsonl", "csv", "parquet"
MEDIA_TYPES = {
    JSONL: "application/x-ndjson",
    CSV: "text/csv; charset=utf-8",
    PARQUET: "application/vnd.apache.parquet",
}
COLUMNS = (
    "topic", "partition", "offset", "timestamp", "key", "key_encoding", "value", "value_encoding",
    "headers",
)  # fmt: skip
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
_CHUNK = 256 << 10


def writable() -> Sequence[str]:
    """Those that this installation can write: Parquet needs pyarrow."""
    return (JSONL, CSV, PARQUET) if find_spec("pyarrow") else (JSONL, CSV)


def written(records: Sequence[ReadRecord], topic: str, form: str) -> Iterator[bytes]:
    """The file in pieces, each of which takes some milliseconds; Parquet is one piece."""
    if form == PARQUET:
        yield _parquet(records, topic)
        return
    out = io.StringIO(newline="")
    lines = csv.writer(out)
    if form == CSV:
        lines.writerow(COLUMNS)
    for record in records:
        if form == CSV:
            lines.writerow([safe_cell(each) for each in _row(record, topic)])
        else:
            out.write(json.dumps(_object(record, topic), ensure_ascii=False) + "\n")
        if out.tell() > _CHUNK:
            yield out.getvalue().encode()
            out.seek(0)
            out.truncate()
    yield out.getvalue().encode()


def _object(record: ReadRecord, topic: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": _headers(record),
        **({"transaction": str(record.outcome)} if record.outcome else {}),
    }


def _json(kept: KeptBytes | None) -> Any:
    """Null, a string, or {"base64": ...}."""
    encoding, text = _text(kept)
    return {encoding: text} if encoding == "base64" else text if encoding else None


def _text(kept: KeptBytes | None) -> tuple[str, str]:
    """An encoding, "" for null, and the text in it."""
    if kept is None:
        return "", ""
    try:
        return "utf-8", kept.data.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(kept.data).decode()


def _headers(record: ReadRecord) -> list[dict[str, Any]]:
    return [{"name": name, "value": _json(value)} for name, value in record.headers]


def _row(record: ReadRecord, topic: str) -> list[str]:
    key, value = _text(record.key), _text(record.value)
    return [
        topic, str(record.partition), str(record.offset), str(record.timestamp), key[1], key[0],
        value[1], value[0], json.dumps(_headers(record), ensure_ascii=False),
    ]  # fmt: skip


def safe_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula.

    An apostrophe precedes what begins as one, and what begins with an apostrophe, so that removing
    a first apostrophe restores the text.
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text


def _parquet(records: Sequence[ReadRecord], topic: str) -> bytes:
    """Keys, values and headers as they are, in binary columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow: Any = pa
    parquet: Any = pq
    header = arrow.struct([("name", arrow.string()), ("value", arrow.binary())])
    columns: dict[str, tuple[Any, list[Any]]] = {
        "topic": (arrow.string(), [topic] * len(records)),
        "partition": (arrow.int32(), [each.partition for each in records]),
        "offset": (arrow.int64(), [each.offset for each in records]),
        "timestamp": (arrow.timestamp("ms", "UTC"), [each.timestamp for each in records]),
        "key": (arrow.binary(), [_bytes(each.key) for each in records]),
        "value": (arrow.binary(), [_bytes(each.value) for each in records]),
        "headers": (
            arrow.list_(header),
            [
                [{"name": name, "value": _bytes(value)} for name, value in each.headers]
                for each in records
            ],
        ),
    }
    arrays = {name: arrow.array(values, kind) for name, (kind, values) in columns.items()}
    out = io.BytesIO()
    parquet.write_table(arrow.table(arrays), out)
    return out.getvalue()


def _bytes(kept: KeptBytes | None) -> bytes | None:
    return None if kept is None else kept.data
