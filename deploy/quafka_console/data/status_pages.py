"""The status pages of gateways and brokers (`/statusz` as JSON): their tables and facts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = float | str | None
"""A text, a number (seconds, bytes, or seconds since 1970), or None: empty."""
Row = Mapping[str, Value]
_SHARD = re.compile(r"Shard (\d+): ")


class BadStatusPageError(ValueError):
    """The answer of an operations port is not a status page."""


@dataclass(frozen=True, slots=True)
class StatusSection:
    """A part of a page: `rows` of a table by column, or `facts`.

    `shard`: the number of the shard that the title names; None: it names none. `more`: whether the
    page has left out rows.
    """

    title: str
    shard: int | None
    rows: Sequence[Row]
    facts: Row
    more: bool = False


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The page of one process. `address`: of its operations port."""

    address: str
    program: str
    ready: bool
    problems: Mapping[str, str]
    time: float
    sections: Sequence[StatusSection]

    def named(self, beginning: str) -> Iterator[StatusSection]:
        """The sections whose title begins so, regardless of the shard."""
        return (each for each in self.sections if each.title.startswith(beginning))


def parse_status_page(address: str, body: bytes) -> StatusPage:
    """Decode a page.

    Raises:
        BadStatusPageError: it is malformed, or of a version without JSON.
    """
    try:
        found = json.loads(body)
        return StatusPage(
            address,
            str(found["program"]),
            bool(found["ready"]),
            {str(name): str(why) for name, why in found["problems"].items()},
            float(found["time"]),
            [_section(each) for each in found["sections"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise BadStatusPageError(
            f"{address} does not send its status page as JSON; upgrade that process, and check "
            "that the address is that of its operations port"
        ) from e


def _section(found: Mapping[str, Any]) -> StatusSection:
    title = str(found["title"])
    numbered = _SHARD.match(title)
    shard = int(numbered[1]) if numbered else None
    title = title[numbered.end() :] if numbered else title
    if "facts" in found:
        return StatusSection(title, shard, [], _values(found["facts"]))
    columns = [str(name) for name in found["columns"]]
    rows = [_values(dict(zip(columns, row, strict=True))) for row in found["rows"]]
    return StatusSection(title, shard, rows, {}, bool(found["more"]))


def _values(found: Mapping[str, Any]) -> dict[str, Value]:
    return {
        str(name): value
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        else str(value)
        for name, value in found.items()
    }


def number(row: Row, name: str) -> float | None:
    """A number of a row; None if it is empty, absent or a text."""
    value = row.get(name)
    return value if isinstance(value, int | float) else None


def words(row: Row, name: str) -> str:
    """A text of a row; "" if it is empty or absent."""
    value = row.get(name)
    return "" if value is None else str(value)
