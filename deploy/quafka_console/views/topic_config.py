"""The dialog that changes a config of a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from quafka_client import configs
from quafka_client.configs import Config, ConfigResourceKind
from quafka_client.errors import ClientError
from quafka_console.data.topics import changes_of
from quafka_console.session import ConsoleSession
from quafka_console.views.parts import formats
from quafka_console.views.parts.audit import audited


async def change_dialog(
    session: ConsoleSession, name: str, done: Callable[[], Awaitable[None]]
) -> None:
    """Choose a config and a value; see before and after; apply."""
    found = await _described(session, name)
    if found is None:
        return
    known = {each.name: each for each in found}
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label("Change a config").classes("text-h6")
        chosen = ui.select(sorted(known), label="Config", with_input=True).classes("w-full")
        chosen.props("outlined dense options-dense")
        about = ui.label().classes("q-soft")
        value = ui.input("New value; empty: the default").classes("w-full")
        value.props("outlined dense")
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
            await done()

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            ui.button("Apply", on_click=apply).props("no-caps")
    dialog.open()


def _value(value: str | None) -> str:
    return "the default" if value is None else repr(value)


async def _described(session: ConsoleSession, name: str) -> Sequence[Config] | None:
    try:
        found = await configs.describe(
            session.cluster, ConfigResourceKind.TOPIC, [name], documentation=True
        )
    except ClientError as e:
        ui.notify(formats.shown(str(e), 300), type="negative")
        return None
    return [each for each in found[name] if not each.read_only]
