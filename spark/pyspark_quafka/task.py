"""What Spark sends to executors: a scan as an input partition."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_quafka.scan import Scan, run


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(scan)
        self.scan = scan


def read_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task. Spark makes one of its own where there is nothing to read."""
    return run(partition.scan) if isinstance(partition, Task) else iter(())
