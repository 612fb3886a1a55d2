"""Downloads of the records that a page of messages shows."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from quafka_client.errors import ClientError
from quafka_console.data.messages.decoding import Progress
from quafka_console.data.messages.files import MEDIA_TYPES, writable, written
from quafka_console.data.messages.reading import Limits
from quafka_console.data.messages.selection import Selection
from quafka_console.session import ConsoleSession

PATH = "/messages/download"
MOST_RECORDS, MOST_BYTES = 10_000, 64 << 20
_WHOLE = 1 << 27
"""No record is larger than an answer."""
_AT_ONCE = 3
_SECONDS = 600
_WATCH_SECONDS = 1.0

_turns = asyncio.Semaphore(_AT_ONCE)


async def respond(session: ConsoleSession, request: Request) -> Response:
    """The records of the selection in the address, whole, in its `format`."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        return PlainTextResponse("the request comes from another site\n", 403)
    form = request.query_params.get("format", "")
    if form not in writable():
        known = ", ".join(writable())
        return PlainTextResponse(f"{form!r} is not a format that can be written: {known}\n", 400)
    if _turns.locked():
        return PlainTextResponse("other downloads are running; try again in a moment\n", 503)
    return _Download(session, request, form)


class _Download(Response):
    """Reads and sends records; a browser that does not take them in time is left."""

    def __init__(self, session: ConsoleSession, request: Request, form: str) -> None:
        super().__init__()
        self._session, self._request, self._form = session, request, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _turns:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS):
                    answer = await self._answer()
                    await answer(scope, receive, send)

    async def _answer(self) -> Response:
        selection = Selection.of(self._request.query_params)
        limits = Limits(MOST_RECORDS, kept=MOST_BYTES, scan=10 * MOST_RECORDS)
        progress = Progress()
        watching = asyncio.create_task(_stop_if_gone(self._request, progress))
        try:
            session = self._session
            records = await selection.read(
                session.cluster, progress, limits, session.registry, _WHOLE
            )
        except ClientError as e:
            return PlainTextResponse(f"{e}\n", 400)
        finally:
            watching.cancel()
        name = re.sub(r"[^\w.-]", "_", selection.topic, flags=re.ASCII)
        return StreamingResponse(
            written(records, selection.topic, self._form),
            media_type=MEDIA_TYPES[self._form],
            headers={"content-disposition": f'attachment; filename="{name}.{self._form}"'},
        )


async def _stop_if_gone(request: Request, progress: Progress) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(_WATCH_SECONDS)
    progress.stopped = True
