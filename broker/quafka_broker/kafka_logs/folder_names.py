"""The names of partition folders and segment files."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import NamedTuple


class Use(Enum):
    """The state of a partition folder in Kafka."""

    SERVED = ""
    DELETED = "delete"
    """The topic was deleted; the files are removed after a while."""
    FUTURE = "future"
    """A copy that is being moved from another log folder."""
    STRAY = "stray"
    """A replica that the cluster no longer knows."""


class PartitionFolder(NamedTuple):
    """A folder of a partition's segments."""

    path: Path
    topic: str
    partition: int
    use: Use


LOCK = ".lock"
"""The file in a log folder that a running Kafka locks."""
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT, CHECKPOINT = ".snapshot", ".checkpoint"
SWAP, CLEANED = ".swap", ".cleaned"
METADATA_TOPIC, GROUPS_TOPIC = "__cluster_metadata", "__consumer_offsets"
TRANSACTIONS_TOPIC, SHARE_TOPIC = "__transaction_state", "__share_group_state"
INTERNAL_TOPICS = frozenset((METADATA_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC))
"""Kafka's internal topics."""

_TOPIC = r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})"
_SERVED = re.compile(_TOPIC)
_OTHER = re.compile(_TOPIC + r"\.([0-9a-f]{1,64})-(delete|future|stray)")
_OFFSET_DIGITS = 20
_SEGMENT = re.compile(r"(\d{20})(\.[a-z.]+)")
_MOST_PARTITION = (1 << 31) - 1
_MOST_OFFSET = (1 << 63) - 1


def partition_folder(path: Path) -> PartitionFolder | None:
    """Parse a folder's name; None if it is not a partition's folder.

    A topic's name may end like that of a partition folder: `orders-1` has the folder `orders-1-0`.
    """
    served = _SERVED.fullmatch(path.name)
    other = None if served else _OTHER.fullmatch(path.name)
    match = served or other
    if match is None or int(match[2]) > _MOST_PARTITION:
        return None
    return PartitionFolder(path, match[1], int(match[2]), Use(other[4]) if other else Use.SERVED)


def segment_offset(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a segment's file, as in `00000000000000000042.log`."""
    match = _SEGMENT.fullmatch(name)
    if match is None or int(match[1]) > _MOST_OFFSET:
        return None
    return int(match[1]), match[2]


def segment_name(offset: int, suffix: str) -> str:
    """The name of a segment's file."""
    return f"{offset:0{_OFFSET_DIGITS}}{suffix}"
