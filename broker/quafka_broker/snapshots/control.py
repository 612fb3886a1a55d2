"""The broker's control socket, `control.sock` in its data folder: for commands on this machine.

Mode 0600: whoever may read the data folder's files as the broker does may use it, nobody else.
One request a connection, a JSON object on a line, and one answer.

    {"do": "pin"}     takes a cut of the log and holds its files: {"pin": name}

or {"error": one sentence}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from quafka_broker.snapshots.pins import Limits, pin, sweep
from quafka_broker.snapshots.zones_ahead import make_ahead
from quafka_broker.state import BrokerState

log = logging.getLogger("quafka.broker.snapshots")

SOCKET = "control.sock"
_MAX_LINE = 4096
_REQUEST_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_MAX_CONNECTIONS = 16
_SWEEP_SECONDS = 60.0


class ControlError(Exception):
    """The broker could not do it; the message says why."""


class NobodyThereError(Exception):
    """No broker listens in this data folder."""


class Control:
    """Answers commands for one broker; removes old pins, and makes zones ahead."""

    def __init__(self, state: BrokerState, data: Path) -> None:
        self._state = state
        self._data = data
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = threading.Event()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            (self._data / SOCKET).unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        with _short(self._data) as path:
            umask = os.umask(0o177)
            try:
                listening.bind(path)
            finally:
                os.umask(umask)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listening, limit=_MAX_LINE, backlog=_MAX_CONNECTIONS
        )
        self._keep(asyncio.create_task(self._sweep()))

    async def close(self) -> None:
        """Answer no more."""
        self._stopped.set()  # cancelling a task does not end its thread
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                (self._data / SOCKET).unlink()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        while True:
            try:
                await asyncio.to_thread(sweep, self._data, Limits.of(self._state.config))
                segments = self._state.log.segments()
                await asyncio.to_thread(make_ahead, self._data, segments, self._stopped)
            except OSError as e:
                log.warning("pins and zones cannot be put in order: %s", e)
            await asyncio.sleep(_SWEEP_SECONDS)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) > _MAX_CONNECTIONS:
            writer.close()
            return
        self._keep(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                line = await reader.readline()
            answer = await self._answer(line)
            async with asyncio.timeout(_REQUEST_SECONDS):
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # whoever asks has gone, or asks too slowly or too much
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, str]:
        try:
            request = json.loads(line)
        except ValueError:
            return {"error": "the request is not JSON"}
        if request != {"do": "pin"}:
            return {"error": "the request is not known to this version"}
        try:
            return {"pin": await pin(self._state, self._data, local=True)}
        except OSError as e:
            log.warning("no snapshot can be taken: %s", e)
            return {"error": f"no snapshot can be taken: {e.strerror or e}"}


def ask(data: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the broker that runs in a data folder. Blocks.

    Raises:
        NobodyThereError: none does.
        ControlError: it did not do it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            with _short(data) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as e:
            raise NobodyThereError(str(e)) from e
        except OSError as e:
            raise ControlError(f"the broker cannot be asked: {e.strerror or e}") from e
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(_MAX_LINE)
            answer = cast("dict[str, Any]", json.loads(line))
        except (OSError, ValueError) as e:
            raise ControlError(f"the broker did not answer: {e}") from e
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer


@contextmanager
def _short(data: Path) -> Generator[str]:
    """The socket's path in less than the 108 bytes that it may have."""
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)
