"""The log files of a broker on this host: the gateway's end of the socket for descriptors.

A broker on another host, of another user or of an earlier version has no such socket, and every
record comes by value, as it does while the connection is lost.

A descriptor that the broker withdraws is not used for new answers. Answers that are being sent may
end within a grace time, then it is closed, because it holds the space of a freed file. After a
revocation all descriptors are closed at once.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path

from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.fetch.file_slice import LogFile
from quafka_loop import sockets
from quafka_mesh_ops import descriptors
from quafka_mesh_ops.descriptors import DescriptorMessage, DescriptorMessageKind, socket_path
from quafka_mesh_ops.errors import ProtocolError
from quafka_mesh_ops.ops.places import OpenPlaces, OpenPlacesResp

logger = logging.getLogger("quafka.gateway.places")

_MOST = 256
_SHARE = 8  # of the process's descriptors
_GRACE_SECONDS = 10.0
_LATE_SECONDS = 1.0
_WELCOME_SECONDS = 5.0
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 30.0
_WITHDRAWN = 1_024

Gone = Callable[[Collection[LogFile]], None]


class BrokerFiles:
    """The descriptors that one broker has handed over; asks for them while fetches use them.

    The files have the records of all orgs, so all orgs of a gateway share the descriptors. Which
    places an org gets is the broker's decision, fetch by fetch.
    """

    def __init__(self, open_places: Callable[[OpenPlaces], Awaitable[OpenPlacesResp]]) -> None:
        """`open_places` sends the op; it raises BrokerUnavailableError."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = (
            _MOST if soft == resource.RLIM_INFINITY else min(_MOST, max(16, soft // _SHARE))
        )
        self._open_places = open_places
        self._gone: list[Gone] = []
        self._files: dict[str, LogFile] = {}
        self._withdrawn: OrderedDict[str, None] = OrderedDict()
        self._retiring: dict[LogFile, asyncio.TimerHandle] = {}
        self._arrival: asyncio.Future[None] | None = None
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._retry_at = 0.0
        self._delay = _FIRST_DELAY
        self._closed = False
        self._welcomed: Callable[[], None] = lambda: None

    def when_gone(self, call: Gone) -> None:
        """Call this with files that must not be used for answers any more."""
        self._gone.append(call)

    def forget(self, call: Gone) -> None:
        """Undo `when_gone`."""
        self._gone.remove(call)

    @property
    def descriptors(self) -> int:
        """Open descriptors."""
        return len(self._files) + len(self._retiring)

    def connection(self) -> int:
        """The number of the connection, for fetch ops; 0: there is none (yet)."""
        if self._task is None and not self._closed:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._retry_at:
                self._task = loop.create_task(self._connect_once())
                self._task.add_done_callback(self._ended)
        return self._number

    async def find(self, key: str) -> LogFile | None:
        """The file with this key; None if the broker has withdrawn it.

        An answer may overtake its descriptor, so it is waited for.
        """
        until = asyncio.get_running_loop().time() + _LATE_SECONDS
        while (file := self._files.get(key)) is None:
            if key in self._withdrawn or not self._number:
                return None
            if self._arrival is None or self._arrival.done():
                self._arrival = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout_at(until):
                    await asyncio.shield(self._arrival)
            except TimeoutError:
                return None
        return file

    async def close(self) -> None:
        """Close the connection and all descriptors."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_all()

    # --- the connection ---------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._retry_at = asyncio.get_running_loop().time() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("records come by value for a while", exc_info=error)

    async def _connect_once(self) -> None:
        """Hold one connection until it ends."""
        try:
            named = await self._open_places(OpenPlaces())
        except BrokerUnavailableError:  # or a broker of an earlier version
            return
        if not named.folder:
            return
        connection = sockets.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            with socket_path(Path(named.folder)) as path:
                connection.connect(path)
            if not descriptors.same_user(connection):
                return
            hello = descriptors.encode_hello(named.token, self._most)
            descriptors.send(connection, hello)
            await self._receive(connection)
        except OSError as e:  # mostly a broker on another host
            logger.debug("no socket for descriptors in %s: %s", named.folder, e)
        except (ProtocolError, ValueError) as e:
            logger.warning("closed the connection for descriptors: %s", e)
        finally:
            self._number = 0
            connection.close()
            self._retire(list(self._files.values()))
            self._wake()

    async def _receive(self, connection: socket.socket) -> None:
        """Act on messages until the broker closes the connection.

        Raises:
            ProtocolError, OSError: see `descriptors.receive_message`.
        """
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            try:
                while not over.done() and (found := descriptors.receive_message(connection)):
                    self._act(found)
            except EOFError:
                over.set_result(None)
            except (ProtocolError, OSError) as e:
                over.set_exception(e)

        loop.add_reader(connection, read)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WELCOME_SECONDS) as welcome:
                    self._welcomed = lambda: welcome.reschedule(None)
                    await over
        finally:
            loop.remove_reader(connection)

    def _act(self, message: DescriptorMessage) -> None:
        if message.kind is DescriptorMessageKind.WELCOME:
            self._number = message.number
            self._delay = _FIRST_DELAY
            self._welcomed()
            logger.info("records come from the broker's files")
        elif message.kind is DescriptorMessageKind.HANDED:
            self._take(LogFile(message.key, message.fd))
        elif message.kind is DescriptorMessageKind.WITHDRAWN:
            file = self._files.get(message.key)
            if file is not None:
                self._retire((file,))
        else:
            logger.warning("the broker has revoked the descriptors of its files")
            self._close_all()

    # --- the descriptors --------------------------------------------------------------------

    def _take(self, file: LogFile) -> None:
        if file.key in self._files or len(self._files) >= self._most:
            file.close()
            raise ProtocolError("a descriptor that the gateway has, or more than it asked for")
        self._files[file.key] = file
        self._withdrawn.pop(file.key, None)
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _retire(self, files: Collection[LogFile]) -> None:
        """Use these files for no new answers, and close them soon."""
        if not files:
            return
        loop = asyncio.get_running_loop()
        for file in files:
            del self._files[file.key]
            self._withdrawn[file.key] = None
            self._retiring[file] = loop.call_later(_GRACE_SECONDS, self._close_file, file)
        while len(self._withdrawn) > _WITHDRAWN:
            self._withdrawn.popitem(last=False)
        while len(self._retiring) > self._most:
            self._close_file(next(iter(self._retiring)))
        for gone in self._gone:
            gone(files)
        self._wake()

    def _close_file(self, file: LogFile) -> None:
        self._retiring.pop(file).cancel()
        file.close()

    def _close_all(self) -> None:
        self._retire(list(self._files.values()))
        for file in list(self._retiring):
            self._close_file(file)
