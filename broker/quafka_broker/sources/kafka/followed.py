"""The event loop's state of one partition's folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.log_view import LogView
from quafka_broker.kafka_logs.partition_log import PartitionLog
from quafka_broker.partitions.partition import PartitionId


class NothingFrom(NamedTuple):
    """No batch of a view begins at or after this offset; `committed`: below the last stable offset.

    Compaction can remove the last records of a partition; a reader at their offset waits.
    """

    view: LogView
    offset: int
    committed: bool


@dataclass(slots=True, eq=False)
class Followed:
    """One partition. Changed by the event loop only.

    Attributes:
        folder: None: no replica is in the adopted folders. Kafka may move it to another folder.
        log: None until the partition is first used.
        has_moved: whether the log is open in a former folder of the partition.
        view: the bounds that the event loop uses.
        refreshed_at: loop time of the last look at the folder.
        failure: why the folder could not be read then; empty if it could be.
        asked: a future that ends with the next or current look at the folder.
    """

    id: PartitionId
    topic: str
    number: int
    folder: Path | None
    log: PartitionLog | None = None
    has_moved: bool = False
    view: LogView | None = None
    refreshed_at: float = float("-inf")
    failure: str = ""
    asked: asyncio.Future[None] | None = None
    nothing_from: NothingFrom | None = None
