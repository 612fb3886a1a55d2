"""The columns that a reader gets, as Arrow has them: those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

HEADERS = "headers"
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
COLUMNS = tuple(_FIELDS)
"""All of them, in their order; `headers` is only there with `includeHeaders`."""
FROM_BATCH_HEADERS = frozenset({"topic", "partition", "offset", "timestampType"})
"""What is known without looking at records."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns."""
    return pa.schema([pa.field(name, _FIELDS[name]) for name in columns])
