"""The data source that Spark finds by the name `quafka`: batches and streams over snapshots.

The source has no `pushFilters`: on PySpark 4.1 to 4.3 filters that a source accepts leak into later
queries on the same DataFrame, which then silently miss rows. Spark filters what is read; options
limit what is read at all.

Spark starts a Python process for each step of its planning. Modules that read snapshots are
imported on use, because the schema needs neither numpy nor Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_quafka.columns import COLUMNS, HEADERS
from pyspark_quafka.errors import QuafkaError, QuafkaOptionError
from pyspark_quafka.options import Options, read_columns, read_options
from pyspark_quafka.spark_version import FIRST_WITH_LIMITS, FIRST_WITH_NO_COLUMNS, SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
_CHEAPEST = ("partition",)
_NO_COLUMNS = SPARK_VERSION >= FIRST_WITH_NO_COLUMNS


class DefaultSource(DataSource):
    """`spark.read.format("quafka")`; PySpark finds it by the names of the package and the class."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "quafka"

    def schema(self) -> StructType:
        """The schema of Spark's own Kafka source, or the columns of the option `columns`."""
        columns = read_columns(self.options)
        if not columns and not _NO_COLUMNS:
            columns = _CHEAPEST
        return StructType([StructField(name, _TYPES[name]) for name in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one snapshot."""
        from pyspark_quafka.batch import BatchReader

        return BatchReader(_with_columns(read_options(self.options), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's
        """A reader of a series of snapshots."""
        try:
            options = _with_columns(read_options(self.options, streaming=True), schema)
            return _stream_reader(options)
        except QuafkaError as e:
            return _Refused(e)


def _stream_reader(options: Options) -> DataSourceStreamReader:
    """The stream reader for the PySpark that is installed."""
    if SPARK_VERSION < FIRST_WITH_LIMITS:
        from pyspark_quafka.stream_reader import StreamReader

        return StreamReader(options)
    from pyspark_quafka.limited_stream_reader import LimitedStreamReader

    return LimitedStreamReader(options)


class _Refused(DataSourceStreamReader):
    """Raises the error in a stream's options when Spark first calls the reader.

    If making the reader raised it, PySpark would hide it with an UnboundLocalError of its own.
    """

    def __init__(self, error: QuafkaError) -> None:
        self._error = error

    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's
        self._raise()

    def latestOffset(  # noqa: N802 - PySpark's
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._raise()


def _with_columns(options: Options, schema: StructType) -> Options:
    """The options with the columns of a schema, which may be the user's own."""
    if not schema.fields and not _NO_COLUMNS:
        raise QuafkaOptionError("the schema is empty: PySpark 4.0 would count no rows")
    for field in schema.fields:
        if _TYPES.get(field.name) != field.dataType or not field.nullable:
            allowed = ", ".join(f"{name} {_TYPES[name].simpleString()}" for name in COLUMNS)
            wrong = f"{field.name} {field.dataType.simpleString()}"
            wrong += "" if field.nullable else " not null"
            raise QuafkaOptionError(f"the schema has {wrong}; there are {allowed}")
    return replace(options, columns=tuple(schema.fieldNames()))
