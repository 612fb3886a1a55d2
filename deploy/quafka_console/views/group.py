"""One group: members, assignments, lag with its chart, and the windows of a share group."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from quafka_client import groups
from quafka_client.errors import ClientError
from quafka_client.group_lag import ShownPartitionLag
from quafka_client.groups import GroupDetails, MemberDescription, keeps_copy_state
from quafka_console.data.groups import SHARE, delete
from quafka_console.data.lag_history import LagPoint
from quafka_console.data.paging import page_of
from quafka_console.data.share_groups import ShareWindow, share_windows
from quafka_console.session import ConsoleSession, ForOperatorsError, Query
from quafka_console.views.group_reset import reset_dialog
from quafka_console.views.parts import address, formats, lags, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.chart import line_chart, refill_chart
from quafka_console.views.parts.confirm import confirmed
from quafka_console.views.parts.live import keep_refreshing
from quafka_console.views.parts.operations import status_pages_of
from quafka_console.views.parts.table import Column, Shown, pager, table

PATH = "/group"
_UNKNOWN = "never at this rate, or unknown"
_MEMBERS = (
    Column("client", "Client", wide=True),
    Column("host", "Address"),
    Column("partitions", "Partitions", numeric=True),
    Column("assigned", "Assigned", wide=True),
    Column("lag", "Lag, records", numeric=True),
    Column("member", "Member id"),
)
_PARTITIONS = (
    Column("topic", "Topic", wide=True),
    Column("partition", "Partition", numeric=True),
    Column("committed", "Committed", numeric=True),
    Column("end", "End", numeric=True),
    Column("lag", "Lag, records", numeric=True),
    Column("behind", "Behind", numeric=True),
    Column("catch_up", "Caught up in", numeric=True),
    Column("client", "Client"),
)
_WINDOWS = (
    Column("topic", "Topic", wide=True),
    Column("partition", "Partition", numeric=True),
    Column("start", "Start", numeric=True),
    Column("end", "End", numeric=True),
    Column("held", "With members", numeric=True),
    Column("again", "To deliver again", numeric=True),
    Column("archived", "Given up", numeric=True),
    Column("deliveries", "Most deliveries", numeric=True),
    Column("record", "Of record", numeric=True),
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    name = query.get("name", "")
    view = _GroupView(session, name, address.page_of(query))
    await view.build()


class _GroupView:
    """The page of a group; it reads the group again every few seconds."""

    def __init__(self, session: ConsoleSession, name: str, number: int) -> None:
        self._session = session
        self._name = name
        self._number = number
        self._last: object = None

    async def build(self) -> None:
        """Build the page and show the group."""
        with ui.row().classes("items-center w-full gap-3"):
            ui.label(formats.shown(self._name)).classes("text-h5 q-name")
            ui.space()
            self._changes = ui.row().classes("gap-3")
            self._changes.set_visibility(False)
            if self._session.may_write:
                with self._changes:
                    ui.button("Reset offsets", icon="restart_alt", on_click=self._reset).props(
                        "outline dense no-caps"
                    )
                    ui.button("Delete", icon="delete", on_click=self._delete).props(
                        "outline dense no-caps color=negative"
                    )
        self._facts = ui.row().classes("w-full q-facts")
        self._chart_box = ui.column().classes("w-full q-card")
        with self._chart_box:
            self._chart = line_chart("Lag", ("records", "behind, seconds"))
        self._chart_box.set_visibility(False)
        self._body = ui.column().classes("w-full gap-3")
        await self.refresh()
        keep_refreshing(self.refresh)

    async def refresh(self) -> None:
        """Read the group, and show it if it has changed."""
        try:
            found = await groups.describe(self._session.cluster, self._name)
            windows = await self._windows(found)
        except ClientError as e:
            self._last = None
            if self._body.is_deleted:
                return
            self._chart_box.set_visibility(False)
            self._changes.set_visibility(False)
            self._body.clear()
            with self._body:
                states.problem(str(e))
            return
        lags.note(self._session, [found])
        if self._body.is_deleted:  # the page was left while the group was read
            return
        self._changes.set_visibility(True)
        points = lags.seen(self._session, self._name)
        self._chart_box.set_visibility(len(points) > 1)
        refill_chart(self._chart, _series(points))
        if self._last == (found, windows, self._number):
            return
        self._last = (found, windows, self._number)
        self._facts.clear()
        with self._facts:
            _facts(found)
        self._body.clear()
        with self._body:
            self._fill(found, windows)

    async def _windows(self, found: GroupDetails) -> list[ShareWindow] | None:
        """The windows of a share group; None: no broker's page could be read."""
        if found.kind != SHARE:
            return []
        try:
            read = await status_pages_of(self._session)
        except ForOperatorsError:
            return None
        if not any(page.program == "broker" for page in read.pages):
            return None
        return list(share_windows(read.pages, self._name).windows)

    def _fill(self, found: GroupDetails, windows: list[ShareWindow] | None) -> None:
        if found.members:
            ui.label("Members").classes("q-heading")
            table(_MEMBERS, [_member(each, found.partitions) for each in found.members])
        if found.kind == SHARE:
            self._fill_windows(windows)
        ui.label("Partitions").classes("q-heading")
        if not found.partitions:
            states.empty(
                "No committed offsets and no assigned partitions",
                "The group has not read anything yet. Reset its offsets to let it begin elsewhere.",
            )
            return
        page = page_of(found.partitions, number=self._number)
        followed = found.kind != SHARE
        columns = _PARTITIONS if followed else _PARTITIONS[:5]
        table(columns, [_partition(found.group, each)[: len(columns)] for each in page.rows])
        pager(page, "partitions", self._go)

    def _fill_windows(self, windows: list[ShareWindow] | None) -> None:
        ui.label("Records in flight").classes("q-heading")
        if windows is None:
            states.empty(
                "No broker's operations port can be read",
                "The setting console.operations names them, and only operators see them.",
            )
            return
        if not windows:
            states.empty("Nothing is in flight")
            return
        often = [each for each in windows if each.is_poison]
        for each in often[:5]:
            states.problem(
                f"record {each.at_offset:,} of {each.topic}, partition {each.partition}, was "
                f"delivered {each.most_deliveries} times without being accepted; after "
                f"{each.limit} deliveries it is given up"
            )
        orgs = {each.org for each in windows}
        if len(orgs) > 1:  # groups of this name, which only operators see
            ui.label(f"{len(orgs)} orgs have a group of this name").classes("q-soft")
            columns = (Column("org", "Org"), *_WINDOWS)
            rows = [[formats.shown(each.org), *_window(each)] for each in windows[:500]]
            table(columns, rows)
        else:
            table(_WINDOWS, [_window(each) for each in windows[:500]])

    async def _go(self, number: int) -> None:
        self._number = number
        address.keep(address.link(PATH, name=self._name, page=number))
        await self.refresh()

    async def _reset(self) -> None:
        await reset_dialog(self._session, self._name)
        await self.refresh()

    async def _delete(self) -> None:
        sure = await confirmed(
            "Delete this group?",
            self._name,
            [
                "Its committed offsets are lost: its consumers start anew (auto.offset.reset).",
                "A group with members is not deleted.",
            ],
            "Delete the group",
        )  # fmt: skip
        if not sure:
            return
        try:
            with audited(self._session, "delete group", self._name):
                await delete(self._session.cluster, self._name)
        except ClientError as e:
            ui.notify(formats.shown(str(e), 300), type="negative")
            return
        ui.navigate.to("/groups")


def _facts(found: GroupDetails) -> None:
    done = bool(found.partitions) and all(each.lag == 0 for each in found.partitions)
    protocol = f"{found.protocol_type} ({found.protocol})" if found.protocol else ""
    facts = [
        ("type", found.kind),
        ("state", found.state),
        ("members", formats.number(len(found.members))),
    ]
    copies = keeps_copy_state(found.group)
    if copies:
        facts.append(("keeps", "the position of a copy at its source, without which it is lost"))
    else:
        lag = "unknown" if found.lag is None else f"{formats.number(found.lag)} records"
        facts.append(("lag", lag))
    if found.kind != SHARE and not copies:
        facts += [
            ("behind", "caught up" if done else formats.duration(found.behind_seconds)),
            (
                "caught up in",
                "now" if done else _pace(found.catch_up_seconds, followed=bool(found.members)),
            ),
        ]
    facts += [("assignor", protocol or "none"), ("coordinator", found.coordinator)]
    if found.epoch is not None:
        facts.insert(3, ("epoch", str(found.epoch)))
    for name, value in facts:
        with ui.column().classes("gap-0"):
            ui.label(name).classes("q-soft text-caption")
            ui.label(formats.shown(value)).classes("q-fact")


def _member(member: MemberDescription, partitions: list[ShownPartitionLag]) -> list[str | Shown]:
    its = {(topic, n) for topic, numbers in member.partitions.items() for n in numbers}
    lag = sum(each.lag or 0 for each in partitions if (each.topic, each.partition) in its)
    assigned = ", ".join(
        f"{topic}: {_ranges(numbers)}" for topic, numbers in sorted(member.partitions.items())
    )
    return [
        formats.shown(member.client_id),
        formats.shown(member.host),
        formats.number(len(its)),
        Shown(formats.shown(assigned, 120) or formats.NOTHING, hint=formats.shown(assigned, 2_000)),
        formats.number(lag),
        Shown(formats.shown(member.member_id, 24), hint=formats.shown(member.member_id, 300)),
    ]


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as ranges: 0–3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in found)


def _partition(group: str, lag: ShownPartitionLag) -> list[str | Shown]:
    return [
        Shown(formats.shown(lag.topic), href=address.link("/topic", name=lag.topic)),
        str(lag.partition),
        formats.number(lag.committed_offset),
        formats.number(lag.high_watermark),
        formats.number(lag.lag),
        "caught up" if lag.lag == 0 else formats.duration(lag.behind_seconds),
        ""
        if lag.lag == 0 or keeps_copy_state(group)
        else _pace(lag.catch_up_seconds, followed=lag.client_id is not None),
        formats.shown(lag.client_id or formats.NOTHING),
    ]


def _pace(seconds: float | None, *, followed: bool) -> str:
    """The time until a group has caught up, or why there is none."""
    if not followed:
        return "never: no members"
    return _UNKNOWN if seconds is None else formats.duration(seconds)


def _window(each: ShareWindow) -> list[str | Shown]:
    record = formats.NOTHING if each.at_offset is None else formats.number(each.at_offset)
    href = (
        ""
        if each.at_offset is None
        else address.link(
            "/messages", topic=each.topic, partition=str(each.partition),
            offset=str(each.at_offset),
        )
    )  # fmt: skip
    limit = f" of {each.limit}" if each.limit else ""
    return [
        Shown(formats.shown(each.topic), href=address.link("/topic", name=each.topic)),
        str(each.partition),
        formats.number(each.start),
        formats.number(each.end),
        formats.number(each.held),
        formats.number(each.again),
        formats.number(each.archived),
        Shown(f"{each.most_deliveries}{limit}", bad=each.is_poison),
        Shown(record, href=href),
    ]


def _series(points: Sequence[LagPoint]) -> list[list[tuple[float, float | None]]]:
    return [
        [(each.at * 1_000, each.records) for each in points],
        [(each.at * 1_000, each.seconds) for each in points],
    ]
