"""Spark on snapshots of Quafka's log: `spark.read.format("quafka")`.

Names are loaded on first use, so that `export_parquet` works where Spark is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_quafka.latest import latest_by_key
    from pyspark_quafka.parquet import export_parquet
    from pyspark_quafka.source import DefaultSource
    from pyspark_quafka.topic_views import views
    from pyspark_quafka.values import avro_values, json_values

__all__ = [
    "DefaultSource",
    "avro_values",
    "export_parquet",
    "json_values",
    "latest_by_key",
    "views",
]

_MODULES = {
    "DefaultSource": "source",
    "avro_values": "values",
    "export_parquet": "parquet",
    "json_values": "values",
    "latest_by_key": "latest",
    "views": "topic_views",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
