"""HTTP GET with a bound on the answer; redirects are not followed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11

from quafka_mesh_ops.settings import join_address

FAILURES = (OSError, EOFError, ValueError, h11.RemoteProtocolError)
"""What `get` raises; TimeoutError is an OSError."""


async def get(
    url: str,
    path: str,
    headers: Mapping[str, str],
    most: int,
    context: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """Status and body of a path at a server: "http://host:port" or "https://…".

    Raises FAILURES; ValueError: the body has more than `most` bytes. The caller bounds the time.
    """
    parts = urlsplit(url)
    host, number = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if parts.scheme != "https":
        context = None
    elif context is None:
        context = ssl.create_default_context()
    reader, writer = await asyncio.open_connection(host, number, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        sent = {"host": join_address(host, number), "accept": "application/json", **headers}
        request = h11.Request(method="GET", target=path, headers=list(sent.items()))
        writer.write(
            (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b"")
        )
        return await _answer(connection, reader, most)
    finally:
        writer.close()


async def _answer(
    connection: h11.Connection, reader: asyncio.StreamReader, most: int
) -> tuple[int, bytes]:
    status, size = 0, 0
    pieces: list[bytes] = []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(1 << 16))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.InformationalResponse):
            continue
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > most:
                raise ValueError(f"the answer has more than {most:,} bytes")
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return status, b"".join(pieces)
        else:
            raise EOFError("the connection was closed")
