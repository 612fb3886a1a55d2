"""Share groups: what they have in flight in each partition, and records that are delivered often.

Kafka's protocol has only the start offset and the lag of a share partition; the windows come from
the brokers' status pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quafka_console.data.status_pages import Row, StatusPage, number, words

_WINDOWS = "Windows of share groups"


@dataclass(frozen=True, slots=True)
class ShareWindow:
    """A group's window in one partition: the offsets [start, end), in flight.

    Attributes:
        held: records that members have.
        again: records that were given back, to be delivered again.
        archived: records that will not be delivered again, though no member has accepted them.
        most_deliveries, at_offset: the record that was delivered most often, of those not done.
        limit: deliveries after which a record is archived; None: unknown.
    """

    group: str
    org: str
    topic: str
    partition: int
    start: int
    end: int
    held: int
    again: int
    archived: int
    most_deliveries: int
    at_offset: int | None
    limit: int | None

    @property
    def is_poison(self) -> bool:
        """Whether a record has had half of its deliveries, and more than one: no consumer may be
        able to process it."""
        limit = self.limit or 0
        return self.most_deliveries > 1 and self.most_deliveries * 2 >= limit > 0


@dataclass(frozen=True, slots=True)
class ShareWindows:
    """Windows, by topic and partition. `more`: a broker has further ones, and left them out."""

    windows: Sequence[ShareWindow]
    more: bool


def share_windows(pages: Iterable[StatusPage], group: str | None = None) -> ShareWindows:
    """The windows of a group, or of all groups, at the brokers of these pages."""
    found: list[ShareWindow] = []
    more = False
    for page in pages:
        for section in page.named(_WINDOWS):
            more |= section.more
            found += [_window(row) for row in section.rows if group in (None, words(row, "group"))]
    return ShareWindows(
        sorted(found, key=lambda each: (each.group, each.org, each.topic, each.partition)), more
    )


def _window(row: Row) -> ShareWindow:
    offset, limit = number(row, "at offset"), number(row, "limit")
    return ShareWindow(
        words(row, "group"),
        words(row, "org"),
        words(row, "topic"),
        _whole(row, "partition"),
        _whole(row, "start"),
        _whole(row, "end"),
        _whole(row, "with members"),
        _whole(row, "to deliver again"),
        _whole(row, "archived"),
        _whole(row, "most deliveries"),
        None if offset is None else int(offset),
        None if limit is None else int(limit),
    )


def _whole(row: Row, name: str) -> int:
    return int(number(row, name) or 0)
