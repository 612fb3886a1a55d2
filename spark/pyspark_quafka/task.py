"""A scan as the input partition that Spark sends to executors."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_quafka.scan import Scan, run


class Task(InputPartition):
    """One Spark task."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(scan)
        self.scan = scan


def read_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task. Spark makes its own partition if there is nothing to read."""
    _exclude_imports_from_gc()
    return run(partition.scan) if isinstance(partition, Task) else iter(())


@cache
def _exclude_imports_from_gc() -> None:
    """PySpark's worker collects garbage after each task: 50 ms for the objects of its imports,
    which live on. Frozen, they are no longer visited."""
    gc.freeze()
