"""Spark on a log in an S3 bucket that is being written: batches, and a stream from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from quafka.cli import main
from quafka_objects.address import open_store
from tests.support.cluster import Cluster
from tests.support.kafka_calls import create_topic, produce
from tests.support.raw_client import RawClient
from tests.support.s3 import S3, s3_server

pytestmark = pytest.mark.long

_NAMES = {
    "AWS_ENDPOINT_URL": "endpoint", "AWS_REGION": "region",
    "AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key",
}  # fmt: skip


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def storage(s3: S3) -> dict[str, str]:
    return {f"s3.{_NAMES[name]}": value for name, value in s3.environment.items()}


@pytest.fixture
def cluster(s3: S3, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(
        tmp_path, ("--store-shards", "3"), env=s3.environment, store=f"{s3.url}/live"
    ) as running:
        yield running


@pytest.fixture
def environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_a_live_bucket(
    spark: SparkSession, cluster: Cluster, storage: dict[str, str], tmp_path: Path
) -> None:
    reader = spark.read.format("quafka").options(**storage)
    with RawClient(cluster.address) as client:
        create_topic(client, "orders")
        produce(client, "orders", b"0", b"1")
        _until_viewed(cluster.store, storage)
        reader = reader.option("subscribe", "orders")
        frame = reader.load(cluster.store)
        assert _values(frame) == [b"0", b"1"]
        assert main(["snapshot", "create", cluster.store]) == 0
        assert main(["snapshot", "verify", cluster.store]) == 0
        produce(client, "orders", b"2")
        assert frame.count() == 2, "a frame does not change"
        assert _values(reader.load(cluster.store)) == [b"0", b"1", b"2"]

        assert _stream(spark, cluster.store, storage, tmp_path) == [b"0", b"1", b"2"]
        produce(client, "orders", b"3")
        cluster.broker.kill()
    assert _stream(spark, cluster.store, storage, tmp_path) == [b"3"]
    assert reader.load(cluster.store).count() == 4, "without a broker"
    cluster.start_broker()


def _values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("offset").collect()]


def _stream(spark: SparkSession, path: str, storage: dict[str, str], folder: Path) -> list[bytes]:
    """What a stream reads until there is no more, from where the last one has ended."""
    options = {"subscribe": "orders", "startingOffsets": "earliest", **storage}
    found: list[bytes] = []
    query = (
        spark.readStream.format("quafka")
        .options(**options)
        .load(path)
        .writeStream.foreachBatch(lambda batch, _: found.extend(_values(batch)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return found


def _until_viewed(url: str, storage: dict[str, str]) -> None:
    """Wait for a view that knows the topic: topics are in the view within seconds."""
    store = open_store(url, {name.removeprefix("s3."): value for name, value in storage.items()})
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        if any(b"orders" in store.read(found.path) for found in store.list_objects("views")):
            return
        time.sleep(0.1)
    message = "no view has the topic"
    raise TimeoutError(message)
