"""A proxy between Kafka clients and a server that delays and repeats single requests.

A network gives a client no second copy of a request on one connection, but it does this: the
client's connection breaks while a request is on its way, the client connects again and repeats the
request, and the first copy arrives later, on the connection that the server still has.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_LENGTH, _API_KEY = 4, 6
_LAST_SECONDS = 5.0


@dataclass(frozen=True)
class Passed:
    """A request passes after so many seconds, and so do those behind it on its connection."""

    after: float = 0.0


@dataclass
class Held:
    """The client's connection breaks. The server gets the request later, on its own connection.

    Attributes:
        also_now: the server also gets the request at once; the client does not get the answer.
        seconds: when the server gets it, if `deliver` is not called earlier.
    """

    seconds: float = 60.0
    also_now: bool = False
    arrived: threading.Event = field(default_factory=threading.Event)
    """The client has sent the request."""
    answered: threading.Event = field(default_factory=threading.Event)
    """The server has answered the late request, or closed its connection."""
    _deliver: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def deliver(self) -> None:
        """Let the server have the request now; from any thread, once it has arrived."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._deliver.set)

    async def due(self) -> None:
        """Wait until the server gets the request."""
        self._loop = asyncio.get_running_loop()
        self.arrived.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                await self._deliver.wait()


Fate = Passed | Held
PASSED = Passed()


def api_key(frame: bytes) -> int:
    """The API of a request with its length in front."""
    return int.from_bytes(frame[_LENGTH:_API_KEY], "big")


class RequestProxy:
    """Forwards connections to the port `target`, request by request.

    Attributes:
        port: the port that it listens on.
        target: the port of the server; may be set after the start.
        fate: decides about each request (with its length in front), on the proxy's thread.
    """

    def __init__(self, fate: Callable[[bytes], Fate] = lambda _: PASSED) -> None:
        self.port = 0
        self.target = 0
        self.fate = fate
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset the connections of all clients; from any thread."""
        self._loop.call_soon_threadsafe(self._cut)

    def run(self, listening: threading.Event, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, on this thread."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening, stop))

    def stop(self, stop: asyncio.Event) -> None:
        self._loop.call_soon_threadsafe(stop.set)

    async def _serve(self, listening: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(client)
        try:
            answers, server = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                await self._forward(reader, client, answers, server)
            finally:
                server.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # so it ends for the other side, too
        finally:
            client.transport.abort()
            self._writers.discard(client)
            self._connections.discard(task)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        back = asyncio.create_task(_copy(answers, client))
        try:
            frame, held = await self._until_held(reader, server)
        except asyncio.IncompleteReadError:
            return
        finally:
            back.cancel()
        client.transport.abort()
        if held.also_now:
            server.write(frame)
        await held.due()
        server.write(frame)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                # The answers of earlier requests, if any, come first.
                while await answers.read(1 << 16):
                    held.answered.set()
        held.answered.set()

    async def _until_held(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> tuple[bytes, Held]:
        """Pass requests on up to the first one that is held."""
        while True:
            frame = await _next_frame(reader)
            fate = self.fate(frame)
            if isinstance(fate, Held):
                return frame, fate
            if fate.after:
                await asyncio.sleep(fate.after)
            server.write(frame)
            await server.drain()

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()


async def _next_frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(_LENGTH)
    return length + await reader.readexactly(int.from_bytes(length, "big"))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward bytes until either side ends; then end the other."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()


@contextmanager
def request_proxy(
    target: int = 0, fate: Callable[[bytes], Fate] = lambda _: PASSED
) -> Generator[RequestProxy]:
    """A running proxy to a port of 127.0.0.1, on a thread of its own."""
    proxy = RequestProxy(fate)
    proxy.target = target
    listening, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=proxy.run, args=(listening, stop), name="request proxy")
    thread.start()
    assert listening.wait(10)
    try:
        yield proxy
    finally:
        proxy.stop(stop)
        thread.join(10)
