"""The flights: produced by a client, cut by `quafka snapshot create`, asked by Spark.

Spark's answers are a plain consumer's; every codec's topic is what its consumer saw; and the
notebook of the docs runs.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pyspark_quafka import json_values
from quafka.cli import main as command
from tests.support.cluster import Cluster
from tests.support.confluent import consume
from tests.support.flights import Flight, flights

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SOME = 10_000
NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "flights.py"


@dataclass
class Lake:
    """A snapshot, and what a consumer saw when it was made."""

    path: str
    data: Path
    seen: dict[str, list[Message]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Flights by each codec; a consumer has read them before the cut."""
    folder = tmp_path_factory.mktemp("lake")
    with Cluster(folder, broker_args=("--wal-segment-bytes", str(4 << 20))) as cluster:
        some = list(islice(flights(), SOME))
        topics = {f"flights-{codec}": codec for codec in CODECS}
        for topic, codec in {**topics, "flights": "lz4"}.items():
            produce(cluster.bootstrap, topic, some, codec)
        dest = str(folder / "dest")
        seen = {topic: list(consume(cluster.bootstrap, topic, SOME)) for topic in topics}
        assert command(["snapshot", "create", dest, "--data", str(cluster.data)]) == 0
        yield Lake(dest, cluster.data, seen)


def produce(bootstrap: str, topic: str, some: list[Flight], codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for flight in some:
        headers: list[tuple[str, str | bytes | None]] = [*flight.headers]
        producer.produce(
            topic, flight.value, flight.key, 0, timestamp=flight.timestamp, headers=headers
        )
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_is_what_a_consumer_saw(spark: SparkSession, lake: Lake, codec: str) -> None:
    topic = f"flights-{codec}"
    reader = spark.read.format("quafka").option("subscribe", topic).option("includeHeaders", "true")
    frame = reader.load(lake.path).orderBy("offset")
    columns = "key", "value", "offset", F.unix_millis("timestamp"), "timestampType", "headers"
    found = [
        (
            bytes(row[0]),
            bytes(row[1]),
            row[2],
            row[3],
            row[4],
            [(h.key, bytes(h.value)) for h in row[5]],
        )
        for row in frame.select(*columns).collect()
    ]
    assert found == [
        (m.key(), m.value(), m.offset(), m.timestamp()[1], 0, m.headers()) for m in lake.seen[topic]
    ]


def test_answers_are_a_plain_consumer_s(spark: SparkSession, lake: Lake) -> None:
    delays: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in lake.seen["flights-zstd"]:
        flight = json.loads(message.value() or b"")
        if flight["dep_delay"] is not None:
            delays[flight["carrier"], flight["hour"]].append(flight["dep_delay"])
    frame = spark.read.format("quafka").option("subscribe", "flights-zstd").load(lake.path)
    decoded = json_values(frame, "carrier string, hour int, dep_delay int").select("value.*")
    late = decoded.where("dep_delay is not null").groupBy("carrier", "hour")
    found = late.agg(F.count("*"), F.sum("dep_delay")).collect()
    assert {(row[0], row[1]): (row[2], row[3]) for row in found} == {
        group: (len(minutes), sum(minutes)) for group, minutes in delays.items()
    }


def test_a_range_of_time_is_what_lists_of_offsets_say(spark: SparkSession, lake: Lake) -> None:
    messages = lake.seen["flights-lz4"]
    middle = messages[len(messages) // 2].timestamp()[1]
    first = next(m.offset() or 0 for m in messages if m.timestamp()[1] >= middle)
    reader = (
        spark.read.format("quafka").option("subscribe", "flights-lz4").option("columns", "offset")
    )
    frame = reader.option("startingTimestamp", str(middle)).load(lake.path)
    assert frame.agg(F.min("offset"), F.count("*")).first() == (first, SOME - first)


def test_the_command_writes_parquet(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["snapshot", "create", str(tmp_path), "--data", str(lake.data), "--format", "parquet"]
    assert command(create) == 0
    assert f"{6 * SOME} records" in capsys.readouterr().out
    (file,) = (tmp_path / "parquet").glob("*/topic=flights-gzip/*.parquet")
    table = pq.read_table(str(file))
    assert table.column("offset").to_pylist() == list(range(SOME))
    assert table.column("value").to_pylist() == [m.value() for m in lake.seen["flights-gzip"]]


def test_the_notebook_runs(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    picture = tmp_path / "delays.png"
    monkeypatch.setattr(sys, "argv", ["flights.py", lake.path, str(picture)])
    runpy.run_path(str(NOTEBOOK))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert spark.table("departures").count() == SOME
