"""Reads one snapshot, or the live log as it is now, for `spark.read`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import Options
from pyspark_quafka.planner import plan
from pyspark_quafka.series import open_as_of
from pyspark_quafka.store import open_store
from pyspark_quafka.task import Task, read_task


class BatchReader(DataSourceReader):
    """Plans on the driver, and reads on executors."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        store = open_store(options.path, options.storage)
        snapshot = open_as_of(store, options.as_of, options.org)
        return [Task(scan) for scan in plan(snapshot, ranges_to_read(snapshot, options), options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
