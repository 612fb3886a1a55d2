"""Spark on snapshots of Quafka's log: `spark.read.format("quafka")`.

What needs no Spark (`parquet`) is imported without it, so names of this module that do are loaded
when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_quafka.source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        from pyspark_quafka.source import DefaultSource

        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
