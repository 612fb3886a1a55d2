"""`quafka top`: the busiest topics and the groups that are furthest behind, live on a terminal."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from quafka.commands import screen
from quafka.commands.output import (
    Quantity,
    as_json,
    colour,
    moment,
    plain,
    size,
    span,
    table,
    width,
)
from quafka.commands.run import EXIT_DONE, with_cluster
from quafka_client.activity import ActiveTopic, Activity, ActivitySample, between, sample
from quafka_client.cluster import ClientCluster
from quafka_client.groups import GroupSummary
from quafka_loop import clock

_PRINTED = 20
"""Lines of topics and of groups that are printed where there is no terminal."""
_LOW = 20
"""Lines of a terminal below which blank lines and the gateway's figures make room for others."""
_SHORTEST_NAME = 8


@dataclass(frozen=True, slots=True)
class TopicOrder:
    """What topics are ordered by: the key that chooses it, and its name."""

    key: str
    name: str

    def place(self, topic: ActiveTopic) -> tuple[float, str]:
        """A topic's place: the largest figure first, equal ones by name."""
        figures = {
            "r": topic.records_per_second,
            "b": topic.bytes_per_second or 0.0,
            "s": topic.bytes or 0.0,
            "n": 0.0,
        }
        return -figures[self.key], topic.name


ORDERS = (
    TopicOrder("r", "records/s"),
    TopicOrder("b", "bytes/s"),
    TopicOrder("s", "size"),
    TopicOrder("n", "name"),
)


def run(options: argparse.Namespace) -> int:
    """Show the activity; return the exit code."""
    return with_cluster(options, _top)


async def _top(cluster: ClientCluster, options: argparse.Namespace) -> int:
    view = _View(cluster, options)
    if options.format == "text" and screen.is_terminal():
        keys = {order.key: partial(view.order_by, order) for order in ORDERS}
        await screen.watch(view.draw, options.interval, keys)
        return EXIT_DONE
    before = await sample(cluster)
    await asyncio.sleep(options.interval)
    activity = between(before, await sample(cluster))
    if options.format == "json":
        document = {
            "seconds": round(activity.seconds, 3), "gateway": activity.gateway,
            "topics": sorted(activity.topics, key=view.order.place),
            "groups": sorted(activity.groups, key=by_lag),
        }  # fmt: skip
        print(as_json(document))
    else:
        print(text(activity, view.order, _PRINTED, _PRINTED))
    return EXIT_DONE


class _View:
    """What the screen shows: the last two samples, by the chosen order."""

    def __init__(self, cluster: ClientCluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._seconds: float = options.interval
        self._before: ActivitySample | None = None
        self._activity: Activity | None = None
        self._reordered = False
        self.order = next(order for order in ORDERS if order.name == options.sort)

    def order_by(self, order: TopicOrder) -> None:
        """Show what is known in another order, without a new sample."""
        self.order = order
        self._reordered = self._activity is not None

    async def draw(self) -> str:
        """The next screen; a new sample unless a key asked for another order."""
        if not self._reordered:
            now = await sample(self._cluster)
            self._activity = between(self._before or now, now)
            self._before = now
        self._reordered = False
        assert self._activity is not None
        at = moment(clock.time_ns() // 1_000_000)
        head = [self._cluster.any.address, at, f"every {self._seconds:g} s"]
        return page(self._activity, self.order, head, shutil.get_terminal_size())


def page(
    activity: Activity, order: TopicOrder, head: Sequence[str], terminal: os.terminal_size
) -> str:
    """What fits a terminal: first `head` and sums, last the keys."""
    columns, lines = terminal
    low = lines < _LOW
    keys = [f"{each.key} {each.name}" for each in ORDERS]
    foot = _packed(["q quit", f"order: {keys[0]}", *keys[1:]], columns, "  ")
    if low and len(foot) > 1:
        foot = ["q quit  order: " + " ".join(each.key for each in ORDERS)]
    top = _packed(head, columns, "  ")[: 1 if low else None]
    around = len(top) + len(_sums(activity, columns, low)) + len(foot) + 1
    around += (0 if low else 2) + ((1 if low else 2) if activity.groups else 0)
    free = max(2, lines - around)
    wanted = min(len(activity.groups), max(free // 3, 2 if free > 3 else 0))
    body = text(activity, order, free - wanted, wanted, columns, low=low)
    return "\n".join([*top, body, *([] if low else [""]), *(colour(each, "dim") for each in foot)])


def by_lag(group: GroupSummary) -> tuple[float, str]:
    """A group's place: the largest lag first."""
    return -(group.lag or 0), group.group


def text(
    activity: Activity,
    order: TopicOrder,
    topic_lines: int,
    group_lines: int,
    columns: int | None = None,
    *,
    low: bool = False,
) -> str:
    """Sums, and tables of the first topics and groups; their last line tells how many are left out.

    `columns`: what a line has at most; None: any number. `low`: without blank lines, and without
    the gateway's figures.
    """
    topics, groups = activity.topics, activity.groups
    rows = [
        (
            each.name,
            each.partitions,
            Quantity(f"{each.records_per_second:,.0f}"),
            _rate(each.bytes_per_second),
            size(each.bytes),
        )
        for each in sorted(topics, key=order.place)
    ]
    names = ("TOPIC", "PARTITIONS", "RECORDS/S", "BYTES/S", "SIZE")
    ordered = next(
        n for n, name in enumerate(names) if order.name in (name.lower(), "name" if not n else "")
    )
    headings = [f"{name}*" if n == ordered else name for n, name in enumerate(names)]
    dropped = [n for n in (1, 4, 3, 2) if n != ordered]
    parts = [_sums(activity, columns, low)]
    parts.append(_first("topics", headings, rows, topic_lines, columns, dropped))
    if groups and group_lines:
        lagging = [
            (each.group, each.state, each.members, each.lag, span(each.behind_seconds))
            for each in sorted(groups, key=by_lag)
        ]
        headings = ["GROUP", "STATE", "MEMBERS", "LAG", "BEHIND"]
        parts.append(_first("groups", headings, lagging, group_lines, columns, [2, 1, 4]))
    return ("\n" if low else "\n\n").join("\n".join(part) for part in parts)


def _sums(activity: Activity, columns: int | None, low: bool) -> list[str]:
    topics, groups = activity.topics, activity.groups
    records = sum(each.records_per_second for each in topics)
    grown = [each.bytes_per_second for each in topics if each.bytes_per_second is not None]
    sums = [
        f"topics {len(topics):,}",
        f"groups {len(groups):,}",
        f"lag {sum(each.lag or 0 for each in groups):,}",
        f"{records:,.0f} records/s",
    ]
    if grown:
        sums.append(f"{size(round(sum(grown)))}/s")
    found = _packed(sums, columns, "   ")
    if (gateway := activity.gateway) is not None and not low:
        received, sent = (
            size(round(rate)) for rate in (gateway.received_per_second, gateway.sent_per_second)
        )
        figures = [
            f"connections {gateway.connections}", f"{gateway.requests_per_second:,.0f} requests/s",
            f"in {received}/s", f"out {sent}/s",
        ]  # fmt: skip
        found += _packed(figures, columns, "   ")
    return found


def _packed(items: Sequence[str], columns: int | None, between: str) -> list[str]:
    """The items in as few lines as fit."""
    lines = [items[0]]
    for item in items[1:]:
        longer = f"{lines[-1]}{between}{item}"
        if columns is None or width(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(item)
    return lines


def _first(
    what: str,
    headings: Sequence[str],
    rows: Sequence[tuple[object, ...]],
    lines: int,
    columns: int | None,
    dropped: Sequence[int],
) -> list[str]:
    """A table of the first rows. `dropped`: the columns that are left out if they do not fit."""
    shown = rows if len(rows) <= lines else rows[: max(0, lines - 1)]
    kept, longest = list(range(len(headings))), None
    left_out = list(dropped)
    while True:
        cells = [[_shortened(str(row[0]), longest), *(row[n] for n in kept if n)] for row in shown]
        found = table([headings[n] for n in kept], cells).splitlines()
        excess = max(map(screen.shown_width, found)) - columns if columns is not None else 0
        if excess <= 0 or longest is not None:
            break
        if left_out:
            kept.remove(left_out.pop(0))
        else:
            names = max((width(plain(str(row[0]))) for row in shown), default=0)
            longest = max(_SHORTEST_NAME, names - excess)
    if len(shown) < len(rows):
        found.append(colour(f"… {len(rows) - len(shown):,} more {what}", "dim"))
    return found


def _shortened(name: str, columns: int | None) -> str:
    shown = plain(name)
    if columns is None or width(shown) <= columns:
        return name
    return f"{screen.clipped(shown, columns - 1)}…"


def _rate(value: float | None) -> Quantity | None:
    return None if value is None else Quantity(f"{size(round(value))}/s")
