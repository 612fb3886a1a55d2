"""Which records a person has chosen: the state of the page, as its address has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError
from quafka_client.filters import containing, every, with_header, with_key
from quafka_client.json_path import fulfilling, parse
from quafka_client.registry.client import SchemaRegistry
from quafka_client.registry.values import JsonOfValues
from quafka_console.data.messages.decoding import Choice, Progress
from quafka_console.data.messages.reading import Limits, ReadRange, newest, onwards
from quafka_console.data.messages.records import SHOWN_BYTES, ReadRecord
from quafka_console.data.typed import whole_number

NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
COMMITTED = "committed"
COUNTS = (20, 50, 100, 500)
_PLACES = (NEWEST, OLDEST, OFFSET, TIME)
_MOST_PARTITIONS = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """What is chosen, as it was typed.

    Attributes:
        place: where reading begins, one of NEWEST, OLDEST, OFFSET and TIME; `at`: which.
        until: a time.
        partition: numbers and ranges: 0,3,5-7.
        contains: words; `key`, `header`, `value`: further filters.
        isolation: COMMITTED, or "" for all records.
        count: how many records are shown.
    """

    topic: str
    place: str = NEWEST
    at: str = ""
    until: str = ""
    partition: str = ""
    contains: str = ""
    key: str = ""
    header: str = ""
    value: str = ""
    isolation: str = ""
    count: int = COUNTS[1]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Selection:
        """The selection of an address; what it cannot be is left out."""
        place, count = query.get("from", ""), query.get("count", "")
        if place not in _PLACES:
            place = OFFSET if query.get("offset") else NEWEST
        return cls(
            topic=query.get("topic", ""),
            place=place,
            at=query.get("at", "") or query.get("offset", ""),
            until=query.get("until", ""),
            partition=query.get("partition", ""),
            contains=query.get("contains", ""),
            key=query.get("key", ""),
            header=query.get("header", ""),
            value=query.get("value", ""),
            isolation=COMMITTED if query.get("isolation") == COMMITTED else "",
            count=int(count) if count in map(str, COUNTS) else COUNTS[1],
        )

    def query(self) -> dict[str, str]:
        """The parameters of its address, without those that are empty or the default."""
        found = {
            "topic": self.topic,
            "from": "" if self.place == NEWEST else self.place,
            "at": self.at if self.place in (OFFSET, TIME) else "",
            "until": self.until,
            "partition": self.partition,
            "contains": self.contains,
            "key": self.key,
            "header": self.header,
            "value": self.value,
            "isolation": self.isolation,
            "count": "" if self.count == COUNTS[1] else str(self.count),
        }
        return {name: text for name, text in found.items() if text}

    def with_texts(self, **texts: str) -> Selection:
        """Another one, of what was typed."""
        stripped: dict[str, Any] = {name: text.strip() for name, text in texts.items()}
        return replace(self, **stripped)

    @property
    def filtered(self) -> bool:
        """Whether there are filters of single records."""
        return any((self.contains.split(), self.key, self.header, self.value))

    def span(self) -> ReadRange:
        """Raises ClientError: what was typed is wrong."""
        return ReadRange(
            _partitions(self.partition) if self.partition else None,
            whole_number(self.at, "an offset") if self.place == OFFSET else None,
            _time(self.at) if self.place == TIME else None,
            _time(self.until) if self.until else None,
        )

    def choice(
        self, most: int = SHOWN_BYTES, json_of: Callable[[bytes], Any] = json.loads
    ) -> Choice:
        """`most`: see Choice; `json_of`: see `fulfilling`.

        Raises ClientError: what was typed is wrong.
        """
        filters = [containing(self.contains)] if self.contains.split() else []
        if self.key:
            filters.append(with_key(self.key))
        if self.header:
            filters.append(with_header(self.header))
        if self.value:
            filters.append(fulfilling(parse(self.value), json_of))
        return Choice(every(filters), self.isolation == COMMITTED, most)

    async def read(
        self,
        cluster: ClientCluster,
        progress: Progress,
        limits: Limits,
        registry: SchemaRegistry | None = None,
        most: int = SHOWN_BYTES,
    ) -> list[ReadRecord]:
        """Read it. `registry`: decodes values for conditions.

        Raises ClientError: also if what was typed is wrong.
        """
        read = newest if self.place == NEWEST else onwards
        json_of = json.loads if registry is None else JsonOfValues(registry)
        choice = self.choice(most, json_of)
        return await read(cluster, self.topic, self.span(), choice, limits, progress)


class _Ranges(Container[int]):
    """Numbers that lie in one of some ranges."""

    def __init__(self, ranges: Sequence[range]) -> None:
        self._ranges = ranges

    def __contains__(self, number: object) -> bool:
        return any(number in each for each in self._ranges)


def _partitions(text: str) -> Container[int]:
    parts = text.split(",")
    if len(parts) > _MOST_PARTITIONS:
        raise ClientError(f"more than {_MOST_PARTITIONS} partitions or ranges; write 0-999")
    ranges: list[range] = []
    for part in parts:
        first, dash, last = part.strip().partition("-")
        begin = whole_number(first, "a partition")
        ranges.append(range(begin, 1 + (whole_number(last, "a partition") if dash else begin)))
    return _Ranges(ranges)


def _time(text: str) -> int:
    """A time in ms since 1970, or 0 if it is earlier; UTC unless it names its zone."""
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as e:
        raise ClientError(f"{text!r} is not a time; write it in UTC as 2026-11-28T06:15") from e
    return max(0, round(seconds * 1_000))  # ListOffsets gives times below 0 another meaning
