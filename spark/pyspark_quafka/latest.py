"""The latest value of each key, as compaction keeps it, whether or not a topic is compacted."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pyspark_quafka.errors import QuafkaError

_NEEDED = ("topic", "partition", "offset", "timestamp", "key", "value")
_RANK = "__rank"


def latest_by_key(frame: DataFrame) -> DataFrame:
    """The last row of each key and topic, with the frame's columns; without deleted keys.

    Within a partition the greatest offset is the last, as in compaction. If a key is in several
    partitions, because partitions were added, the row with the greatest timestamp counts. A key
    whose last value is null is deleted. Rows without a key are left out.

    Raises:
        QuafkaError: a column that this needs was not read.
    """
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise QuafkaError(f"latest_by_key needs the columns {', '.join(missing)}: read them, too")
    keyed = frame.where(F.col("key").isNotNull())
    in_partition = _first(keyed, ["topic", "key", "partition"], "offset")
    last = _first(in_partition, ["topic", "key"], "timestamp", "partition")
    return last.where(F.col("value").isNotNull()).select(*frame.columns)


def _first(frame: DataFrame, by: list[str], *greatest: str) -> DataFrame:
    """Of the rows that are equal in `by`, the one with the greatest values in other columns.

    Spark drops most of the other rows before it exchanges rows between tasks.
    """
    order = Window.partitionBy(*by).orderBy(*[F.col(name).desc() for name in greatest])
    return frame.withColumn(_RANK, F.row_number().over(order)).where(F.col(_RANK) == 1).drop(_RANK)
