"""One record in full."""

from __future__ import annotations

import asyncio

from nicegui import ui

from quafka_console.data.messages.decoded_values import DecodedValue, ValueDecoder
from quafka_console.data.messages.folding import Node, folded
from quafka_console.data.messages.records import Outcome, ReadRecord
from quafka_console.data.messages.texts import text_of, whole_of
from quafka_console.views.parts import formats, states
from quafka_console.views.parts.address import record_path
from quafka_console.views.parts.confirm import discard
from quafka_console.views.parts.table import Column, table

_LONG = 10
"""Lines of JSON above which it can be folded."""
_OUTCOMES = {
    Outcome.COMMITTED: "Its transaction was committed.",
    Outcome.ABORTED: "Its transaction was aborted: consumers with isolation.level=read_committed "
    "do not get it.",
    Outcome.HELD: "Consumers with isolation.level=read_committed do not get it yet: its "
    "transaction, or an earlier one of the partition, is open.",
}  # fmt: skip


async def open_record(
    topic: str, record: ReadRecord, decoder: ValueDecoder, *, may_copy: bool
) -> bool:
    """Show one of a topic in full; return whether the user wants a copy of it."""
    parts = (record.key, record.value)
    values = [await asyncio.to_thread(decoder.decoded, each) for each in parts]
    texts = [await asyncio.to_thread(whole_of, each) for each in parts]
    trees = [await asyncio.to_thread(folded, each) for each in parts]
    with ui.dialog() as dialog, ui.card().classes("q-record"):
        with ui.row().classes("items-center w-full"):
            ui.label(f"Partition {record.partition}, offset {record.offset:,}").classes("text-h6")
            ui.space()
            ui.link("Path", record_path(topic, record.partition, record.offset)).tooltip(
                "the requests that produced and delivered it"
            )
            if may_copy:
                copy = ui.button("Copy", on_click=lambda: dialog.submit(True))
                copy.props("flat dense no-caps").tooltip("produce a record like this one")
            ui.button(icon="close", on_click=dialog.close).props(
                'flat dense round aria-label="close"'
            )
        ui.label(formats.utc(record.timestamp / 1_000)).classes("q-soft")
        if record.outcome:
            ui.label(_OUTCOMES[record.outcome]).classes("q-soft")
        for name, data, text, tree, decoded in zip(
            ("Key", "Value"), parts, texts, trees, values, strict=True
        ):
            size = "" if data is None else f", {formats.size(data.size)}"
            ui.label(f"{name}{size}").classes("q-heading")
            if decoded is not None:
                ui.label(_schema(decoded)).classes("q-soft")
                if decoded.problem:
                    states.problem(decoded.problem)
                else:
                    _shown(decoded.text)
                    ui.label("as it is stored").classes("q-soft")
            _shown(text)
            if tree and text.count("\n") > _LONG:
                _fold(tree)
        if record.headers:
            ui.label("Headers").classes("q-heading")
            rows = [
                (formats.shown(name), formats.shown(text_of(value)))
                for name, value in record.headers
            ]
            table((Column("name", "Name"), Column("value", "Value", wide=True)), rows)
            if len(rows) < record.all_headers:
                ui.label(f"{len(rows):,} of {record.all_headers:,} headers").classes("q-soft")
    wants_copy = await dialog
    discard(dialog)
    return wants_copy is True


def _shown(text: str) -> None:
    with ui.element("pre").classes("q-mono q-value"):
        ui.label(_visible(text))


def _fold(nodes: list[Node]) -> None:
    """The tree of a JSON value, made when it is asked for."""

    def show() -> None:
        if box.default_slot.children:
            return
        with box:
            words = ui.input(placeholder="search the value").props("dense outlined clearable")
            tree = ui.tree(_visible_nodes(nodes)).classes("q-mono")
            words.on_value_change(lambda event: _search(tree, str(event.value or "")))

    with ui.expansion("Fold and search", on_value_change=show).classes("w-full") as box:
        pass


def _search(tree: ui.tree, words: str) -> None:
    tree.filter = words
    tree.expand() if words else tree.collapse()


def _visible_nodes(nodes: list[Node]) -> list[Node]:
    """The nodes with the control characters of their labels visible."""
    return [
        {
            **each,
            "label": formats.shown(each["label"], 1_100),
            **({"children": _visible_nodes(each["children"])} if "children" in each else {}),
        }
        for each in nodes
    ]


def _schema(decoded: DecodedValue) -> str:
    """Which schema a value has."""
    subjects = f" of {', '.join(decoded.subjects)}" if decoded.subjects else ""
    return formats.shown(f"{decoded.kind.title()} schema {decoded.number}{subjects}".lstrip())


def _visible(text: str) -> str:
    """A text of several lines with its control characters visible."""
    return "\n".join(formats.shown(line, 1 << 20) for line in text.split("\n"))
