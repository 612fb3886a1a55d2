"""Users with SCRAM credentials: set a password, remove a user."""

from __future__ import annotations

import asyncio

from nicegui import ui

from quafka_client import users
from quafka_client.errors import ClientError
from quafka_client.users import NUMBERS, User
from quafka_console.data.access import AccessQuery, remove_user, user_page
from quafka_console.data.paging import PageOf
from quafka_console.session import ConsoleSession, Query
from quafka_console.views.parts import formats
from quafka_console.views.parts.audit import audited
from quafka_console.views.parts.confirm import confirmed, discard
from quafka_console.views.parts.table import Column, Shown
from quafka_console.views.searched import SearchedList

PATH = "/users"
_ITERATIONS = 8_192
_SHORTEST, _LONGEST = 8, 4_096
_COLUMNS = (
    Column("user", "User", wide=True),
    Column("mechanisms", "Mechanisms"),
    Column("iterations", "Iterations", numeric=True),
)


async def show(session: ConsoleSession, query: Query) -> None:
    """Build the page."""

    async def read(search: str, number: int) -> PageOf[User]:
        return await user_page(session.cluster, AccessQuery(search, number))

    async def remove(user: User) -> None:
        if not session.may_write:
            return
        sure = await confirmed(
            "Remove this user?", user.user,
            ["All its credentials are removed, and its open connections are closed soon.",
             "Rules and quotas that name the user stay."], "Remove the user",
        )  # fmt: skip
        if sure:
            try:
                with audited(session, "remove user", user.user):
                    await remove_user(session.cluster, user)
            except ClientError as e:
                ui.notify(formats.shown(str(e), 300), type="negative")
            await found.refresh()

    found = SearchedList(
        PATH, "users", _COLUMNS, read, _row,
        ("No users with passwords", "Add one here, or by command.", "quafka users add NAME"),
        pick=remove if session.may_write else None, picks="Select a user to remove it.",
    )  # fmt: skip
    if session.may_write:

        async def add() -> None:
            await _password_dialog(session)
            await found.refresh()

        ui.button("Set a password", icon="person_add", on_click=add).props("outline dense no-caps")
    await found.build(query)


def _row(user: User) -> list[str | Shown]:
    return [
        formats.shown(user.user),
        ", ".join(each.mechanism for each in user.credentials),
        ", ".join(f"{each.iterations:,}" for each in user.credentials),
    ]


async def _password_dialog(session: ConsoleSession) -> None:
    with ui.dialog() as dialog, ui.card().classes("q-dialog-card"):
        ui.label("Set a password").classes("text-h6")
        ui.label("Creates the user if it does not exist.").classes("q-soft")
        name = ui.input(label="user").props("outlined dense autofocus").classes("w-full")
        password = ui.input(label="password", password=True, password_toggle_button=True)
        password.props("outlined dense autocomplete=new-password").classes("w-full")
        mechanism = ui.select(list(NUMBERS), value="SCRAM-SHA-512", label="mechanism")
        mechanism.props("outlined dense options-dense").classes("w-full")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps")
            ui.button("Set the password", on_click=lambda: dialog.submit(True)).props("no-caps")
    if await dialog:
        user, secret = (name.value or "").strip(), password.value or ""
        try:
            _check(user, secret)
            with audited(session, "set password of user", user):
                made = await asyncio.to_thread(
                    users.salted, user, secret, [str(mechanism.value)], _ITERATIONS
                )
                await users.set_password(session.cluster, made)
            ui.notify(f"the password of {formats.shown(user)} is set", type="positive")
        except ClientError as e:
            ui.notify(formats.shown(str(e), 300), type="negative")
    discard(dialog)


def _check(user: str, secret: str) -> None:
    """Raise ClientError unless these can be a user's name and password."""
    if not user or not _SHORTEST <= len(secret) <= _LONGEST:
        raise ClientError(f"a user needs a name, and a password of {_SHORTEST} characters or more")
