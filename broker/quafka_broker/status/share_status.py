"""The section of a broker's `/statusz` about the windows of its share groups."""

from __future__ import annotations

from heapq import nlargest

from quafka_broker.shares.states import RecordState
from quafka_broker.shares.table import SharePartition
from quafka_broker.shares.window import Window
from quafka_broker.state import BrokerState
from quafka_telemetry.status_page import Cell, PageTable, count, text

_SHOWN = 500
"""The maximum number of windows on the page."""


def share_windows(state: BrokerState) -> PageTable:
    """What each share group has in flight in each partition, and its most delivered record."""
    table = state.shares.table
    shown = nlargest(_SHOWN, table, key=lambda each: each.window.in_flight)
    return PageTable(
        f"Windows of share groups: {len(table):,}, most records in flight first",
        (
            "group", "org", "topic", "partition", "start", "end", "with members",
            "to deliver again", "archived", "most deliveries", "at offset", "limit", "full",
        ),
        (_row(state, each) for each in shown),
    )  # fmt: skip


def _row(state: BrokerState, found: SharePartition) -> tuple[Cell, ...]:
    org, group = found.group
    topic = state.registry.by_id(org, found.place.topic_id)
    window, limit = found.window, found.most_deliveries
    again, archived, deliveries, offset = _records(window)
    return (
        text(group),
        text(org),
        text("" if topic is None else topic.name),
        count(found.place.partition),
        count(window.start),
        count(window.end),
        count(window.acquired),
        count(again),
        count(archived),
        count(deliveries, bad=0 < limit <= deliveries * 2 and deliveries > 1),
        text("") if offset is None else count(offset),
        count(limit) if limit else text(""),
        text("members wait" if found.is_full else "", bad=found.is_full),
    )


def _records(window: Window) -> tuple[int, int, int, int | None]:
    """Of a window: free and archived records; the most deliveries of a record that is not done,
    and the first offset with that many, if there is one."""
    again = archived = most = 0
    offset: int | None = None
    for each in window.ranges():
        size = each.end - each.first
        if each.is_free:
            again += size
        if each.state is RecordState.ARCHIVED:
            archived += size
        if not each.state.is_final and each.deliveries > most:
            most, offset = each.deliveries, each.first
    return again, archived, most, offset
