"""The stream reader for every supported PySpark: each trigger reads what the newest snapshot adds.

PySpark 4.0 and 4.1 call `latestOffset()` without the query's position. The reader remembers the
position; after a restart it does not know it until the first batch is planned, which then has all
there is. From 4.2 on Spark passes the position: see `limited_stream_reader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_quafka.options import Options
from pyspark_quafka.stream_planner import Json, StreamPlanner, StreamPosition
from pyspark_quafka.task import Task, read_task

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


class StreamReader(DataSourceStreamReader):
    """Remembers its position where Spark does not pass it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None
        self._at: StreamPosition | None = None

    @property
    def planner(self) -> StreamPlanner:
        """Made on first use: Spark sends the reader itself to executors."""
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> Json:  # noqa: N802 - PySpark's
        self._at = self.planner.initial()
        return self._at.to_json()

    def latestOffset(  # noqa: N802 - PySpark's
        self, start: Json | None = None, limit: ReadLimit | None = None
    ) -> Json:
        self._at = self.planner.latest(self._at, self._options.max_offsets)
        return self._at.to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self._at = StreamPosition.from_json(end)
        return [Task(scan) for scan in self.planner.plan(StreamPosition.from_json(start), self._at)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition)
