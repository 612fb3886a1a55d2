"""Views, decoded values, and Parquet that others adopt."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import Row

from pyspark_quafka import avro_values, export_parquet, json_values, latest_by_key, views
from pyspark_quafka.errors import QuafkaError, QuafkaOptionError
from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record
from tests.support.snapshots import SnapshotMaker, records_of

pytestmark = pytest.mark.long


def test_a_view_for_each_topic_of_one_snapshot(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    maker.append("orders.eu", records_of([b"x"] * 3))
    maker.append("payments", records_of([b"y"] * 2))
    maker.publish()
    assert views(spark, str(dest)) == {"orders.eu": "orders_eu", "payments": "payments"}
    maker.append("payments", records_of([b"z"]))
    maker.publish()  # the views go on showing what they showed
    joined = spark.sql("select count(*) from orders_eu join payments using (offset)")
    assert joined.first() == (2,)
    assert spark.table("payments").count() == 2
    assert views(spark, str(dest), subscribePattern="pay.*") == {"payments": "payments"}
    assert spark.table("payments").count() == 3
    maker.append("orders_eu", records_of([b"x"]))
    maker.publish()
    with pytest.raises(QuafkaOptionError, match="duplicate names"):
        views(spark, str(dest))


def keyed(*pairs: tuple[bytes | None, bytes | None], timestamp: int = 1_000) -> list[Record]:
    return [Record(0, timestamp, key, value, []) for key, value in pairs]


def test_the_latest_value_of_each_key(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    maker.append("accounts", keyed((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (None, b"no key")))
    maker.append("accounts", keyed((b"a", b"2"), (b"b", None), (b"", b"empty")))
    maker.append("accounts", keyed((b"d", b"1"), (b"a", b"old"), timestamp=500), partition=1)
    for last, commit in ((b"committed", True), (b"aborted", False)):
        records = keyed((b"c", last))
        maker.append("accounts", records, transactional=True, producer_id=7)
        maker.end_transaction("accounts", 7, commit=commit)
    maker.publish()
    assert views(spark, str(dest), compacted=True) == {"accounts": "accounts"}
    table = spark.table("accounts")
    assert table.columns[:2] == ["key", "value"]
    found = {bytes(row.key): (bytes(row.value), row.partition) for row in table.collect()}
    assert found == {
        b"a": (b"2", 0), b"c": (b"committed", 0), b"d": (b"1", 1), b"": (b"empty", 0)
    }  # fmt: skip
    views(spark, str(dest), compacted=True, isolation="read_uncommitted")
    assert spark.sql("select value from accounts where key = 'c'").first() == (b"aborted",)
    with pytest.raises(QuafkaError, match="columns topic, partition, offset"):
        latest_by_key(spark.table("accounts").select("key", "value"))


def test_json_with_a_schema_and_inferred(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    values = [json.dumps({"a": n, "b": {"c": [str(n)]}}).encode() for n in range(3)]
    maker.append("orders", records_of([*values, b"no json", None]))
    maker.publish()
    views(spark, str(dest))
    frame = spark.table("orders").orderBy("offset")
    given = json_values(frame, "a int, b struct<c: array<string>>").select("value.a").collect()
    assert [row.a for row in given] == [0, 1, 2, None, None]
    inferred = json_values(frame.where("offset < 3")).select("value.*").collect()
    assert inferred[2] == Row(a=2, b=Row(c=["2"]))


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
"""With the field `note` in a later version."""
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def avro(schema: object, record: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, record)  # type: ignore[arg-type]
    return out.getvalue()


def test_avro_bare_and_as_confluent_writes_it(spark: SparkSession, dest: Path) -> None:
    maker = SnapshotMaker(dest)
    order: dict[str, object] = {"id": "7d3c", "amount": 2.5, "tags": ["a"], "at": 1_000}
    later = {**AVRO, "fields": [*AVRO["fields"], NOTE]}
    old, new = avro(AVRO, order), avro(later, {**order, "amount": None, "note": "n"})
    maker.append("bare", records_of([old, None]))
    maker.append("framed", records_of([b"\0" + (5).to_bytes(4, "big") + old]))
    maker.append("framed", records_of([b"\0" + (9).to_bytes(4, "big") + new]))
    maker.publish()
    views(spark, str(dest))
    first, second = avro_values(spark.table("bare"), json.dumps(AVRO)).orderBy("offset").collect()
    assert (first.value.id, first.value.amount, first.value.tags) == ("7d3c", 2.5, ["a"])
    assert second.value is None
    found = avro_values(spark.table("framed"), {5: AVRO, 9: later}).orderBy("offset")
    rows = found.select("value.amount", "value.note").collect()
    assert rows == [Row(amount=2.5, note=None), Row(amount=None, note="n")]


@pytest.fixture
def exported(dest: Path, tmp_path: Path) -> Path:
    """A folder with a topic of two partitions and some headers, and another topic."""
    maker = SnapshotMaker(dest, rows_in_segment=11)
    for number in range(30):
        headers: list[tuple[str, bytes | None]] = [("n", b"%d" % number)] if number % 2 else []
        record = Record(0, 1_000 + number, b"k", b"%d" % number, headers)
        maker.append("orders", [record, record], number % 2, codec=Codec(number % 5))
        maker.append("others", records_of([b"x"]))
    maker.publish(rewritten=True)
    done = export_parquet(str(dest), str(tmp_path / "parquet"))
    assert (done.records, len(done.files)) == (90, 3)
    assert (tmp_path / "parquet" / done.folder / "_SUCCESS").exists()
    return tmp_path / "parquet" / done.folder


def test_parquet_has_what_the_snapshot_has(spark: SparkSession, dest: Path, exported: Path) -> None:
    options = {"subscribePattern": ".*", "includeHeaders": "true"}
    expected = spark.read.format("quafka").options(**options).load(str(dest))
    found = spark.read.parquet(str(exported)).select(expected.columns)
    assert found.exceptAll(expected).count() == expected.exceptAll(found).count() == 0
    for path in exported.glob("topic=*/*.parquet"):
        offsets = pq.read_table(str(path)).column("offset").to_pylist()
        assert offsets == list(range(30))


def test_iceberg_adopts_the_files(exported: Path, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog  # takes a second, which each worker would spend

    catalog = SqlCatalog(
        "test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/iceberg"
    )
    catalog.create_namespace("lake")
    files = [str(path) for path in sorted((exported / "topic=orders").glob("*.parquet"))]
    table = catalog.create_table("lake.orders", schema=pq.read_schema(files[0]))
    table.add_files(files)
    rows = table.scan(row_filter="partition = 1 and offset >= 28").to_arrow().to_pylist()
    assert sorted(row["offset"] for row in rows) == [28, 29]
    assert rows[0]["headers"] == [{"key": "n", "value": b"29"}]
    assert table.scan().to_arrow().num_rows == 60


def test_delta_adopts_the_files(exported: Path) -> None:
    folder = str(exported / "topic=orders")
    convert_to_deltalake(folder)
    table = DeltaTable(folder).to_pyarrow_table(filters=[("offset", ">=", 28)])
    assert sorted(table.column("offset").to_pylist()) == [28, 28, 29, 29]
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 60
