"""A temporary view for each topic, all of the same snapshot."""

from __future__ import annotations

import os
import re
from os import PathLike

from pyspark.sql import SparkSession

from pyspark_quafka.errors import QuafkaOptionError
from pyspark_quafka.latest import latest_by_key
from pyspark_quafka.live import LiveSnapshot
from pyspark_quafka.offsets import subscribed
from pyspark_quafka.options import read_options
from pyspark_quafka.series import open_as_of
from pyspark_quafka.store import open_store


def views(
    spark: SparkSession, path: str | PathLike[str], *, compacted: bool = False, **options: str
) -> dict[str, str]:
    """Make a temporary view of every topic of a snapshot; returns the names of the views by topic.

    A view has its topic's name, with `_` for characters that SQL requires to be quoted. Options are
    those of the reader: `subscribePattern` for some topics only, `includeHeaders`, `asOf`, ... All
    views read the same snapshot, so a join of topics sees them as of one instant. Views of a live
    log in an object store read it as it is at each query, each view separately.

    With `compacted`, a view has the latest value of each key (`latest_by_key`) of committed
    records, whether or not the broker has compacted the topic.

    Raises:
        QuafkaOptionError: the views of two topics would have the same name.
        SnapshotNotFoundError: no snapshot exists.
    """
    path = os.fspath(path)
    given = {"path": path, **options}
    if not {name.lower() for name in options} & {"subscribe", "subscribepattern"}:
        given["subscribePattern"] = ".*"
    checked = read_options(given)
    store = open_store(path, checked.storage)
    snapshot = open_as_of(store, checked.as_of, checked.org)
    topics = list(dict.fromkeys(topic.name for topic, _ in subscribed(snapshot, checked)))
    names = {topic: re.sub(r"\W", "_", topic, flags=re.ASCII) for topic in topics}
    if len(set(names.values())) < len(topics):
        raise QuafkaOptionError(
            f"views of {', '.join(topics)} would have duplicate names; choose topics "
            "by subscribe or subscribePattern"
        )
    replaced = ("subscribe", "subscribepattern", "assign", "asof")
    kept = {name: value for name, value in options.items() if name.lower() not in replaced}
    if compacted and not kept.keys() & {"isolation", "kafka.isolation.level"}:
        kept["isolation"] = "read_committed"
    for topic, name in names.items():
        reader = spark.read.format("quafka").options(**kept)
        if not isinstance(snapshot, LiveSnapshot):
            reader = reader.option("asOf", snapshot.id)
        frame = reader.option("subscribe", topic).load(path)
        (latest_by_key(frame) if compacted else frame).createOrReplaceTempView(name)
    return names
