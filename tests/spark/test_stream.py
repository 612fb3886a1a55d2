"""`readStream` over snapshots that are made while it runs: every offset once, also on restarts."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.snapshots import SnapshotMaker, records_of

pytestmark = pytest.mark.long

LIMITS = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2)
"""Spark tells a Python source where the query is and how much it wants from 4.2 on."""


Rows = list[tuple[int, int, bytes]]


class Query:
    """A stream that is run by AvailableNow: each run goes on from the checkpoint.

    What it writes is kept by batch id, as exactly-once sinks do: a batch that runs again takes the
    place of its first run.
    """

    def __init__(self, spark: SparkSession, dest: Path, folder: Path) -> None:
        self._spark = spark
        self._dest = dest
        self._folder = folder
        self._written: dict[int, Rows] = {}

    def run(self, **options: str) -> list[int]:
        """The sizes of its batches."""
        given = {"subscribe": "orders", "startingOffsets": "earliest", **options}
        sizes: list[int] = []
        stream = self._spark.readStream.format("quafka").options(**given).load(str(self._dest))

        def write(batch: DataFrame, batch_id: int) -> None:
            rows = [(row.partition, row.offset, bytes(row.value)) for row in batch.collect()]
            sizes.append(len(rows))
            self._written[batch_id] = rows

        query = (
            stream.select("partition", "offset", "value")
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return [size for size in sizes if size]

    def rows(self) -> Rows:
        """All that was written."""
        return sorted(row for rows in self._written.values() for row in rows)

    def forget_last_commit(self) -> None:
        """As if Spark had died while it ran the last batch."""
        commits = sorted(
            (self._folder / "checkpoint" / "commits").glob("[0-9]*"),
            key=lambda path: int(path.name),
        )
        commits[-1].unlink()
        commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)


def append(maker: SnapshotMaker, first: int, until: int) -> None:
    for number in range(first, until):
        maker.append("orders", records_of([b"%d" % number]), partition=number % 2)


def expected(until: int) -> Rows:
    return sorted((number % 2, number // 2, b"%d" % number) for number in range(until))


def test_every_offset_once_over_snapshots_and_restarts(
    spark: SparkSession, dest: Path, tmp_path: Path
) -> None:
    maker = SnapshotMaker(dest)
    query = Query(spark, dest, tmp_path)
    append(maker, 0, 40)
    maker.publish()
    assert sum(query.run()) == 40
    maker.publish()  # nothing new in it
    assert query.run() == []
    append(maker, 40, 100)
    maker.publish()
    assert sum(query.run()) == 60
    assert query.rows() == expected(100)
    query.forget_last_commit()  # the batch is run again, with the same offsets
    append(maker, 100, 110)
    maker.publish()
    sizes = query.run()
    if not LIMITS:  # a run is one batch
        sizes += query.run()
    assert sizes == [60, 10]
    assert query.rows() == expected(110)


@pytest.mark.skipif(not LIMITS, reason="PySpark has no limits before 4.2")
def test_a_limit_to_each_batch(spark: SparkSession, dest: Path, tmp_path: Path) -> None:
    maker = SnapshotMaker(dest)
    query = Query(spark, dest, tmp_path)
    append(maker, 0, 100)
    maker.publish()
    sizes = query.run(maxOffsetsPerTrigger="30")
    assert sum(sizes) == 100
    assert max(sizes) <= 30
    append(maker, 100, 150)
    maker.publish()
    assert max(query.run(maxOffsetsPerTrigger="30")) <= 30
    assert query.rows() == expected(150)


def test_a_topic_that_was_made_again_is_told(
    spark: SparkSession, dest: Path, tmp_path: Path
) -> None:
    maker = SnapshotMaker(dest)
    query = Query(spark, dest, tmp_path)
    append(maker, 0, 10)
    maker.publish()
    query.run()
    maker.recreate("orders")
    append(maker, 100, 104)
    maker.publish()
    with pytest.raises((StreamingQueryException, PySparkException), match="re-created"):
        query.run()


def test_a_wrong_option_is_told(spark: SparkSession, dest: Path, tmp_path: Path) -> None:
    SnapshotMaker(dest)
    told = "endingOffsets is for batches only"
    with pytest.raises((StreamingQueryException, PySparkException), match=told) as found:
        Query(spark, dest, tmp_path).run(endingOffsets="latest")
    assert "UnboundLocalError" not in str(found.value)


def test_read_committed_stops_at_an_open_transaction_and_goes_on(
    spark: SparkSession, dest: Path, tmp_path: Path
) -> None:
    maker, query = SnapshotMaker(dest), Query(spark, dest, tmp_path)
    level = {"isolation": "read_committed"}
    maker.append("orders", records_of([b"before"]))
    for producer_id, value in ((1, b"committed"), (2, b"aborted")):
        maker.append("orders", records_of([value]), transactional=True, producer_id=producer_id)
    maker.end_transaction("orders", 2, commit=False)
    maker.publish()
    query.run(**level)
    assert query.rows() == [(0, 0, b"before")]
    maker.end_transaction("orders", 1, commit=True)
    maker.append("orders", records_of([b"after"]))
    maker.publish()
    query.run(**level)
    assert query.rows() == [(0, 0, b"before"), (0, 1, b"committed"), (0, 5, b"after")]
