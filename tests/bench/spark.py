"""Spark on a snapshot, beside plain Python, Parquet, and Spark's own Kafka source.

The flights are produced, by the same producer, to Quafka, of which a snapshot is made, and to
Apache Kafka. Every query is run on one core (`local[1]`) by Spark from PyPI; what is counted is the
CPU time of Spark's processes, its Python workers among them. Kafka's own CPU, which a snapshot
does not need, stands apart. `plain Python` is a data source that reads the same snapshot record by
record. Spark's Kafka source comes from Maven Central; what cannot be had is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_quafka.offsets import ranges_to_read
from pyspark_quafka.options import Options, read_options
from pyspark_quafka.parquet import export_parquet
from pyspark_quafka.planner import plan
from pyspark_quafka.snapshot import open_snapshot
from pyspark_quafka.source import DefaultSource
from pyspark_quafka.store import open_store
from pyspark_quafka.task import Task
from quafka.cli import main as command
from quafka_proto.log_format import ENTRY_HEADER_SIZE, INDEX_ROW_SIZE, decode_row
from quafka_proto.record_codec import iter_records
from tests.bench.peers import Server, UnavailableError, _program, kafka, quafka
from tests.support.flights import flights

TOPIC = "flights"
FIRST_TIME = int(time.time() * 1_000) - 3_600_000
"""Record by record a millisecond later: within what Kafka retains."""
_TICKS = os.sysconf("SC_CLK_TCK")
_JARS = Path(sys.prefix) / "spark-kafka"
KAFKA_SOURCES = (pyspark.__version__, "4.0.0")
"""Maven Central has not the source of every release; an older one is better than none."""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>quafka</groupId><artifactId>bench</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>VERSION</version></dependency></dependencies></project>"""
_DELAYS = "carrier string, dep_delay int"

Read = Callable[[dict[str, str], Sequence[str]], DataFrame]
"""Options of a range, and the columns that are wanted; none: a count."""


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="tests.bench spark", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--only", default="", help="queries whose name contains this")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args(arguments)
    adopt_orphans()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        size = _make_snapshot(folder, options)
        started = time.perf_counter()
        exported = export_parquet(str(folder / "dest"), str(folder / "parquet"))
        took = time.perf_counter() - started
        print(
            f"{options.records:,} records, {size / 1e6:.0f} MB of keys and values, "
            f"{options.codec}; exported to Parquet at {exported.read / took / 1e6:.0f} MB/s of log"
        )
        server, jars = None, ""
        if not options.without_kafka:
            try:
                jars = _kafka_source_jars()
                server = stack.enter_context(kafka(folder / "kafka"))
                produce(server, options)
            except UnavailableError as e:
                print(f"without Kafka: {e}")
        spark = stack.enter_context(session(folder, jars))
        reads: dict[str, Read] = {
            "quafka": _quafka(spark, folder),
            "plain Python": _plain(spark, folder),
            "Parquet": _parquet(spark, folder / "parquet" / exported.folder),
        }
        if server is not None:
            reads["Kafka source"] = _kafka(spark, server)
        measure(reads, server, options, size)


# --- data -----------------------------------------------------------------------------------


def _make_snapshot(folder: Path, options: argparse.Namespace) -> int:
    with quafka(folder / "quafka") as server:
        size = produce(server, options)
        data = next((folder / "quafka").glob("**/wal")).parent
        assert command(["snapshot", "create", str(folder / "dest"), "--data", str(data)]) == 0
    return size


def produce(server: Server, options: argparse.Namespace) -> int:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "compression.type": options.codec,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(TOPIC, 10)
    size = 0
    for number, flight in enumerate(islice(cycle(list(flights())), options.records)):
        while True:
            try:
                producer.produce(TOPIC, flight.value, flight.key, 0, timestamp=FIRST_TIME + number)
                break
            except BufferError:
                producer.poll(0.1)
        size += len(flight.key) + len(flight.value)
    if producer.flush(120):
        raise RuntimeError(f"{server.name} did not take everything")
    return size


def _kafka_source_jars() -> str:
    for version in KAFKA_SOURCES:
        folder = _JARS / version
        if any(folder.glob("spark-sql-kafka*.jar")) or _from_maven(version, folder):
            print(f"Spark's Kafka source {version}, in Spark {pyspark.__version__}")
            needed = "spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2"
            return ",".join(str(jar) for jar in folder.iterdir() if jar.name.startswith(needed))
    raise UnavailableError("Maven Central has not Spark's Kafka source")


def _from_maven(version: str, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    pom.write_text(_POM.replace("VERSION", version))
    command = [_program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    return done.returncode == 0


@contextmanager
def session(folder: Path, jars: str) -> Generator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "ERROR")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


# --- who reads ------------------------------------------------------------------------------


def _quafka(spark: SparkSession, folder: Path) -> Read:
    def read(within: dict[str, str], columns: Sequence[str]) -> DataFrame:
        given = {"subscribe": TOPIC, "columns": ",".join(columns), **within}
        return spark.read.format("quafka").options(**given).load(str(folder / "dest"))

    return read


class _PlainReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        snapshot = open_snapshot(open_store(options.path))
        return [Task(scan) for scan in plan(snapshot, ranges_to_read(snapshot, options), options)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Task)
        return _plainly(partition)


def _plainly(task: Task) -> Iterator[tuple[Any, ...]]:
    """Row after row, as one writes a data source."""
    store = open_store(task.scan.path)
    (source,) = task.scan.ranges
    for part in task.scan.slices:
        piece = part.piece
        index = store.read(piece.index, piece.index_offset, piece.rows * INDEX_ROW_SIZE)
        log = store.read(piece.log, piece.log_offset, piece.length)
        for number in range(part.first, part.end):
            row = decode_row(index, INDEX_ROW_SIZE * number)
            if row.topic_hash != source.topic_hash:
                continue
            start = piece.offset_of(row.position) - piece.log_offset + ENTRY_HEADER_SIZE
            for record in iter_records(log[start : start + row.length]):
                if source.start <= record.offset < source.end:
                    when = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                    yield (
                        record.key, record.value, source.topic, source.partition, record.offset,
                        when, 0,
                    )  # fmt: skip


class PlainSource(DataSource):
    """The same snapshot, record by record."""

    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> StructType:
        return DefaultSource(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PlainReader(read_options(self.options))


def _plain(spark: SparkSession, folder: Path) -> Read:
    spark.dataSource.register(PlainSource)

    def read(within: dict[str, str], columns: Sequence[str]) -> DataFrame:
        given = {"subscribe": TOPIC, **within}
        found = spark.read.format("plain").options(**given).load(str(folder / "dest"))
        return found.select(*columns) if columns else found

    return read


def _parquet(spark: SparkSession, folder: Path) -> Read:
    def read(within: dict[str, str], columns: Sequence[str]) -> DataFrame:
        found = spark.read.parquet(str(folder)).drop("headers")
        for name, value in within.items():
            if name.endswith("Timestamp"):
                at = F.timestamp_millis(F.lit(int(value)))
                column = F.col("timestamp")
            else:
                at = F.lit(int(json.loads(value)[TOPIC]["0"]))
                column = F.col("offset")
            found = found.filter(column >= at if name.startswith("starting") else column < at)
        return found.select(*columns) if columns else found

    return read


def _kafka(spark: SparkSession, server: Server) -> Read:
    def read(within: dict[str, str], columns: Sequence[str]) -> DataFrame:
        given = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": TOPIC, **within}
        found = spark.read.format("kafka").options(**given).load()
        return found.select(*columns) if columns else found

    return read


# --- figures --------------------------------------------------------------------------------

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


Query = Callable[[Read, dict[str, str]], None]


def _scan(columns: Sequence[str]) -> Query:
    def run(read: Read, within: dict[str, str]) -> None:
        read(within, columns).write.format("noop").mode("overwrite").save()

    return run


def _count(read: Read, within: dict[str, str]) -> None:
    read(within, ()).count()


def _group_by(read: Read, within: dict[str, str]) -> None:
    value = F.from_json(F.col("value").cast("string"), _DELAYS).alias("flight")
    rows = read(within, ("value",)).select(value).groupBy("flight.carrier")
    rows.agg(F.avg("flight.dep_delay")).collect()


def measure(
    reads: dict[str, Read], server: Server | None, options: argparse.Namespace, size: int
) -> None:
    many = options.records
    first, last = many // 2, many // 2 + many // 100
    offsets = {
        "startingOffsets": json.dumps({TOPIC: {"0": first}}),
        "endingOffsets": json.dumps({TOPIC: {"0": last}}),
    }
    times = {
        "startingTimestamp": str(FIRST_TIME + first),
        "endingTimestamp": str(FIRST_TIME + last),
    }
    queries: dict[str, tuple[Query, dict[str, str], int]] = {
        "full scan": (_scan(ALL), {}, many),
        "value only": (_scan(("value",)), {}, many),
        "count": (_count, {}, many),
        "1% by offsets": (_scan(ALL), offsets, last - first),
        "1% by time": (_scan(ALL), times, last - first),
        "JSON group-by": (_group_by, {}, many),
    }
    print(f"\n{'thousand rows/s of CPU time':28}" + "".join(f"{name:>22}" for name in reads))
    for name, (query, within, rows) in queries.items():
        if options.only not in name:
            continue
        found: dict[str, list[float]] = {}
        for turn in range(options.rounds + 1):
            for reader, read in reads.items():
                before, kafka_before = _cpu_seconds(), server.cpu_seconds() if server else 0.0
                query(read, within)
                spent = _cpu_seconds() - before
                if turn:  # the first compiles
                    found.setdefault(reader, []).append(spent)
                if turn and server and reader == "Kafka source":
                    kafkas = server.cpu_seconds() - kafka_before
                    found.setdefault("its broker", []).append(kafkas)
        base = statistics.median(next(iter(found.values())))
        line = f"{name:28}"
        for reader in reads:
            spent = statistics.median(found[reader])
            line += f"{rows / spent / 1e3:10,.0f} ({spent / base:5.2f} x)"
        if "its broker" in found:
            line += f"   Kafka's own CPU {statistics.median(found['its broker']):.1f} s"
        print(line, flush=True)
        if name == "full scan":
            print(f"{'  MB/s of keys and values':28}" + "".join(
                f"{size / statistics.median(found[reader]) / 1e6:10,.0f}{'':12}" for reader in reads
            ))  # fmt: skip


_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """Workers whose parent ends become this process's children, so that their time is known."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _cpu_seconds() -> float:
    """Of the JVM below this process and of all its workers, also of those that have ended."""
    mine = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    total = sum(int(word) for word in mine[13:15])  # of children that were waited for
    pending = [(pid, True) for pid in _children(os.getpid())]
    while pending:
        pid, direct = pending.pop()
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            continue
        if b"kafka.Kafka" in command:
            continue
        pending += [(child, False) for child in _children(pid)]
        total += sum(int(word) for word in words[11:15])
        if direct and words[0] == "Z":
            os.waitpid(pid, os.WNOHANG)
    return total / _TICKS


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except FileNotFoundError:
            continue
    return found
