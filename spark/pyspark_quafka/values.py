"""JSON and Avro values as columns.

JSON goes through Spark's own `from_json`, Avro through fastavro (`quafka[avro]`): Spark's
`from_avro` needs a jar that fits the version of Spark, and does not know the five bytes that
Confluent's serializers put in front.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_quafka.errors import QuafkaError

Schema = Mapping[str, Any] | str
"""An Avro schema as JSON text, or parsed."""

_SAMPLE = 1_000
_CONFLUENT_MAGIC, _CONFLUENT_SIZE = 0, 5


def json_values(
    frame: DataFrame, schema: StructType | str | None = None, column: str = "value"
) -> DataFrame:
    """The frame with its JSON values as a struct; null if a value is not JSON.

    Without a schema, one is inferred from the first thousand values, which reads them.
    """
    if schema is None:
        schema = _inferred(frame, column)
    return frame.withColumn(column, F.from_json(F.col(column).cast("string"), schema))


def _inferred(frame: DataFrame, column: str) -> StructType:
    rows = frame.select(F.col(column).cast("string")).where(F.col(column).isNotNull())
    texts = [cast("str", row[0]) for row in rows.limit(_SAMPLE).collect()]
    if not texts:
        raise QuafkaError(f"there is no {column} to infer a schema from; pass one")
    spark = frame.sparkSession
    return spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema


def avro_values(
    frame: DataFrame, schema: Schema | Mapping[int, Schema], column: str = "value"
) -> DataFrame:
    """The frame with its Avro values decoded.

    `schema` is the writer's schema of bare values. Values by Confluent's serializers begin with the
    id of their schema: then `schema` maps ids to schemas, and the fields of the schema with the
    highest id are the columns.
    """
    by_id = _by_id(schema)
    reader = _parsed(by_id[max(by_id)] if by_id else cast("Schema", schema))
    decode = _decoder(reader, {number: _parsed(each) for number, each in by_id.items()})
    decoded = cast("Callable[[Column], Column]", F.udf(decode, _spark_type(reader), useArrow=False))
    return frame.withColumn(column, decoded(F.col(column)))


def _by_id(schema: Schema | Mapping[int, Schema]) -> dict[int, Schema]:
    if isinstance(schema, str) or not all(isinstance(key, int) for key in schema):
        return {}
    return dict(cast("Mapping[int, Schema]", schema))


def _parsed(schema: Schema) -> Any:
    text = isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"')
    return _known_logical(json.loads(cast("str", schema)) if text else schema)


def _known_logical(schema: Any) -> Any:
    """The schema without the logical types that fastavro decodes to objects that fit no column.

    Their values keep their Avro types: a UUID stays text, a time of day a number.
    """
    if isinstance(schema, list):
        return [_known_logical(each) for each in cast("list[Any]", schema)]
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        return {
            name: _known_logical(value)
            for name, value in fields.items()
            if name != "logicalType" or value == "decimal" or value in _LOGICAL
        }
    return schema


def _decoder(reader: Any, writers: dict[int, Any]) -> Callable[[bytes | None], Any]:
    def decode(value: bytes | None) -> Any:
        import fastavro

        if value is None:
            return None
        data, writer = io.BytesIO(value), reader
        if writers:
            head = data.read(_CONFLUENT_SIZE)
            number = int.from_bytes(head[1:], "big")
            if len(head) < _CONFLUENT_SIZE or head[0] != _CONFLUENT_MAGIC or number not in writers:
                raise ValueError(
                    f"the value begins with {head!r}, which is not a schema id in {writers}"
                )
            writer = writers[number]
        return cast("Any", fastavro).schemaless_reader(data, writer, reader)

    return decode


# --- Avro's types to Spark's ----------------------------------------------------------------

_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: dict[str, DataType] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
}


def _spark_type(schema: Any) -> DataType:
    """The Spark type of values that fastavro decodes by this schema."""
    if isinstance(schema, list):
        return _of_union(cast("list[Any]", schema))
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise QuafkaError(f"the Avro type {schema!r} cannot be a column")
        return _PRIMITIVES[schema]
    fields = cast("dict[str, Any]", schema)
    kind, logical = fields["type"], fields.get("logicalType")
    if logical == "decimal":
        return DecimalType(fields["precision"], fields.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[cast("str", logical)]
    if kind == "record":
        return StructType(
            [StructField(f["name"], _spark_type(f["type"])) for f in fields["fields"]]
        )
    if kind == "array":
        return ArrayType(_spark_type(fields["items"]))
    if kind == "map":
        return MapType(StringType(), _spark_type(fields["values"]))
    return _spark_type(kind)


def _of_union(schemas: list[Any]) -> DataType:
    """A union with null is a nullable column; other unions have no type in Spark."""
    others = [each for each in schemas if each != "null"]
    if len(others) != 1:
        raise QuafkaError(f"a union of {len(others)} Avro types cannot be a column")
    return _spark_type(others[0])
