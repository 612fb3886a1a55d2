"""One topic: its partitions and configs, who reads it, who writes it, and what damage has taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nicegui import ui

from quafka_client import topics
from quafka_client.configs import Config
from quafka_client.errors import ClientError, RequestRefusedError, check
from quafka_client.groups import LagByTopic
from quafka_client.topics import Compaction
from quafka_console.data.damage import LostRecords, lost_records
from quafka_console.data.group_lags import MOST_GROUPS
from quafka_console.data.paging import PageOf
from quafka_console.data.recent import Recent, whose
from quafka_console.data.topics import (
    PartitionRow,
    ProducerRow,
    ProducerRows,
    TopicTotals,
    TopicView,
    is_default,
    producer_rows,
    topic_totals,
    topic_view,
)
from quafka_console.session import ConsoleSession, ForOperatorsError, Query
from quafka_console.views.parts import address, formats, lags, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.operations import status_pages_of
from quafka_console.views.parts.table import Column, Shown, moment, pager, table
from quafka_console.views.topic_config import change_dialog

PATH = "/topic"
_SKEWED = 2.0
"""Times the mean of the shown partitions, from which on one is marked."""
_TOTALS_SECONDS = 10.0
_MOST_READERS = 100
_MOST_LOST = 5
_PARTITIONS = (
    Column("partition", "Partition", numeric=True),
    Column("start", "Start", numeric=True),
    Column("end", "End", numeric=True),
    Column("records", "Records", numeric=True),
    Column("bytes", "Size", numeric=True),
    Column("leader", "Leader", numeric=True),
    Column("messages", "Messages"),
)
_COMPACTION = (
    Column("partition", "Partition", numeric=True),
    Column("clean", "Compacted", numeric=True),
    Column("dirty", "Not yet", numeric=True),
    Column("due", "Due"),
    Column("saved", "The last run left", numeric=True),
)
_CONFIGS = (
    Column("name", "Config", wide=True),
    Column("value", "Value", wide=True),
    Column("source", "Set"),
)
_READERS = (
    Column("group", "Group", wide=True),
    Column("kind", "Type"),
    Column("state", "State"),
    Column("members", "Members here", numeric=True),
    Column("lag", "Lag, records", numeric=True),
    Column("behind", "Behind", numeric=True),
    Column("catch_up", "Caught up in", numeric=True),
)
_PRODUCERS = (
    Column("partition", "Partition", numeric=True),
    Column("producer", "Producer id", numeric=True),
    Column("epoch", "Epoch", numeric=True),
    Column("sequence", "Last sequence", numeric=True),
    Column("last", "Last record"),
    Column("open", "Open transaction from", numeric=True),
)
_TOTALS = Recent[TopicTotals](_TOTALS_SECONDS)


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Who reads and who writes; `producers`: or why they are not known."""

    readers: Sequence[LagByTopic] | None
    producers: ProducerRows | str | None


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    name, search = query.get("name", ""), query.get("search", "")
    await _TopicPage(session, name, search, address.page_of(query)).build()


class _TopicPage:
    """The page of a topic. What concerns all partitions or groups is read after the rest."""

    def __init__(self, session: ConsoleSession, name: str, search: str, number: int) -> None:
        self._session = session
        self._name, self._search, self._number = name, search, number
        self._defaults = False
        self._view: TopicView | None = None

    async def build(self) -> None:
        """Build the page and show the topic."""
        self._header()
        lost = LivePart(self._read_lost, _lost)
        totals = LivePart(self._read_totals, _facts)
        self._searching = ui.input(
            placeholder="search partitions", value=self._search,
            on_change=lambda event: self._find(event.value or ""),
        ).props(
            'dense outlined clearable debounce=250 type=search aria-label="search partitions"'
        ).classes("q-search")  # fmt: skip
        self._searching.set_visibility(False)
        self._part = LivePart(self._read, self._fill)
        self._traffic = LivePart(self._read_traffic, self._fill_traffic)
        await self._part.start()
        if self._view is not None:  # there is such a topic
            self._changes.set_visibility(True)
            lost.start_later()
            totals.start_later()
            self._traffic.start_later()

    def _header(self) -> None:
        with ui.row().classes("items-center w-full gap-3"):
            ui.label(formats.shown(self._name)).classes("text-h5 q-name")
            ui.space()
            ui.link("Messages", address.link("/messages", topic=self._name))
            self._changes = ui.row().classes("gap-3")
            self._changes.set_visibility(False)
            if self._session.may_write:
                with self._changes:
                    ui.button("Change a config", icon="edit", on_click=self._change).props(
                        "outline dense no-caps"
                    )
                    ui.button("Delete", icon="delete", on_click=self._delete).props(
                        "outline dense no-caps color=negative"
                    )

    # --- partitions and configs -------------------------------------------------------------

    async def _read(self) -> tuple[TopicView, bool]:
        cluster = self._session.cluster
        self._view = await topic_view(cluster, self._name, self._search, self._number)
        return self._view, self._defaults

    async def _read_totals(self) -> tuple[TopicTotals, TopicView]:
        cluster, view = self._session.cluster, self._view
        assert view is not None
        key = whose(cluster), self._name, view.uuid
        return await _TOTALS.read(key, lambda: topic_totals(cluster, self._name)), view

    def _fill(self, found: tuple[TopicView, bool]) -> None:
        view, _ = found
        ui.label("Partitions").classes("q-heading")
        page = view.page
        self._searching.set_visibility(page.total > page.size)
        if page.rows:
            mean = _mean(page)
            table(_PARTITIONS, [_partition(self._name, each, mean) for each in page.rows])
        else:
            states.empty("No partitions match", "Search by the partition's number.")
        pager(page, "partitions", self._go)
        compacted = [(each.partition, each.compaction) for each in page.rows if each.compaction]
        if compacted:
            ui.label("Compaction").classes("q-heading")
            table(_COMPACTION, [_compaction(*each) for each in compacted])
        ui.label("Configs").classes("q-heading")
        if view.configs is None:
            states.empty("The server does not report configs to you")
            return
        chosen = [each for each in view.configs if self._defaults or not is_default(each)]
        if chosen:
            table(_CONFIGS, [_config(each) for each in chosen])
        else:
            ui.label("All configs have their defaults.").classes("q-soft")
        ui.switch("Show defaults", value=self._defaults, on_change=self._switch)

    async def _switch(self) -> None:
        self._defaults = not self._defaults
        await self._part.refresh()

    async def _find(self, search: str) -> None:
        self._search = search
        await self._go(0)

    async def _go(self, number: int) -> None:
        self._number = number
        address.keep(address.link(PATH, name=self._name, search=self._search, page=number))
        await self._part.refresh()
        await self._traffic.refresh()

    # --- readers, producers, damage ---------------------------------------------------------

    async def _read_traffic(self) -> _Traffic:
        view = self._view
        assert view is not None
        known = await lags.all_lags(self._session)
        numbers = [each.partition for each in view.page.rows]
        producers: ProducerRows | str | None
        try:
            producers = await producer_rows(self._session.cluster, self._name, numbers)
        except RequestRefusedError as e:
            producers = str(e)
        return _Traffic(known.readers(self._name), producers)

    async def _read_lost(self) -> Sequence[LostRecords]:
        assert self._view is not None
        try:
            read = await status_pages_of(self._session)
        except ForOperatorsError:
            return []
        return lost_records(read.pages, self._view.id or "")

    def _fill_traffic(self, found: _Traffic) -> None:
        ui.label("Consumers").classes("q-heading")
        _readers(self._name, found.readers)
        ui.label("Producers").classes("q-heading")
        _producers(found.producers, paged=self._view is not None and self._view.page.pages > 1)

    # --- changes ----------------------------------------------------------------------------

    async def _change(self) -> None:
        await change_dialog(self._session, self._name, self._part.refresh)

    async def _delete(self) -> None:
        sure = await confirmed(
            "Delete this topic?",
            self._name,
            ["Its records are lost, for all groups."],
            "Delete the topic",
        )
        if not sure:
            return
        try:
            with audited(self._session, "delete topic", self._name):
                answer = await topics.delete(self._session.cluster, [self._name])
                for code, message in answer.values():
                    check(code, f"topic {self._name!r}", message)
        except ClientError as e:
            ui.notify(formats.shown(str(e), 300), type="negative")
            return
        ui.navigate.to("/topics")


def _lost(found: Sequence[LostRecords]) -> None:
    for each in found[:_MOST_LOST]:
        states.problem(
            f"the records {each.first:,} to {each.end - 1:,} of partition {each.partition} are "
            "lost to damage; fetches of them get CORRUPT_MESSAGE",
            "put the damaged file back, or run `quafka wal repair` (docs/wal.md)",
        )
    if len(found) > _MOST_LOST:
        ui.label(f"and {len(found) - _MOST_LOST:,} more lost ranges").classes("q-soft")


def _facts(found: tuple[TopicTotals, TopicView]) -> None:
    totals, view = found
    policy = next((c.value for c in view.configs or () if c.name == "cleanup.policy"), None)
    rate = "–" if totals.rate is None else f"{totals.rate:,.1f} per second"
    facts = [
        ("partitions", formats.number(view.page.total)),
        ("records", formats.number(totals.records)),
        ("new records", rate),
        ("size", formats.size(totals.bytes)),
        ("cleanup", policy or formats.NOTHING),
        ("largest partition", "–" if totals.skew is None else f"{totals.skew:.1f} × the mean"),
        ("topic id", view.uuid or formats.NOTHING),
    ]
    with ui.row().classes("w-full q-facts"):
        for name, value in facts:
            with ui.column().classes("gap-0"):
                ui.label(name).classes("q-soft text-caption")
                ui.label(formats.shown(value)).classes("q-fact")


def _mean(page: PageOf[PartitionRow]) -> float:
    """The records of a mean partition of the page."""
    return sum(max(0, each.end - each.start) for each in page.rows) / max(1, len(page.rows))


def _partition(topic: str, part: PartitionRow, mean: float) -> list[str | Shown]:
    records = max(0, part.end - part.start)
    skewed = mean > 0 and records > _SKEWED * mean
    return [
        str(part.partition),
        formats.number(part.start),
        formats.number(part.end),
        Shown(formats.number(records), bad=skewed),
        formats.size(part.bytes),
        str(part.leader),
        Shown("read", href=address.link("/messages", topic=topic, partition=str(part.partition))),
    ]


def _compaction(partition: int, each: Compaction) -> list[str | Shown]:
    saved = f"{each.bytes_after / each.bytes_before:.0%}" if each.bytes_before else "–"
    return [
        str(partition),
        formats.size(each.clean_bytes),
        formats.size(each.dirty_bytes),
        "yes" if each.due else "no",
        saved,
    ]


def _config(config: Config) -> list[str | Shown]:
    return [
        config.name,
        formats.shown(config.value if config.value is not None else "(secret)"),
        "" if is_default(config) else config.source,
    ]


def _readers(topic: str, readers: Sequence[LagByTopic] | None) -> None:
    if readers is None:
        with ui.row().classes("items-center gap-2"):
            ui.label(f"There are more than {MOST_GROUPS:,} groups, too many to look at each.")
            ui.link("Groups", "/groups")
        return
    if not readers:
        states.empty("No group reads this topic, or has offsets in it")
        return
    table(_READERS, [_reader(topic, each) for each in readers[:_MOST_READERS]])
    if len(readers) > _MOST_READERS:
        ui.label(f"and {len(readers) - _MOST_READERS:,} more, with less lag").classes("q-soft")


def _reader(topic: str, each: LagByTopic) -> list[str | Shown]:
    group, lag = each.summary, each.topics[topic]
    left = not group.members and bool(lag.lag)
    done = lag.lag == 0
    return [
        Shown(formats.shown(group.group), href=address.link("/group", name=group.group)),
        group.kind,
        Shown(group.state, bad=left),
        formats.number(lag.members),
        Shown(formats.number(lag.lag), bad=left),
        "caught up" if done else formats.duration(lag.behind_seconds),
        "" if done else formats.duration(lag.catch_up_seconds),
    ]


def _producers(found: ProducerRows | str | None, *, paged: bool) -> None:
    where = "these partitions" if paged else "this topic"
    if found is None or isinstance(found, str):
        states.empty(found or "The server does not report producers")
    elif not found.rows:
        states.empty(
            f"No producer of {where} is known",
            "Only idempotent and transactional producers are, for a time after their last record.",
        )
    else:
        table(_PRODUCERS, [_producer(each) for each in found.rows])
        if found.total > len(found.rows):
            more = found.total - len(found.rows)
            ui.label(f"and {more:,} more of {where}, which wrote earlier").classes("q-soft")


def _producer(each: ProducerRow) -> list[str | Shown]:
    identity = str(each.producer_id)
    return [
        str(each.partition),
        Shown(identity, href=address.link("/transactions", search=identity)),
        str(each.epoch),
        formats.number(each.last_sequence if each.last_sequence >= 0 else None),
        moment(each.last_ms / 1_000) if each.last_ms >= 0 else formats.NOTHING,
        "" if each.open_from is None else formats.number(each.open_from),
    ]
