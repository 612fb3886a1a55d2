"""Takes the exports of gateways and brokers: OTLP over HTTP, within bounds of memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import NamedTuple

from quafka_console.data.traces.otlp import MOST_BYTES, BadExportError, spans_of
from quafka_console.data.traces.spans import TraceSpan
from quafka_console.data.traces.store import TraceStore
from quafka_loop.slices import turn
from quafka_telemetry.page_access import PageAccess

_AT_ONCE = 8
"""Exports under way; further ones are told to come again."""
_BODY_SECONDS = 10.0
_SPANS_PER_SLICE = 200


class ReceiverAnswer(NamedTuple):
    """The answer to an export: an HTTP status, and why it was refused."""

    status: int
    text: str = ""


class TraceReceiver:
    """Keeps the spans of those who may export."""

    def __init__(self, store: TraceStore, access: PageAccess | None) -> None:
        """`access`: who may; None: nobody, because people sign in and there is no token."""
        self._store = store
        self._access = access
        self._under_way = 0

    async def receive(
        self, authorization: bytes, encoding: str, body: AsyncIterable[bytes]
    ) -> ReceiverAnswer:
        """Keep an export's spans.

        `authorization`, `encoding`: the headers Authorization and Content-Encoding, empty if they
        are missing.
        """
        if self._access is None:
            return ReceiverAnswer(
                403, "people sign in at this console, so exports need a token: name its file in "
                "console.traces.token.file",
            )  # fmt: skip
        if not self._access.allows(authorization, certified_by=None):
            return ReceiverAnswer(401, "the header Authorization has no token that is known here")
        if self._under_way >= _AT_ONCE:
            return ReceiverAnswer(503, "too many exports at once")
        self._under_way += 1
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                whole = await _read(body)
            if whole is None:
                return ReceiverAnswer(413, f"more than {MOST_BYTES} bytes")
            await self._keep(await asyncio.to_thread(spans_of, whole, encoding))
        except TimeoutError:
            return ReceiverAnswer(408, f"the body did not come within {_BODY_SECONDS:g} s")
        except BadExportError as e:
            return ReceiverAnswer(400, str(e))
        finally:
            self._under_way -= 1
        return ReceiverAnswer(200)

    async def _keep(self, spans: list[TraceSpan]) -> None:
        for at in range(0, len(spans), _SPANS_PER_SLICE):
            self._store.add(spans[at : at + _SPANS_PER_SLICE])
            await turn()


async def _read(body: AsyncIterable[bytes]) -> bytes | None:
    """The whole body; None: it is too large."""
    read = bytearray()
    async for part in body:
        read += part
        if len(read) > MOST_BYTES:
            return None
    return bytes(read)
