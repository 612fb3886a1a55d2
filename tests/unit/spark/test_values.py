"""Avro values have the types of their columns, whatever their logical types are."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructType

from pyspark_quafka import values


@pytest.mark.parametrize(
    ("avro", "spark", "value"),
    [
        ({"type": "int", "logicalType": "time-millis"}, IntegerType(), 61_000),
        ({"type": "long", "logicalType": "time-micros"}, LongType(), 61_000_000),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, LongType(), 1_700_000_000_000),
        (
            {"type": "string", "logicalType": "uuid"},
            StringType(),
            "00000000-0000-0000-0000-0000000000ff",
        ),
    ],
)
def test_logical_types_that_are_no_columns_stay_plain(
    avro: dict[str, str], spark: DataType, value: object
) -> None:
    schema: dict[str, Any] = {
        "type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", avro]}],
    }  # fmt: skip
    plain = {**schema, "fields": [{"name": "f", "type": ["null", avro["type"]]}]}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, plain, {"f": value})
    parsed = values._parsed(schema)
    struct = values._spark_type(parsed)
    assert isinstance(struct, StructType)
    assert struct.fields[0].dataType == spark
    assert values._decoder(parsed, {})(written.getvalue()) == {"f": value}
