"""Reads Kafka's sparse indexes as hints: a caller verifies the place that a row names.

Kafka does not checksum these files. After a crash they may be missing, torn, or end in zeros.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from quafka_broker.kafka_logs.errors import KafkaLogError
from quafka_broker.kafka_logs.files import open_file
from quafka_proto.kafka_log_format import OFFSET_ROW, TIME_ROW


class OffsetHint(NamedTuple):
    """A row of an offset index: the batch with this offset is at this position."""

    offset: int
    position: int


class TimeHint(NamedTuple):
    """A row of a time index: the highest timestamp up to this offset."""

    timestamp: int
    offset: int


def offset_hint(path: Path, base: int, offset: int) -> OffsetHint | None:
    """The last row at or below an offset; None if there is none, or no readable index."""

    def beyond(row: tuple[int, ...]) -> bool:
        return not row[1] or base + row[0] > offset

    row = _last_row(path, OFFSET_ROW, beyond)
    return None if row is None else OffsetHint(base + row[0], row[1])


def time_hint(path: Path, base: int, timestamp: int) -> TimeHint | None:
    """The last row below a timestamp; None if there is none, or no readable index."""

    def beyond(row: tuple[int, ...]) -> bool:
        return not any(row) or row[0] >= timestamp

    row = _last_row(path, TIME_ROW, beyond)
    return None if row is None else TimeHint(row[0], base + row[1])


def _last_row(
    path: Path, row: struct.Struct, beyond: Callable[[tuple[int, ...]], bool]
) -> tuple[int, ...] | None:
    """The last row that is not beyond, found by bisection."""
    try:
        descriptor = open_file(path)
    except (KafkaLogError, FileNotFoundError):
        return None
    try:
        low, high = 0, os.fstat(descriptor).st_size // row.size
        found = None
        while low < high:
            middle = (low + high) // 2
            data = os.pread(descriptor, row.size, middle * row.size)
            values = row.unpack(data) if len(data) == row.size else ()
            if not values or beyond(values):
                high = middle
            else:
                low, found = middle + 1, values
        return found
    except OSError:
        return None
    finally:
        os.close(descriptor)
