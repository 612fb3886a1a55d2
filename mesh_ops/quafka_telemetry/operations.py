"""The operations port: a few HTTP pages on one process, for probes and people.

    /         redirects to /statusz (`status_page.py`)
    /livez    200 while the event loop runs
    /readyz   200 if the process can do its work, else 503; the body names each problem
    /mesh     the counters of each peer of a gateway or broker (`counters.py`)
    /metrics  for Prometheus (`exposition.py`); /metrics/detail has figures by partition and group

All but /livez and the status of /readyz may be restricted to holders of a token or a certificate
(`page_access.py`).

A connection serves one GET or HEAD request and is closed. A client can hold only little: a request
head has 8 KiB at most and must arrive within five seconds, and the number of connections is
bounded. A long answer is rendered while it is read: a few milliseconds of the loop at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import h11

from quafka_loop import clock
from quafka_telemetry.page_access import PageAccess
from quafka_telemetry.page_files import PageFiles
from quafka_telemetry.startup import StartupError

logger = logging.getLogger("quafka.operations")

_MAX_CONNECTIONS = 64
_MAX_HEAD = 8 << 10
_DEADLINE = 5.0
_ANSWER_DEADLINE = 30.0
_RELOAD_SECONDS = 2.0
_SLICE_SECONDS = 0.002
_SLICE_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page.

    Attributes:
        accept: the Accept header, "" without one.
        allowed: whether the client may read every page.
    """

    accept: str = ""
    allowed: bool = True


@dataclass(frozen=True, slots=True)
class PageReply:
    """The answer of a page: bytes, or an iterator of short pieces, rendered while they are sent.

    `location`: where a redirect leads.
    """

    body: bytes | Iterator[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    location: str = ""


_FOR_PROBES = ("/livez", "/readyz")
_STATUS = "/statusz"
_UNAUTHORIZED = PageReply(b"this page needs a token or a client certificate\n", status=401)
_TO_STATUS = PageReply(b"the pages begin at /statusz\n", status=302, location=_STATUS)


Page = Callable[[PageRequest], Awaitable[PageReply]]
Problems = Callable[[], Mapping[str, str]]
"""The problems that keep the process from its work, by part: {"log": "no space left on device"}."""


class Operations:
    """Serves the pages of one process."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._access = PageAccess()
        self._pages: dict[str, Page] = {"/livez": _live, "/readyz": self._ready}
        self._servers: list[asyncio.Server] = []
        self._context: ssl.SSLContext | None = None  # of the servers
        self._watch: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], None] = {}

    def add(self, path: str, page: Page) -> None:
        """Serve another page."""
        self._pages[path] = page

    async def start(
        self,
        host: str,
        port: int,
        files: PageFiles = PageFiles(),  # noqa: B008 - it is frozen
        *,
        fallback: bool = False,
    ) -> tuple[str, int]:
        """Listen; returns the bound address (port 0: any free one).

        Args:
            files: restrict who may read the pages.
            fallback: take any free port if `port` is in use.

        Raises:
            StartupError: the address cannot be bound, or a file cannot be used.
        """
        self._access = access = PageAccess(files)
        try:
            self._servers = [await self._listen(host, port, fallback=fallback)]
        except OSError as e:
            reason = os.strerror(e.errno) if e.errno else str(e)
            raise StartupError(f"cannot listen on {host}:{port} (operations): {reason}") from e
        bound = self._servers[0].sockets[0].getsockname()
        if not ip_address(bound[0]).is_loopback:
            _warn_of(bound[0], access)
        if access.encrypted:
            self._watch = asyncio.get_running_loop().create_task(self._keep_certificates())
        return bound[0], bound[1]

    async def close(self) -> None:
        """Stop serving and close all connections."""
        if self._watch is not None:
            self._watch.cancel()
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _listen(self, host: str, port: int, *, fallback: bool) -> asyncio.Server:
        """Serve at the port, or at any free one. Raises OSError."""
        try:
            return await self._serve(host=host, port=port)
        except OSError as e:
            if not fallback or e.errno != errno.EADDRINUSE:
                raise
            return await self._serve(host=host, port=0)

    async def _serve(self, **where: Any) -> asyncio.Server:
        """Listen with the present certificates. Raises OSError."""
        context = self._context = self._access.context
        return await asyncio.start_server(
            self._accept, limit=_MAX_HEAD, backlog=_MAX_CONNECTIONS, ssl=context,
            ssl_handshake_timeout=_DEADLINE if context is not None else None, **where,
        )  # fmt: skip

    async def _keep_certificates(self) -> None:
        """Serve new connections with the certificates and authorities of the files. Never ends."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            self._access.refresh()
            await self._renew()

    async def _renew(self) -> None:
        """Listen anew at the same sockets if the certificates have changed."""
        if self._context is self._access.context:
            return
        before, replaced = self._context, self._servers
        renewed: list[asyncio.Server] = []
        try:
            for listening in [each for server in replaced for each in server.sockets]:
                # After an error those before it must be closed: no list can be made at once.
                renewed.append(await self._serve(sock=listening.dup()))  # noqa: PERF401
        except OSError as e:
            logger.warning("the operations pages keep their certificate: %s", e)
            self._context, replaced = before, renewed
        else:
            self._servers = renewed
        for server in replaced:
            server.close()

    async def _ready(self, asked: PageRequest) -> PageReply:
        problems = dict(self._problems())
        body: dict[str, object] = {"ready": not problems}
        if asked.allowed:
            body["problems"] = problems
        status = 503 if problems else 200
        return PageReply(json.dumps(body).encode() + b"\n", "application/json", status)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) < _MAX_CONNECTIONS:
            self._connections[task] = None
            try:
                await self._answer(reader, writer)
            except (OSError, TimeoutError):
                pass  # the client has closed, sent no request, or does not read
            except Exception:
                logger.exception("a page was not sent completely")
                writer.transport.abort()  # half an answer must not look like a whole one
            finally:
                self._connections.pop(task, None)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        method = b""
        try:
            async with asyncio.timeout(_DEADLINE):
                request = await _request(connection, reader)
            if request is None:
                return
            method = request.method
            certified = writer.get_extra_info("peercert")
            by = writer.get_extra_info("sslcontext") if certified else None
            async with asyncio.timeout(_ANSWER_DEADLINE):
                reply = await self._reply(request, certified_by=by)
            await self._renew()
        except h11.RemoteProtocolError as e:
            reply = PageReply(f"{e}\n".encode(), status=e.error_status_hint)
        async with asyncio.timeout(_ANSWER_DEADLINE):
            await _send(connection, writer, reply, head_only=method == b"HEAD")

    async def _reply(
        self, request: h11.Request, *, certified_by: ssl.SSLContext | None
    ) -> PageReply:
        if request.method not in (b"GET", b"HEAD"):
            return PageReply(b"only GET and HEAD are supported\n", status=405)
        path = request.target.partition(b"?")[0].decode("latin-1")
        header = _header(request, b"authorization").encode("latin-1")
        allowed = self._access.allows(header, certified_by=certified_by)
        if not allowed and path not in _FOR_PROBES:
            return _UNAUTHORIZED
        if path == "/" and _STATUS in self._pages:
            return _TO_STATUS
        page = self._pages.get(path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return PageReply(f"not found; the pages are: {known}\n".encode(), status=404)
        try:
            return await page(PageRequest(_header(request, b"accept"), allowed))
        except Exception:
            logger.exception("the page %s failed", path)
            return PageReply(b"the page failed; see the log\n", status=500)


async def _send(
    connection: h11.Connection, writer: asyncio.StreamWriter, reply: PageReply, *, head_only: bool
) -> None:
    body = reply.body
    headers = [("content-type", reply.content_type), ("cache-control", "no-store")]
    if reply.status == _UNAUTHORIZED.status:
        headers.append(("www-authenticate", "Bearer"))
    if reply.location:
        headers.append(("location", reply.location))
    if isinstance(body, bytes):
        headers.append(("content-length", str(len(body))))
        body = iter((body,))
    headers.append(("connection", "close"))
    head = h11.Response(status_code=reply.status, headers=headers)
    writer.write(connection.send(head) or b"")
    if not head_only:
        while piece := _slice(body):
            writer.write(connection.send(h11.Data(piece)) or b"")
            await writer.drain()
            await asyncio.sleep(0)
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


def _warn_of(host: str, access: PageAccess) -> None:
    """Log what others on the network could do."""
    if not access.guarded:
        logger.warning(
            "everyone who reaches %s can read the operations pages: set ops.token.file or "
            "ops.ssl.ca.file, or a loopback address", host
        )  # fmt: skip
    elif not access.encrypted:
        logger.warning(
            "the token of the operations pages travels unencrypted to %s: set "
            "ops.ssl.certfile", host
        )  # fmt: skip


def _slice(body: Iterator[bytes]) -> bytes:
    """Render pieces for a few milliseconds, so that other tasks can run; b"" at the end."""
    until = clock.perf_counter() + _SLICE_SECONDS
    pieces: list[bytes] = []
    size = 0
    for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size and (size >= _SLICE_BYTES or clock.perf_counter() >= until):
            break
    return b"".join(pieces)


def _header(request: h11.Request, name: bytes) -> str:
    return ",".join(value.decode("latin-1") for key, value in request.headers if key == name)


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Read a request's head; None if the client closes first. Raises h11.RemoteProtocolError."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_MAX_HEAD))
        elif isinstance(event, h11.Request):
            return event
        else:
            return None


async def _live(_asked: PageRequest) -> PageReply:
    return PageReply(b"ok\n")
