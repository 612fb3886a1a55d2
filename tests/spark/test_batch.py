"""`spark.read.format("quafka")` on the PySpark that is installed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import Row

from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record
from tests.support.snapshots import SnapshotMaker, records_of

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int>"
)
"""Of Spark's own Kafka source."""


def read(spark: SparkSession, dest: Path, **options: str) -> DataFrame:
    given = {"subscribe": "orders", **options}
    return spark.read.format("quafka").options(**given).load(str(dest))


def test_rows_are_those_of_spark_s_kafka_source(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    maker.append("orders", [Record(0, 1_500, b"k", b"v", [("a", b"1"), ("b", None)])])
    maker.append("orders", [Record(0, 0, None, None, [])], 1, append_time=2_000)
    maker.publish()
    found = read(spark, dest)
    assert found.schema.simpleString() == KAFKA_SCHEMA
    first, second = sorted(found.collect(), key=lambda row: row.partition)
    assert first == Row(
        key=bytearray(b"k"), value=bytearray(b"v"), topic="orders", partition=0, offset=0,
        timestamp=datetime(1970, 1, 1, 0, 0, 1, 500_000), timestampType=0,  # noqa: DTZ001
    )  # fmt: skip
    assert (second.key, second.value, second.timestampType) == (None, None, 1)
    with_headers = read(spark, dest, INCLUDEHEADERS="TRUE").orderBy("partition").collect()
    assert with_headers[0].headers == [
        Row(key="a", value=bytearray(b"1")),
        Row(key="b", value=None),
    ]
    assert with_headers[1].headers is None


@pytest.mark.long
def test_counts_projections_and_schemas(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest, rows_in_segment=7)
    for number in range(40):
        values = [b"%d" % (number * 25 + at) for at in range(25)]
        maker.append("orders", records_of(values), codec=Codec(number % 5))
    maker.publish()
    everything = read(spark, dest, minPartitions="4")
    assert everything.count() == 1_000
    assert everything.rdd.getNumPartitions() >= 4
    total = everything.agg(F.sum(F.col("value").cast("string").cast("int")))
    assert total.first() == (499_500,)
    assert read(spark, dest, columns="").count() == 1_000
    assert read(spark, dest, columns="offset").agg(F.max("offset")).first() == (999,)
    reader = spark.read.format("quafka").schema("offset long, value binary")
    last = reader.option("subscribe", "orders").load(str(dest)).orderBy(F.desc("offset")).first()
    assert last == Row(offset=999, value=bytearray(b"999"))


@pytest.mark.long
def test_read_committed_has_no_aborted_and_no_open_transaction(
    spark: SparkSession, dest: Path
) -> None:
    maker = SnapshotMaker(dest, rows_in_segment=3)
    for producer_id, value in ((1, b"committed"), (2, b"aborted"), (3, b"open")):
        maker.append("orders", records_of([value] * 5), transactional=True, producer_id=producer_id)
    maker.end_transaction("orders", 1, commit=True)
    maker.end_transaction("orders", 2, commit=False)
    maker.publish()
    level = {"kafka.isolation.level": "read_committed"}
    found = read(spark, dest, **level)
    assert {bytes(row.value) for row in found.collect()} == {b"committed"}
    assert found.count() == read(spark, dest, columns="", **level).count() == 5
    assert read(spark, dest, columns="").count() == read(spark, dest).count() == 15


@pytest.mark.long
def test_a_filter_does_not_leak_into_later_queries(spark: SparkSession, dest: Path) -> None:
    """What PySpark 4.1 to 4.3 do to sources that take filters: the second count is the first's."""
    maker = SnapshotMaker(dest)
    maker.append("orders", records_of([b"x"] * 100), partition=0)
    maker.append("orders", records_of([b"x"] * 50), partition=1)
    maker.publish()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = read(spark, dest)
        for _ in range(2):
            assert found.filter("partition = 0").count() == 100
            assert found.filter("partition = 1").count() == 50
            assert found.filter("partition = 1 and offset < 10").count() == 10
            assert found.count() == 150
        joined = found.filter("partition = 0").union(found.filter("partition = 1"))
        assert joined.count() == 150
        found.createOrReplaceTempView("found")
        both = spark.sql(
            "select (select count(*) from found where partition = 0), "
            "(select count(*) from found where partition = 1), (select count(*) from found)"
        )
        assert both.first() == (100, 50, 150)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.long
def test_nothing_to_read_is_no_row(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    maker.append("orders", records_of([b"x"]))
    maker.publish()
    assert read(spark, dest, startingOffsets='{"orders": {"0": 1}}').collect() == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"startingOffset": "earliest"},
            "(?i)there is no option startingOffset; did you mean startingOffsets",
        ),
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'; allowed is earliest or JSON"),
        ({"mode": "strict"}, "mode is 'strict'; allowed is FAILFAST or PERMISSIVE"),
        ({"subscribe": "order"}, "there is no topic order"),
    ],
)
def test_what_is_wrong_is_told(
    spark: SparkSession, dest: Path, options: dict[str, str], told: str
) -> None:
    maker = SnapshotMaker(dest)
    maker.append("orders", records_of([b"x"]))
    maker.publish()
    with pytest.raises(PySparkException, match=told):
        read(spark, dest, **options).collect()


@pytest.mark.long
def test_a_view_in_sql_and_no_table(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    maker.append("orders", records_of([b"x"]))
    maker.publish()
    of = f"USING quafka OPTIONS (path '{dest}', subscribe 'orders')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW in_sql {of}")
    assert spark.sql("select count(*) from in_sql").first() == (1,)
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW name USING quafka"):
        spark.sql(f"CREATE TABLE in_sql_too {of}")
    spark.sql(f"CREATE TABLE in_sql_too (value binary) {of}")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW name USING quafka"):
            spark.sql("select * from in_sql_too").collect()
    finally:
        spark.sql("DROP TABLE in_sql_too")


@pytest.mark.long
def test_damage_fails_the_query_or_is_left_out(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    for _ in range(3):
        maker.append("orders", records_of([b"x" * 100]))
    maker.publish()
    log = maker.log_of()
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(PySparkException, match="topic orders, partition 0, offset 1: "):
        read(spark, dest).collect()
    left = read(spark, dest, mode="PERMISSIVE").select("offset").orderBy("offset").collect()
    assert [row.offset for row in left] == [0, 2]
