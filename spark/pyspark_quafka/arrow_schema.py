"""The Arrow types of a reader's columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyspark_quafka.columns import HEADERS

HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))
_FIELDS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", pa.struct(HEADER_FIELDS))),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns."""
    return pa.schema([pa.field(name, _FIELDS[name]) for name in columns])
