"""Records that are lost to damage of a broker's log, from the brokers' status pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quafka_console.data.status_pages import StatusPage, number, words

_LOST = "Records lost to damage"


@dataclass(frozen=True, slots=True, order=True)
class LostRecords:
    """Lost offsets [first, end) of a partition."""

    partition: int
    first: int
    end: int


def lost_records(pages: Iterable[StatusPage], topic_id: str) -> list[LostRecords]:
    """What a topic has lost, by its `quafka.id`."""
    return sorted(
        LostRecords(
            int(number(row, "partition") or 0),
            int(number(row, "from offset") or 0),
            int(number(row, "to offset") or 0),
        )
        for page in pages
        for section in page.named(_LOST)
        for row in section.rows
        if words(row, "topic id") == topic_id != ""
    )
