"""A TCP relay in front of a gateway: requests pass at once, answers so many seconds late."""

from __future__ import annotations

import asyncio
import threading
from typing import Self


class LateAnswers:
    """A running relay to `target`, which may be set once clients are told of `address`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.target = ("127.0.0.1", 0)
        self._loop = asyncio.new_event_loop()
        self._writers: list[asyncio.StreamWriter] = []
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._relay, "127.0.0.1", 0)
        )
        self.address: str = "{}:{}".format(*self._server.sockets[0].getsockname())
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        relays = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*relays, return_exceptions=True)

    async def _relay(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        gateway, requests = await asyncio.open_connection(*self.target)
        self._writers += [answers, requests]
        await asyncio.gather(
            _pass_on(client, requests, 0), _pass_on(gateway, answers, self._seconds)
        )


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    data = b"?"
    while data:
        try:
            data = await reader.read(1 << 16)
        except ConnectionError:
            data = b""
        if data:
            loop.call_later(seconds, writer.write, data)
        else:
            loop.call_later(seconds, writer.close)
