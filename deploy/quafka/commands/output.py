"""Output for people and programs: tables, JSON, and colours on a terminal.

Names come from clients and may hold anything. Control characters are escaped, so that none of them
moves the cursor.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import Any, cast

NONE = "-"
"""Stands for a value that is unknown or missing."""

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def colour(text: str, name: str) -> str:
    """The text in a colour if stdout is a terminal with colours and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"


def plain(text: str) -> str:
    """The text with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width(text: str) -> int:
    """The number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


class Quantity(str):
    """A number with its unit, as text; tables align it to the right, like a number."""

    __slots__ = ()


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns under headings; numbers and quantities are aligned to the right.

    Nothing is truncated, so that names can be copied.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        any(isinstance(row[n], _RIGHT) for row in rows)
        and all(isinstance(row[n], _RIGHT) or row[n] is None for row in rows)
        for n in range(len(headings))
    ]
    widths = [
        max(width(heading), *(width(row[n]) for row in cells)) if cells else width(heading)
        for n, heading in enumerate(headings)
    ]
    head = colour(_line(headings, widths, right), "bold")
    return "\n".join([head, *(_line(row, widths, right) for row in cells)])


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """Names and values, one pair per line."""
    widest = max(width(name) for name, _ in pairs)
    return "\n".join(
        f"{colour(name, 'bold')}{' ' * (widest - width(name) + 2)}{_cell(value)}".rstrip()
        for name, value in pairs
    )


def _cell(value: object) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(str(value))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (widths[n] - width(cell)) + cell
        if right[n]
        else cell + " " * (widths[n] - width(cell))
        for n, cell in enumerate(cells)
    ]
    return "  ".join(padded).rstrip()


_RIGHT = (int, float, Quantity)


def span(seconds: float | None) -> Quantity | None:
    """A time span in at most two units: 2d 3h, 4.5s, <0.1s."""
    if seconds is None:
        return None
    if 0 < seconds < 0.05:
        return Quantity("<0.1s")
    if seconds < 59.5:
        return Quantity(f"{seconds:.1f}s" if 0 < seconds < 9.95 else f"{seconds:.0f}s")
    rest = round(seconds)
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    first = next(n for n, (_, size) in enumerate(units) if rest >= size)
    words: list[str] = []
    for unit, size in units[first : first + 2]:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{unit}")
    return Quantity(" ".join(words))


def size(count: int | None) -> Quantity | None:
    """A number of bytes for a table."""
    return None if count is None else Quantity(size_text(count))


def size_text(count: int) -> str:
    """A number of bytes with its unit."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def open_for(seconds: float | None) -> Quantity | None:
    """For how long something has been open."""
    if seconds is not None and seconds < 1:
        return Quantity("just opened")
    return span(seconds)


def catch_up(
    lag: int | None, behind: float | None, seconds: float | None, *, followed: bool
) -> Quantity | None:
    """The time until no record is left to consume, or why there is none.

    Args:
        behind: the age of the first such record. None: the server knows no times of this lag.
        seconds: None: not known yet, or never at the present rate.
        followed: whether a member consumes the records.

    Returns:
        None: nothing is known.
    """
    if lag == 0:
        return Quantity("caught up")
    if lag is None or behind is None:
        return None
    if seconds is None:
        return Quantity("never at this rate, or unknown" if followed else "never: no member")
    return span(seconds)


def number(value: float) -> str:
    """A number without an exponent if it is whole, as quotas nearly always are."""
    return str(int(value)) if value.is_integer() else f"{value:.15g}"


def moment(ms: int) -> str:
    """A time in ms since the epoch, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def as_json(document: object) -> str:
    """A document as JSON; dataclasses become objects of their fields."""
    return json.dumps(_plain(document), ensure_ascii=False, indent=2)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value
