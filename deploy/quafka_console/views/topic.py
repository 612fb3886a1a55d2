"""One topic: its partitions, its configs with their changes, and the groups that read it."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from quafka_client import configs, topics
from quafka_client.configs import Config, ConfigResourceKind
from quafka_client.errors import ClientError, check
from quafka_client.topics import Compaction, PartitionDetails, TopicDetails
from quafka_console.data.paging import page_of
from quafka_console.data.topics import changes_of, is_default, records_of, skew_of
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import address, formats, states
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed
from quafka_console.views.parts.live import LivePart
from quafka_console.views.parts.table import Column, Shown, pager, table

PATH = "/topic"
_SKEWED = 2.0
"""Times the mean, from which on the largest partition is marked."""
_PARTITIONS = (
    Column("partition", "Partition", numeric=True),
    Column("start", "Start", numeric=True),
    Column("end", "End", numeric=True),
    Column("records", "Records", numeric=True),
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


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""
    name = query.get("name", "")
    page = query.get("page", "0")
    view = _TopicView(session, name, int(page) if page.isdecimal() and len(page) < 9 else 0)
    await view.build()


class _TopicView:
    """The page of a topic; it reads the topic again every few seconds."""

    def __init__(self, session: ConsoleSession, name: str, number: int) -> None:
        self._session = session
        self._name = name
        self._number = number
        self._defaults = False
        self._part: LivePart[tuple[TopicDetails, int, bool]] | None = None

    async def build(self) -> None:
        """Build the page and show the topic."""
        with ui.row().classes("items-center w-full gap-3"):
            ui.label(formats.shown(self._name)).classes("text-h5 q-name")
            ui.space()
            ui.link("Messages", address.link("/messages", topic=self._name))
            if self._session.may_write:
                ui.button("Change a config", icon="edit", on_click=self._change).props(
                    "outline dense no-caps"
                )
                ui.button("Delete", icon="delete", on_click=self._delete).props(
                    "outline dense no-caps color=negative"
                )
        self._part = LivePart(self._read, self._fill)
        await self._part.start()

    async def _read(self) -> tuple[TopicDetails, int, bool]:
        found = await topics.describe(self._session.cluster, self._name)
        return found, self._number, self._defaults

    def _fill(self, found: tuple[TopicDetails, int, bool]) -> None:
        topic, number, _ = found
        _facts(topic)
        ui.label("Partitions").classes("q-heading")
        page = page_of(topic.partitions, number=number)
        mean = (records_of(topic) or 0) / max(1, len(topic.partitions))
        table(_PARTITIONS, [_partition(self._name, each, mean) for each in page.rows])
        pager(page, "partitions", self._go)
        if topic.compaction:
            ui.label("Compaction").classes("q-heading")
            table(_COMPACTION, [_compaction(each) for each in topic.compaction[:50]])
        ui.label("Configs").classes("q-heading")
        if topic.configs is None:
            states.empty("The server does not report configs")
            return
        chosen = [each for each in topic.configs if self._defaults or not is_default(each)]
        if chosen:
            table(_CONFIGS, [_config(each) for each in chosen])
        else:
            ui.label("All configs have their defaults.").classes("q-soft")
        ui.switch("Show defaults", value=self._defaults, on_change=self._switch)

    async def _switch(self) -> None:
        self._defaults = not self._defaults
        await self._refresh()

    async def _go(self, number: int) -> None:
        self._number = number
        address.keep(address.link(PATH, name=self._name, page=number))
        await self._refresh()

    async def _refresh(self) -> None:
        if self._part is not None:
            await self._part.refresh()

    async def _change(self) -> None:
        found = await _described(self._session, self._name)
        if found is not None:
            _change_dialog(self._session, self._name, found, self._refresh)

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


def _facts(topic: TopicDetails) -> None:
    skew = skew_of(topic)
    policy = next((c.value for c in topic.configs or () if c.name == "cleanup.policy"), None)
    facts = [
        ("partitions", formats.number(len(topic.partitions))),
        ("records", formats.number(records_of(topic))),
        ("cleanup", policy or formats.NOTHING),
        ("largest partition", "–" if skew is None else f"{skew:.1f} × the mean"),
        ("topic id", topic.uuid or formats.NOTHING),
    ]
    with ui.row().classes("w-full q-facts"):
        for name, value in facts:
            with ui.column().classes("gap-0"):
                ui.label(name).classes("q-soft text-caption")
                ui.label(formats.shown(value)).classes("q-fact")


def _partition(topic: str, part: PartitionDetails, mean: float) -> list[str | Shown]:
    records = max(0, part.high_watermark - part.log_start_offset)
    skewed = mean > 0 and records > _SKEWED * mean
    return [
        str(part.partition),
        formats.number(part.log_start_offset),
        formats.number(part.high_watermark),
        Shown(formats.number(records), bad=skewed),
        str(part.leader),
        Shown("read", href=address.link("/messages", topic=topic, partition=str(part.partition))),
    ]


def _compaction(each: Compaction) -> list[str | Shown]:
    saved = f"{each.bytes_after / each.bytes_before:.0%}" if each.bytes_before else "–"
    return [
        str(each.partition),
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


async def _described(session: ConsoleSession, name: str) -> Sequence[Config] | None:
    try:
        found = await configs.describe(
            session.cluster, ConfigResourceKind.TOPIC, [name], documentation=True
        )
    except ClientError as e:
        ui.notify(formats.shown(str(e), 300), type="negative")
        return None
    return [each for each in found[name] if not each.read_only]


def _change_dialog(
    session: ConsoleSession, name: str, found: Sequence[Config], done: object
) -> None:
    """Choose a config and a value; see before and after; apply."""
    known = {each.name: each for each in found}
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label("Change a config").classes("text-h6")
        chosen = ui.select(sorted(known), label="Config", with_input=True).classes("w-full")
        about = ui.label().classes("q-soft")
        value = ui.input("New value; empty: the default").classes("w-full")
        preview = ui.label().classes("q-mono")
        problem = ui.label().classes("q-bad")

        def wanted() -> dict[str, str | None]:
            return {chosen.value: value.value or None} if chosen.value else {}

        def look() -> None:
            config = known.get(chosen.value or "")
            about.set_text("" if config is None else formats.shown(config.documentation or "", 600))
            texts = [
                f"{each.name}: {_value(each.before)} → {_value(each.after)}"
                for each in changes_of(found, wanted())
            ]
            preview.set_text(formats.shown("; ".join(texts) or "nothing changes"))

        chosen.on_value_change(look)
        value.on_value_change(look)

        async def apply() -> None:
            changes = {each.name: each.after for each in changes_of(found, wanted())}
            if not changes:
                dialog.close()
                return
            try:
                with audited(session, f"change config {', '.join(changes)}", name):
                    await configs.alter(session.cluster, ConfigResourceKind.TOPIC, name, changes)
            except ClientError as e:
                problem.set_text(formats.shown(str(e), 400))
                return
            dialog.close()
            ui.notify("The config was changed", type="positive")

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Apply", on_click=apply)
    dialog.open()


def _value(value: str | None) -> str:
    return "the default" if value is None else repr(value)
