"""Transactions: those that are open, those that hang, and one with what it holds back."""

from __future__ import annotations

from nicegui import ui

from quafka_client import transactions
from quafka_client.errors import ClientError
from quafka_client.transactions import OpenPartition, TransactionDetails, TransactionSummary
from quafka_console.data.paging import PageOf
from quafka_console.data.transactions import hangs, transaction_page
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.table import Column, Shown, table
from quafka_console.views.searched import SearchedList
from quafka_loop import clock

PATH, ONE_PATH = "/transactions", "/transaction"
_COLUMNS = (
    Column("id", "Transactional id", wide=True),
    Column("state", "State"),
    Column("open", "Open for", numeric=True),
    Column("timeout", "Timeout", numeric=True),
    Column("partitions", "Partitions", numeric=True),
    Column("producer", "Producer id", numeric=True),
)
_PARTITIONS = (
    Column("topic", "Topic", wide=True),
    Column("partition", "Partition", numeric=True),
    Column("first", "First offset", numeric=True),
    Column("stable", "Last stable offset", numeric=True),
    Column("end", "End", numeric=True),
    Column("held", "Held back", numeric=True),
)


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the list."""

    async def read(search: str, number: int) -> PageOf[TransactionSummary]:
        return await transaction_page(session.cluster, search, number, _now_ms())

    await SearchedList(
        PATH, "transactional ids", _COLUMNS, read, _row,
        ("No transactional ids", "A producer with a transactional.id appears here."),
    ).build(query)  # fmt: skip


def _row(each: TransactionSummary) -> list[str | Shown]:
    bad = hangs(each)
    timeout = each.timeout_seconds
    return [
        Shown(
            formats.shown(each.transactional_id),
            href=address.link(ONE_PATH, name=each.transactional_id),
        ),
        each.state,
        Shown("" if each.open_seconds is None else formats.duration(each.open_seconds), bad=bad),
        "" if timeout is None else formats.duration(timeout),
        "" if each.partitions is None else formats.number(each.partitions),
        str(each.producer_id),
    ]


async def show_one(session: ConsoleSession, query: Query) -> None:
    """Build the page of one transactional id."""
    name = query.get("name", "")

    async def abort() -> None:
        sure = await confirmed(
            "Abort this transaction?", name,
            ["Its records are discarded: consumers with read_committed never see them.",
             "Its producer is fenced: it gets an error at its next request and must start again."],
            "Abort the transaction",
        )  # fmt: skip
        if not sure:
            return
        try:
            with audited(session, "abort transaction", name):
                await transactions.abort(session.cluster, name)
        except ClientError as e:
            ui.notify(formats.shown(str(e), 300), type="negative")
        await part.refresh()

    with ui.row().classes("items-center w-full gap-3"):
        ui.label(formats.shown(name)).classes("text-h5 q-name")
        ui.space()
        button = ui.button("Abort", icon="cancel", on_click=abort)
        button.props("outline dense no-caps color=negative").set_visibility(False)

    async def read() -> TransactionDetails:
        return await transactions.describe(session.cluster, name, _now_ms())

    def fill(found: TransactionDetails) -> None:
        button.set_visibility(session.may_write and found.open_seconds is not None)
        _fill(found)

    part = LivePart(read, fill)

    await part.start()


def _fill(found: TransactionDetails) -> None:
    late = found.open_seconds is not None and found.open_seconds > found.timeout_seconds
    with ui.row().classes("w-full q-facts"):
        for label, value in (
            ("state", found.state),
            ("open for", "not open" if found.open_seconds is None
             else formats.duration(found.open_seconds)),
            ("timeout", formats.duration(found.timeout_seconds)),
            ("started", "" if found.started_ms is None else formats.utc(found.started_ms / 1e3)),
            ("producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
            ("coordinator", found.coordinator),
        ):  # fmt: skip
            if value:
                with ui.column().classes("gap-0"):
                    ui.label(label).classes("q-soft text-caption")
                    ui.label(value).classes("q-fact")
    if late:
        states.problem(
            "the transaction is open though its timeout has passed; if its producer is gone, "
            "abort it"
        )
    if not found.partitions:
        states.empty("No partitions in an open transaction")
        return
    ui.label("What it holds back").classes("q-heading")
    table(_PARTITIONS, [_partition(each) for each in found.partitions[:500]])


def _partition(each: OpenPartition) -> list[str | Shown]:
    return [
        Shown(formats.shown(each.topic), href=address.link("/topic", name=each.topic)),
        str(each.partition),
        formats.number(each.first_offset),
        formats.number(each.last_stable_offset),
        formats.number(each.high_watermark),
        formats.number(each.held_back),
    ]
