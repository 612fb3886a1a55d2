"""The broker's end of the control socket: see `control_socket`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from pathlib import Path
from typing import Any, cast

from quafka_broker.security.control import ALTER_USERS, alter_users
from quafka_broker.snapshots.control_socket import MAX_LINE, PIN_REQUEST, SOCKET, short_path
from quafka_broker.snapshots.pins import pin
from quafka_broker.state import BrokerState
from quafka_loop import sockets

log = logging.getLogger("quafka.broker.snapshots")

_REQUEST_SECONDS = 5.0
_SIGN_SECONDS = 5.0
"""The longest time without a sign of life while the answer is prepared."""
_MAX_CONNECTIONS = 16


class ControlServer:
    """Answers the commands for one broker."""

    def __init__(self, state: BrokerState, data: Path) -> None:
        self._state = state
        self._data = data
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            (self._data / SOCKET).unlink()
        listening = sockets.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        with short_path(self._data) as path:
            umask = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(umask)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listening, limit=MAX_LINE, backlog=_MAX_CONNECTIONS
        )

    async def close(self) -> None:
        """Stop listening, and end the connections."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                (self._data / SOCKET).unlink()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                line = await reader.readline()
            answering = asyncio.create_task(self._answer(line))
            try:
                while not (await asyncio.wait({answering}, timeout=_SIGN_SECONDS))[0]:
                    writer.write(b" ")  # JSON may begin with blanks; the command keeps waiting
                    await writer.drain()
                answer = answering.result()
            finally:
                answering.cancel()
            async with asyncio.timeout(_REQUEST_SECONDS):
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # the client is gone, too slow, or has sent too long a line
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, str]:
        try:
            request: object = json.loads(line)
        except ValueError:
            return {"error": "the request is not JSON"}
        if isinstance(request, dict):
            fields = cast("dict[str, Any]", request)
            if fields.get("do") == ALTER_USERS:
                return await alter_users(self._state.security, fields)
        if request != PIN_REQUEST:
            return {"error": "the request is not known to this version"}
        try:
            return {"pin": await pin(self._state, self._data, local=True)}
        except OSError as e:
            log.warning("cannot take a cut for a snapshot: %s", e)
            return {"error": f"cannot take a cut for a snapshot: {e.strerror or e}"}
