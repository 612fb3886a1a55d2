"""An HTTP client on the event loop, and so on simulated time: one request for each connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11


@dataclass(frozen=True)
class Page:
    """An answer. Names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The content type."""
        return self.headers["content-type"]


async def fetch(
    host: str, port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> Page:
    """Ask a server for a page.

    Raises:
        h11.RemoteProtocolError: what it answered is no whole HTTP answer.
        OSError: the connection is refused or broken.
    """
    reader, writer = await asyncio.open_connection(host, port)
    client = h11.Connection(h11.CLIENT)
    fields = {"Host": host, "Connection": "close", **(headers or {})}
    writer.write(client.send(h11.Request(method=method, target=path, headers=[*fields.items()])))
    client.send(h11.EndOfMessage())
    try:
        answer, body = None, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                client.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Response):
                answer = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        assert answer is not None
        named = {name.decode(): value.decode() for name, value in answer.headers}
        return Page(answer.status_code, named, body)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
