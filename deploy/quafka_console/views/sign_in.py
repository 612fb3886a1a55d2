"""The page on which a person signs in as a Kafka user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from quafka_client.errors import ClientError
from quafka_client.sasl import PLAIN, Credentials
from quafka_client.scram import HASHES
from quafka_console.session import People, Person
from quafka_console.views.parts import address, formats

CLAIM_PATH = "/signed-in"
"""Where a browser gets the session of who has signed in, before it goes on."""
_MECHANISMS = [*HASHES, PLAIN]


def show(people: People, browser: str, target: str) -> None:
    """Build the page; it leads to `target`."""
    with ui.card().classes("q-sign-in"):
        ui.label("Sign in").classes("text-h5")
        ui.label("As a Kafka user: you see and do what that user may.").classes("q-soft")
        if people.token_claim:
            _with_token(people, browser, target)
        else:
            _with_password(people, browser, target)


def _with_password(people: People, browser: str, target: str) -> None:
    name = ui.input("User").props('outlined dense autofocus autocomplete="username"')
    password = ui.input("Password", password=True).props(
        'outlined dense autocomplete="current-password"'
    )
    mechanism = ui.select(_MECHANISMS, value=_MECHANISMS[0], label="Mechanism")
    mechanism.props("outlined dense")
    for each in (name, password, mechanism):
        each.classes("w-full")

    async def sign_in() -> Person:
        credentials = Credentials(mechanism.value, name.value or "", password.value or "")
        return await people.sign_in(browser, credentials)

    _button(password, sign_in, target)


def _with_token(people: People, browser: str, target: str) -> None:
    token = ui.input("Token", password=True).props(
        'outlined dense autofocus autocomplete="off" name="token"'
    )
    token.classes("w-full")

    async def sign_in() -> Person:
        return await people.sign_in_with_token(browser, (token.value or "").strip())

    problem = _button(token, sign_in, target)
    if people.has_expired(browser):
        problem.set_text("Your token has expired; sign in again with a new one.")


def _button(secret: ui.input, sign_in: Callable[[], Awaitable[Person]], target: str) -> ui.label:
    """The button, which empties the field of the secret, and the label of what went wrong."""
    problem = ui.label().classes("q-bad")

    async def clicked() -> None:
        button.disable()
        try:
            person = await sign_in()
        except ClientError as e:
            problem.set_text(formats.shown(str(e), 400))
        else:
            ui.navigate.to(address.link(CLAIM_PATH, session=person.session, to=target))
        finally:
            secret.set_value("")
            button.enable()

    button = ui.button("Sign in", on_click=clicked).classes("w-full")
    secret.on("keydown.enter", clicked)
    return problem
