"""The list of topics, and the dialog that creates one."""

from __future__ import annotations

from nicegui import ui

from quafka_client import topics
from quafka_client.errors import ClientError, check
from quafka_console.data.paging import PageOf
from quafka_console.data.topics import TopicRow, topic_page
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.table import Column, Shown
from quafka_console.views.searched import SearchedList

PATH = "/topics"
_COLUMNS = (
    Column("topic", "Topic", wide=True),
    Column("partitions", "Partitions", numeric=True),
    Column("records", "Records", numeric=True),
    Column("rate", "New per second", numeric=True),
    Column("bytes", "Size", numeric=True),
    Column("policy", "Cleanup"),
    Column("messages", "Messages"),
)
_MOST_PARTITIONS = 10_000


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""

    async def read(search: str, number: int) -> PageOf[TopicRow]:
        return await topic_page(session.cluster, search, number)

    if session.may_write:
        button = ui.button("Create a topic", icon="add", on_click=lambda: _create(session))
        button.props("outline dense no-caps")
    await SearchedList(
        PATH, "topics", _COLUMNS, read, _row,
        ("No topics yet", "A producer creates its topic, or: quafka topics create orders -p 3"),
    ).build(query)  # fmt: skip


def _row(topic: TopicRow) -> list[str | Shown]:
    return [
        Shown(formats.shown(topic.name), href=address.link("/topic", name=topic.name)),
        formats.number(topic.partitions),
        formats.number(topic.totals.records),
        formats.NOTHING if topic.totals.rate is None else f"{topic.totals.rate:,.1f}",
        formats.size(topic.totals.bytes),
        topic.policy,
        Shown("read", href=address.link("/messages", topic=topic.name)),
    ]


def _create(session: ConsoleSession) -> None:
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label("Create a topic").classes("text-h6")
        name = ui.input("Name").props("outlined dense autofocus").classes("w-full")
        partitions = ui.number("Partitions", value=3, min=1, max=_MOST_PARTITIONS, precision=0)
        partitions.props("outlined dense").classes("w-full")
        problem = ui.label().classes("q-bad")

        async def create() -> None:
            try:
                with audited(session, "create topic", name.value or ""):
                    answer = await topics.create(
                        session.cluster, name.value or "", int(partitions.value or 1), -1, {},
                        validate_only=False,
                    )  # fmt: skip
                    check(answer.error_code, f"topic {name.value!r}", answer.error_message)
            except ClientError as e:
                problem.set_text(formats.shown(str(e), 400))
                return
            ui.navigate.to(address.link("/topic", name=name.value or ""))

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Create", on_click=create).props("no-caps")
    dialog.open()
