"""Reads by Spark's code, without Spark: scans of the log in the object store, in a thread."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_quafka.errors import QuafkaError
from pyspark_quafka.options import Options, read_options
from pyspark_quafka.scan import Scan, run
from pyspark_quafka.store import open_store
from quafka_objects.errors import ObjectStoreError
from quafka_objects.store import ObjectStore
from tests.sim.clients.fetching import Found
from tests.sim.clients.job import Place

URL = "s3://simulated/log"
"""Where a simulation's log is, if it is in a store."""
RETRIED = (QuafkaError, ObjectStoreError)
"""Failures after which Spark runs a task again."""


def open_log() -> ObjectStore:
    """The store as this client sees it."""
    return open_store(URL)


def options_of(topics: Iterable[str], *, streaming: bool = False, **more: str) -> Options:
    """A reader's options for some topics."""
    given = {"path": URL, "subscribe": ",".join(topics), "columns": "topic,partition,offset,value"}
    return read_options({**given, **more}, streaming=streaming)


def rows_of(scans: Iterable[Scan]) -> dict[Place, Found]:
    """The records of some scans, by partition, in the order of their offsets."""
    found: dict[Place, Found] = {}
    for scan in scans:
        for batch in run(scan):
            for row in batch.to_pylist():
                place = row["topic"], row["partition"]
                found.setdefault(place, []).append((row["offset"], (row["value"] or b"").decode()))
    return {place: sorted(records) for place, records in found.items()}
