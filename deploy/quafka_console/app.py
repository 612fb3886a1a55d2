"""The pages of the console, the frame around them, and what protects them."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quafka_client.errors import ClientError
from quafka_client.registry.client import SchemaRegistry
from quafka_console.data.rates import Rates
from quafka_console.data.status_reader import OperationsPort
from quafka_console.data.traces.receiver import TraceReceiver
from quafka_console.data.traces.store import TraceStore
from quafka_console.session import ConsoleSession, People, Person, Query
from quafka_console.unopened import UnopenedPages
from quafka_console.views import (
    acls,
    audit,
    download,
    group,
    groups,
    messages,
    orgs,
    overview,
    quotas,
    record,
    shards,
    sign_in,
    slow,
    snapshots,
    topic,
    topics,
    trace,
    traces,
    transactions,
    users,
)
from quafka_console.views.parts import address, formats, states

_STYLE = Path(__file__).parent / "views" / "parts" / "console.css"
_POLICY = (
    # NiceGUI's page has inline scripts, and its Vue compiles templates in the browser.
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_LIFETIME = 12 * 3600
"""Seconds of a browser's session."""

Show = Callable[[ConsoleSession, Query], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `group`: where the navigation has it; "": nowhere."""

    path: str
    title: str
    show: Show
    icon: str = ""
    group: str = ""


PAGES: Sequence[Page] = (
    Page("/", "Overview", overview.show, "dashboard", "cluster"),
    Page("/topics", "Topics", topics.show, "topic", "records"),
    Page("/topic", "Topic", topic.show),
    Page(messages.PATH, "Messages", messages.show),
    Page(groups.PATH, "Groups", groups.show, "groups", "records"),
    Page(group.PATH, "Group", group.show),
    Page(transactions.PATH, "Transactions", transactions.show, "swap_horiz", "records"),
    Page(transactions.ONE_PATH, "Transaction", transactions.show_one),
    Page(traces.PATH, "Traces", traces.show, "timeline", "cluster"),
    Page(trace.PATH, "Trace", trace.show),
    Page(record.PATH, "Path of a record", record.show),
    Page(slow.PATH, "Slow requests", slow.show, "hourglass_bottom", "cluster"),
    Page(shards.PATH, "Brokers", shards.show, "hub", "cluster"),
    Page(snapshots.PATH, "Snapshots", snapshots.show, "photo_camera", "cluster"),
    Page(users.PATH, "Users", users.show, "person", "access"),
    Page(acls.PATH, "ACLs", acls.show, "rule", "access"),
    Page(quotas.PATH, "Quotas", quotas.show, "speed", "access"),
    Page(orgs.PATH, "Orgs", orgs.show, "apartment", "access"),
    Page(audit.PATH, "Audit", audit.show, "fact_check", "access"),
)


async def _show_missing(_session: ConsoleSession, _query: Query) -> None:
    states.empty("There is no page at this address", "The menu has all pages.")
    ui.link("Overview", "/")


_MISSING = Page("/", "No such page", _show_missing)


@dataclass(frozen=True, slots=True)
class Console:
    """What the pages are made of. `trace_url`: see the setting console.trace.url."""

    people: People
    operations: Sequence[OperationsPort]
    rates: Rates
    traces: TraceStore
    receiver: TraceReceiver
    trace_url: str
    registry: SchemaRegistry | None
    read_only: bool
    hosts: frozenset[str]
    unopened: UnopenedPages = field(default_factory=UnopenedPages)

    def asgi(self) -> ASGIApp:
        """The console as a web application. Once in a process: NiceGUI's pages are global."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        app.add_api_route("/v1/traces", self._receive, methods=["POST"])
        # NiceGUI's own application knows the browser's session.
        nicegui_app.add_api_route(sign_in.CLAIM_PATH, self._claim, methods=["GET"])
        app.add_api_route("/v1/metrics", _ignore, methods=["POST"])
        for page in PAGES:
            self._add(page)
        nicegui_app.add_api_route(download.PATH, self._download)
        ui.run_with(  # pyright: ignore[reportUnknownMemberType]
            app,
            root=self._missing(),
            title="Quafka",
            dark=None,
            language="en-US",
            storage_secret=secrets.token_hex(32),
            session_middleware_kwargs={"same_site": "strict", "max_age": _LIFETIME},
            show_welcome_message=False,
            tailwind=True,
            reconnect_timeout=30.0,
        )
        return Protected(app, self.hosts)

    async def _receive(self, request: Request) -> Response:
        """OTLP over HTTP: keep the spans of an exporter."""
        headers = request.headers
        answer = await self.receiver.receive(
            headers.get("authorization", "").encode("latin-1"),
            headers.get("content-encoding", ""),
            request.stream(),
        )
        if answer.status != 200:
            return PlainTextResponse(f"{answer.text}\n", answer.status)
        return Response(media_type="application/x-protobuf")

    async def _claim(self, request: Request) -> Response:
        """Give the browser the session of who has just signed in with it."""
        session = request.query_params.get("session", "")
        if self.people.claim(session, request.session["id"]):
            request.session["id"] = session
        target = urlsplit(request.query_params.get("to", ""))
        return RedirectResponse(urlunsplit(("", "", target.path or "/", target.query, "")), 303)

    def _add(self, page: Page) -> None:
        title = f"{page.title} · Quafka"
        ui.page(page.path, title=title, response_timeout=15.0)(self._shown(page))

    def _missing(self) -> Callable[[Request], Awaitable[None]]:
        """What NiceGUI shows for every path that has no page."""
        show = self._shown(_MISSING)

        async def missing(request: Request) -> None:
            ui.context.client.status_code = 404
            await show(request)

        return missing

    def _shown(self, page: Page) -> Callable[[Request], Awaitable[None]]:
        async def shown(request: Request) -> None:
            await build(request)
            self.unopened.add(ui.context.client)

        async def build(request: Request) -> None:
            browser = _browser()
            ui.add_css(_STYLE)
            try:
                person = await self.people.find(browser)
            except ClientError as e:
                with self._frame(page, None):
                    states.problem(str(e))
                return
            if person is None:
                target = address.link_of(page.path, request.query_params)
                sign_in.show(self.people, browser, target)
                return
            session = self._session(person, request)
            with self._frame(page, person):
                try:
                    await page.show(session, request.query_params)
                except ClientError as e:
                    states.problem(str(e))

        return shown

    def _session(self, person: Person, request: Request) -> ConsoleSession:
        return ConsoleSession(
            person.cluster, person.user, self.operations, self.rates, self.traces,
            str(request.base_url).rstrip("/"), not self.read_only,
            not self.people.must_sign_in, self.trace_url, self.registry,
        )  # fmt: skip

    async def _download(self, request: Request) -> Response:
        """The records that somebody has selected, as a file."""
        try:
            person = await self.people.find(_browser())
        except ClientError as e:
            return PlainTextResponse(f"{e}\n", 502)
        if person is None:
            return PlainTextResponse("sign in first\n", 401)
        return await download.respond(self._session(person, request), request)

    def _frame(self, page: Page, person: Person | None) -> ui.column:
        """Navigation, and a column for the page's content."""
        dark = ui.dark_mode(None if person is None else person.dark)

        def switch() -> None:
            dark.set_value(not dark.value)
            if person is not None:
                person.dark = dark.value

        side: list[ui.left_drawer] = []
        with ui.header().classes("q-top items-center"):
            ui.button(icon="menu", on_click=lambda: side[0].toggle()).props(  # noqa: PLW0108
                'flat dense round aria-label="navigation"'
            )
            ui.link("Quafka", "/").classes("q-brand")
            ui.label(page.title).classes("q-soft")
            ui.space()
            if self.read_only:
                ui.label("read only").classes("q-mark")
            if person is not None and person.user:
                ui.label(formats.shown(person.user, 40)).classes("q-soft")
            if self.people.must_sign_in and person is not None:
                ui.button(icon="logout", on_click=self._leave).props(
                    'flat dense round aria-label="sign out"'
                )
            ui.button(icon="contrast", on_click=switch).props(
                'flat dense round aria-label="light or dark"'
            )
        drawer = (
            ui.left_drawer(value=False)
            .props("show-if-above width=190 breakpoint=800")
            .classes("q-side")
        )
        side.append(drawer)
        with drawer:
            for each in PAGES:
                if each.group:
                    with ui.link(target=each.path).classes(
                        "q-nav" + (" q-here" if each is page else "")
                    ):
                        ui.icon(each.icon).props("aria-hidden=true")
                        ui.label(each.title)
        return ui.column().classes("q-page-body w-full gap-3")

    async def _leave(self) -> None:
        await self.people.sign_out(_browser())
        ui.navigate.to("/")


async def _ignore() -> Response:
    """OTLP's metrics, which go wherever traces go: the console reads those that it shows itself."""
    return Response(media_type="application/x-protobuf")


def _browser() -> str:
    """The id of the browser's session, from its signed cookie."""
    storage: Any = nicegui_app.storage
    return str(storage.browser["id"])


class Protected:
    """Refuses other sites: requests to a host that is not the console's (DNS rebinding), and
    cross-site ones that change something or open the websocket. Adds headers to each answer.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse(refusal, 403)(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = _POLICY
                headers["x-content-type-options"] = "nosniff"
                headers["x-frame-options"] = "DENY"
                headers["referrer-policy"] = "no-referrer"
                headers["cross-origin-opener-policy"] = "same-origin"
            await send(message)

        await self._app(scope, receive, sent)

    def _refusal(self, scope: Scope, headers: Headers) -> str:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"{host!r} is not a name of this console; add it to console.hosts to allow it\n"
        reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        origin = headers.get("origin")
        if origin is not None and not reads and urlsplit(origin).netloc != host:
            return "the request comes from another site\n"
        return ""

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
