"""What Spark sends to executors: a scan as an input partition."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

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
    _let_collections_be_short()
    return run(partition.scan) if isinstance(partition, Task) else iter(())


@cache
def _let_collections_be_short() -> None:
    """PySpark's worker collects garbage behind each task: 50 ms for what its imports have made,
    which is no garbage and is not looked at any more."""
    gc.freeze()
