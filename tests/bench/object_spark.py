"""Spark on the live log in a store, beside a snapshot of it: `python -m tests.bench object_spark`.

The flights are produced to a log in a folder that is a store, and a snapshot is made. The queries
are those of `tests.bench spark`, each in turns on the snapshot and on the live prefix, whose broker
runs; the end of the live log is in the chain alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from quafka.cli import main as command
from tests.bench import spark as figures
from tests.bench.peers import Server
from tests.support.cluster import Cluster

_VIEW_SECONDS = 4.0


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench object_spark")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--codec", default="lz4")
    parser.add_argument("--only", default="", help="queries whose name contains this")
    options = parser.parse_args(arguments)
    figures.adopt_orphans()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        url = f"file://{folder / 'store'}"
        args = ("--wal-segment-bytes", str(16 << 20), "--wal-object-linger-ms", "50")
        with Cluster(folder, store=url, broker_args=args) as cluster:
            server = Server("quafka", cluster.bootstrap, (cluster.broker.pid,))
            size = figures.produce(server, options)
            time.sleep(_VIEW_SECONDS)  # the newest view has the topic
            assert command(["snapshot", "create", url]) == 0
            with figures.session(folder, "") as spark:
                reads = {
                    "snapshot": _reader(spark, url, {"asOf": "latest"}),
                    "live": _reader(spark, url, {}),
                }
                figures.measure(reads, None, options, size)


def _reader(spark: SparkSession, url: str, at: dict[str, str]) -> figures.Read:
    def read(within: dict[str, str], columns: Sequence[str]) -> DataFrame:
        given = {"subscribe": figures.TOPIC, "columns": ",".join(columns), **at, **within}
        return spark.read.format("quafka").options(**given).load(url)

    return read
