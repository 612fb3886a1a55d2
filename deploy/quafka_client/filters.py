"""Filters of records. Pure; they get whole records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol


class FilteredRecord(Protocol):
    """What filters see of a record."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


Wanted = Callable[[FilteredRecord], bool]
"""A filter. It gets whole records, perhaps in a thread."""

_HEADER = re.compile(r"([^=~]*)(?:([=~])(.*))?", re.DOTALL)


def containing(words: str) -> Wanted:
    """Whether key, value or a header contains each of the words, exactly as they are written."""
    every = [word.encode() for word in words.split()]

    def wanted(record: FilteredRecord) -> bool:
        parts = [record.key or b"", record.value or b""]
        for name, value in record.headers:
            parts += [name.encode(), value or b""]
        return all(any(word in part for part in parts) for word in every)

    return wanted


def with_key(text: str) -> Wanted:
    """Whether the key contains a text; after `=`: whether it is the text."""
    exact, wish = text.startswith("="), text.removeprefix("=").encode()

    def wanted(record: FilteredRecord) -> bool:
        key = record.key
        return key is not None and (key == wish if exact else wish in key)

    return wanted


def with_header(text: str) -> Wanted:
    """Whether a header has a name (`name`), and a value (`name=value`) or a part (`name~part`)."""
    found = _HEADER.fullmatch(text)
    assert found is not None, text
    name, operator, wish = found[1].strip(), found[2], (found[3] or "").strip().encode()

    def wanted(record: FilteredRecord) -> bool:
        return any(
            each == name and (
                operator is None
                or (value is not None and (value == wish if operator == "=" else wish in value))
            )
            for each, value in record.headers
        )  # fmt: skip

    return wanted


def every(filters: Sequence[Wanted]) -> Wanted | None:
    """Whether a record passes all filters; None: there are none."""
    if len(filters) < 2:
        return filters[0] if filters else None
    return lambda record: all(each(record) for each in filters)
