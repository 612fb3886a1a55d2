"""What Spark's reader gets of a snapshot at an isolation level, without Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import read_options
from pyspark_quafka.planner import plan
from pyspark_quafka.scan import run
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.store import open_store
from tests.support.transactions import Row


def snapshot_rows(dest: Path, snapshot_id: str, topic: str, level: str) -> list[Row]:
    """All rows of a topic, sorted."""
    options = read_options({"path": str(dest), "subscribe": topic, "isolation": level})
    found = open_snapshot(open_store(options.path), snapshot_id)
    return sorted(
        (row["partition"], row["offset"], row["value"].decode())
        for scan in plan(found, ranges_to_read(found, options), options)
        for batch in run(scan)
        for row in batch.to_pylist()
    )
