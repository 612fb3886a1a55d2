"""Filters of records. Pure; they get whole records."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_console.data.messages.records import Wanted
from quafka_proto.record_codec import Record


def containing(words: str) -> Wanted:
    """Whether key, value or a header contains each of the words, exactly as they are written."""
    every = [word.encode() for word in words.split()]

    def wanted(record: Record) -> bool:
        parts = [record.key or b"", record.value or b""]
        for name, value in record.headers:
            parts += [name.encode(), value or b""]
        return all(any(word in part for part in parts) for word in every)

    return wanted


def every(filters: Sequence[Wanted]) -> Wanted | None:
    """Whether a record passes all filters; None: there are none."""
    if len(filters) < 2:
        return filters[0] if filters else None
    return lambda record: all(each(record) for each in filters)
