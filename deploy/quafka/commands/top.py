"""`quafka top`: the busiest topics and the groups that are furthest behind, live on a terminal."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from dataclasses import dataclass
from functools import partial

from quafka.commands import screen
from quafka.commands.output import Quantity, as_json, colour, moment, size, span, table
from quafka.commands.run import EXIT_DONE, with_cluster
from quafka_client.activity import ActiveTopic, Activity, ActivitySample, between, sample
from quafka_client.cluster import ClientCluster
from quafka_client.groups import GroupSummary
from quafka_loop import clock

_AROUND = 10
"""Lines of the screen that are neither a topic's nor a group's."""
_PRINTED = 20
"""Topics and groups that are printed where there is no terminal."""


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
        rows = max(2, shutil.get_terminal_size().lines - _AROUND)
        wanted = min(len(self._activity.groups), rows // 3)
        body = text(self._activity, self.order, rows - wanted, wanted)
        at = moment(clock.time_ns() // 1_000_000)
        keys = "  ".join(f"{order.key} {order.name}" for order in ORDERS)
        head = f"{self._cluster.any.address}  {at}  every {self._seconds:g} s"
        return f"{head}\n{body}\n\n{colour(f'q quit  order: {keys}', 'dim')}"


def by_lag(group: GroupSummary) -> tuple[float, str]:
    """A group's place: the largest lag first."""
    return -(group.lag or 0), group.group


def text(activity: Activity, order: TopicOrder, most_topics: int, most_groups: int) -> str:
    """Sums, and tables of the first topics and groups."""
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
    head = "   ".join(sums)
    if (gateway := activity.gateway) is not None:
        received, sent = (
            size(round(rate)) for rate in (gateway.received_per_second, gateway.sent_per_second)
        )
        head += f"\nconnections {gateway.connections}   "
        head += f"{gateway.requests_per_second:,.0f} requests/s   in {received}/s   out {sent}/s"
    rows = [
        (
            each.name,
            each.partitions,
            Quantity(f"{each.records_per_second:,.0f}"),
            _rate(each.bytes_per_second),
            size(each.bytes),
        )
        for each in sorted(topics, key=order.place)[:most_topics]
    ]
    headings = [
        f"{name}*"
        if name.lower() == order.name or (name, order.name) == ("TOPIC", "name")
        else name
        for name in ("TOPIC", "PARTITIONS", "RECORDS/S", "BYTES/S", "SIZE")
    ]
    parts = [head, "", table(headings, rows)]
    if groups and most_groups:
        lagging = [
            (each.group, each.state, each.members, each.lag, span(each.behind_seconds))
            for each in sorted(groups, key=by_lag)[:most_groups]
        ]
        parts += ["", table(("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND"), lagging)]
    return "\n".join(parts)


def _rate(value: float | None) -> Quantity | None:
    return None if value is None else Quantity(f"{size(round(value))}/s")
