"""What a page shows instead of data: that there is none, or an error; and commands to run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_console.views.parts.formats import shown


def empty(what: str, hint: str = "", run: str = "") -> None:
    """There is nothing to show; `hint`: what to do next; `run`: with which command."""
    with ui.column().classes("q-empty items-center w-full gap-1"):
        ui.label(what).classes("text-subtitle1")
        if hint:
            ui.label(hint).classes("q-soft")
        if run:
            ui.label(run).classes("q-mono")


def problem(sentence: str, fix: str = "", page: tuple[str, str] | None = None) -> None:
    """An error, with its remedy, and the name and address of the page that shows more."""
    with ui.row().classes("q-problem items-center w-full no-wrap gap-2").props("role=alert"):
        ui.icon("error_outline").props("aria-hidden=true")
        with ui.column().classes("gap-0"):
            ui.label(shown(sentence, 600))
            if fix:
                ui.label(shown(fix, 600)).classes("q-soft")
        if page is not None:
            ui.space()
            ui.link(*page)


@contextmanager
def explained() -> Generator[None]:
    """Show an error of the client as a sentence in place of what it prevents."""
    try:
        yield
    except ClientError as e:
        problem(str(e))


def command(line: str, what: str = "") -> None:
    """A command to run in a shell, with a button that copies it."""
    with ui.column().classes("w-full gap-0"):
        if what:
            ui.label(what).classes("q-soft")
        with ui.row().classes("q-command items-center w-full no-wrap"):
            ui.label(line).classes("q-mono")
            ui.space()
            ui.button(icon="content_copy", on_click=lambda: ui.clipboard.write(line)).props(
                'flat dense round size=sm aria-label="copy"'
            )
