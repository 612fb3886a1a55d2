"""Reads the status pages of gateways and brokers over HTTP, all at once, each with a deadline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from quafka_client.bounded_http import FAILURES, get
from quafka_console.data.status_pages import BadStatusPageError, StatusPage, parse_status_page

_SECONDS = 3.0
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StatusPages:
    """The pages that could be read, and why others could not, by address."""

    pages: Sequence[StatusPage]
    problems: dict[str, str]


@dataclass(frozen=True, slots=True)
class OperationsPort:
    """Where a process serves its pages: "http://host:port" or "https://…"; and its token."""

    url: str
    token: str = field(default="", repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)


async def read_status_pages(
    ports: Sequence[OperationsPort], seconds: float = _SECONDS
) -> StatusPages:
    """The status pages of these processes; one that does not answer in time is a problem."""
    results = await asyncio.gather(*(_read(each, seconds) for each in ports))
    pages = [each for each in results if isinstance(each, StatusPage)]
    problems = {
        port.url: each for port, each in zip(ports, results, strict=True) if isinstance(each, str)
    }
    return StatusPages(pages, problems)


async def read_metrics(
    ports: Sequence[OperationsPort], seconds: float = _SECONDS
) -> dict[str, bytes]:
    """The metrics of those of the processes that answer in time, by address."""

    async def read(port: OperationsPort) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                status, body = await _get(port, "/metrics")
        except FAILURES:  # TimeoutError as well
            return None
        return body if status == 200 else None

    found = await asyncio.gather(*map(read, ports))
    pages = zip(ports, found, strict=True)
    return {port.url: page for port, page in pages if page is not None}


async def _read(port: OperationsPort, seconds: float) -> StatusPage | str:
    """A page, or why there is none."""
    try:
        async with asyncio.timeout(seconds):
            status, body = await _get(port, "/statusz")
    except TimeoutError:
        return f"{port.url} does not answer within {seconds:g} s"
    except FAILURES as e:
        return f"{port.url} cannot be read: {e or type(e).__name__}"
    if status == 401:
        return f"{port.url} needs a token or a client certificate"
    if status != 200:
        return f"{port.url} answers with status {status}"
    try:
        return parse_status_page(port.url, body)
    except BadStatusPageError as e:
        return str(e)


async def _get(port: OperationsPort, path: str) -> tuple[int, bytes]:
    """Status and body. Raises FAILURES."""
    headers = {"authorization": f"Bearer {port.token}"} if port.token else {}
    return await get(port.url, path, headers, _MOST_BYTES, port.context)
