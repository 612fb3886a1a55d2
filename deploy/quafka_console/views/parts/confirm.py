"""The dialog before a destructive act: the name of what it destroys has to be typed."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from quafka_console.views.parts.formats import shown


async def confirmed(title: str, name: str, consequences: Sequence[str], act: str) -> bool:
    """Whether the user typed the name and pressed the button `act`."""
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label(title).classes("text-h6")
        for each in consequences:
            ui.label(each)
        ui.label("To confirm, type this name:").classes("q-soft")
        ui.label(shown(name)).classes("q-mono")
        typed = ui.input(label="name").props("autofocus outlined dense").classes("w-full")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            go = ui.button(act, color="negative", on_click=lambda: dialog.submit(True))
            go.props("no-caps")
        go.bind_enabled_from(typed, "value", lambda value: (value or "") == name)
    answer = await dialog
    discard(dialog)
    return answer is True and typed.value == name


def discard(dialog: ui.dialog) -> None:
    """Delete a dialog that has ended, unless its page is gone."""
    if not dialog.is_deleted:
        dialog.delete()
