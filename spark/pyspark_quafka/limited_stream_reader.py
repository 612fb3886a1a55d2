"""The stream reader for PySpark 4.2 and later, which passes the query's position and a read limit.

The import fails on older versions.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_quafka.options import Options
from pyspark_quafka.stream_planner import Json, StreamPosition
from pyspark_quafka.stream_reader import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """Honours `maxOffsetsPerTrigger` from the first batch on, also with AvailableNow."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._until: str | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's
        limit = self._options.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's
        self._until = self.planner.latest(None).snapshot

    def initialOffset(self) -> Json:  # noqa: N802 - PySpark's
        return self.planner.initial(self._until).to_json()

    def latestOffset(  # noqa: N802 - PySpark's
        self, start: Json | None = None, limit: ReadLimit | None = None
    ) -> Json:
        at = StreamPosition.from_json(start) if start is not None else None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.latest(at, rows, self._until).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's
        return self.planner.latest(None).to_json()
