"""The page on which a person signs in as a Kafka user."""

from __future__ import annotations

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_client.sasl import PLAIN, Credentials
from quafka_client.scram import HASHES
from quafka_console.session import People
from quafka_console.views.parts import formats

_MECHANISMS = [*HASHES, PLAIN]


def show(people: People, browser: str, target: str) -> None:
    """Build the page; it leads to `target`."""
    with ui.card().classes("q-sign-in"):
        ui.label("Sign in").classes("text-h5")
        ui.label("As a Kafka user: you see and do what that user may.").classes("q-soft")
        name = ui.input("User").props('outlined dense autofocus autocomplete="username"')
        password = ui.input("Password", password=True).props(
            'outlined dense autocomplete="current-password"'
        )
        mechanism = ui.select(_MECHANISMS, value=_MECHANISMS[0], label="Mechanism")
        mechanism.props("outlined dense")
        problem = ui.label().classes("q-bad")

        async def sign_in() -> None:
            button.disable()
            try:
                credentials = Credentials(mechanism.value, name.value or "", password.value or "")
                await people.sign_in(browser, credentials)
            except ClientError as e:
                problem.set_text(formats.shown(str(e), 400))
            else:
                ui.navigate.to(target)
            finally:
                password.set_value("")
                button.enable()

        button = ui.button("Sign in", on_click=sign_in)
        password.on("keydown.enter", sign_in)
        for each in (name, password, mechanism, button):
            each.classes("w-full")
