"""One Redis server for the broker's loop: its state, and the waiting requests.

Work is bounded: a few reads are under way and a few hundred wait, appends wait in a queue of
bounded size, and one task each requests bounds, watches streams and appends. While the server is
down, reads and appends fail at once, requests for bounds wait for the next attempt, and pauses
between attempts grow, with jitter.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.sources.redis.batches import Entry
from quafka_broker.sources.redis.bounds import StreamBounds
from quafka_broker.sources.redis.entry_ids import EntryId
from quafka_broker.sources.redis.failures import ReadOnlyRedisError, RedisUnavailableError
from quafka_broker.sources.redis.requests import (
    Appended,
    Connected,
    Growth,
    ProducedBatch,
    ReadAnswer,
    ReadRequest,
    ServerFigures,
    ServerLink,
)
from quafka_broker.sources.redis.worker import Worker

log = logging.getLogger("quafka.broker.redis")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_RECONNECT_SECONDS = 2.0
"""The shortest time between two searches for the master among several addresses."""
_REFUSED_SECONDS = 0.2
"""The pause before streams whose watch Redis has refused are watched again."""
_STREAMS_A_QUESTION = 500
_READS_WAITING = 256
_READS_AT_ONCE = 4
_APPEND_BATCHES, _APPEND_BYTES = 64, 8 << 20

T = TypeVar("T")


class RedisStreamReader(Protocol):
    """A partition as seen by its server."""

    stream: bytes

    @property
    def last(self) -> EntryId:
        """The highest id that waiting fetches may know."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch is parked for the partition."""
        ...

    def grew(self, entry: EntryId) -> None:
        """Note a new entry of the stream."""
        ...

    def learn(self, answer: StreamBounds | StorageError, asked: int) -> None:
        """Take the answer to a request that was sent at that value of `RedisServer.moment`."""
        ...


class _QueuedAppend:
    """A batch in the queue, and the future of its outcome."""

    __slots__ = ("batch", "outcome")

    def __init__(self, batch: ProducedBatch) -> None:
        self.batch = batch
        self.outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Appended | StorageError) -> None:
        """Pass the outcome to the caller, if it still waits."""
        if self.outcome.done():
            return
        if isinstance(outcome, StorageError):
            self.outcome.set_exception(outcome)
            self.outcome.exception()  # retrieved: the producer may be gone
        else:
            self.outcome.set_result(outcome)


class RedisServer:
    """One server.

    Attributes:
        name: for logs and metrics.
        problem: why the server is down; "" while it is up or has not been tried.
        connected: the server behind the connections, if they are open.
        moment: counts the answers; orders requests and answers.
    """

    def __init__(
        self, name: str, open_link: Callable[[], ServerLink], worker: Worker, queued_bytes: int
    ) -> None:
        self.name = name
        self._most_queued = queued_bytes
        self.problem = ""
        self.connected: Connected | None = None
        self.moment = 0
        self.figures = ServerFigures()
        self._open_link = open_link
        self._worker = worker
        self._link: ServerLink | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = self._connected_at = 0.0
        self._questions: dict[RedisStreamReader, None] = {}
        self._watched: dict[RedisStreamReader, None] = {}
        self._appends: deque[_QueuedAppend] = deque()
        self._queued_bytes = 0
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)
        self._reads_waiting = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unblocking = False
        self._closed = False

    @property
    def has_link(self) -> bool:
        """Whether connections are open, or may be opened again."""
        return self._link is not None

    @property
    def is_up(self) -> bool:
        """Whether the connections are open."""
        return self.connected is not None

    # --- connecting -------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect, unless connected.

        Raises:
            RedisUnavailableError: also at once after a recent failure.
        """
        if self.connected is not None:
            return
        loop = asyncio.get_running_loop()
        if self._closed or loop.time() < self._retry_at:
            raise RedisUnavailableError(self.problem or "the broker stops")
        if self._connecting is None:
            self._connecting = loop.create_task(self._try_to_connect())
        await asyncio.shield(self._connecting)

    async def _try_to_connect(self) -> None:
        try:
            if self._link is None:
                self._link = self._open_link()
            connected = await self._worker.submit(self._link.connect())
        except StorageError as e:
            failure = RedisUnavailableError(str(e))
            self._failed(failure)
            raise failure from e
        finally:
            self._connecting = None
        self.connected = connected
        self._connected_at = asyncio.get_running_loop().time()
        self._failures = 0
        self.problem = ""
        about = ", ".join(filter(None, (connected.address, connected.version, connected.role)))
        log.info("%s: connected to %s", self.name, about)

    def _failed(self, error: StorageError) -> None:
        """Note a failure of the server, which is tried again after a pause."""
        self.figures.count_failure(str(error))
        if not isinstance(error, RedisUnavailableError | InDoubtError):
            return
        now = asyncio.get_running_loop().time()
        if now < self._retry_at:
            return  # an answer to a command from before the last failure
        if self.problem != str(error):
            log.warning("%s: %s", self.name, error)
        self.connected = None
        self.problem = str(error)
        pause = min(_FIRST_PAUSE * 2.0 ** min(self._failures, 10), _LONGEST_PAUSE)
        self._retry_at = now + pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._failures += 1

    def look_for_master(self) -> None:
        """Connect anew: the server is a replica, and another may now be the master."""
        if asyncio.get_running_loop().time() > self._connected_at + _RECONNECT_SECONDS:
            self.connected = None

    async def _call(self, call: Callable[[ServerLink], Coroutine[Any, Any, T]]) -> T:
        """Call the link. Raises StorageError."""
        try:
            await self._connect()
            assert self._link is not None
            result = await self._worker.submit(call(self._link))
        except StorageError as e:
            self._failed(e)
            raise
        self.moment += 1
        return result

    async def _pause(self) -> None:
        """Wait until the next attempt may be made."""
        while self.connected is None:
            left = self._retry_at - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.sleep(left)

    def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this work in a task, unless one does already."""
        task = self._tasks.get(name)
        if not self._closed and (task is None or task.done()):
            self._tasks[name] = asyncio.get_running_loop().create_task(work())

    async def look(self) -> str:
        """Check the connection; returns the problem, or "" if the server answers."""
        try:
            await self._call(partial(_bounds, ()))
        except StorageError as e:
            return str(e)
        return ""

    @property
    def detail(self) -> str:
        """Version and role, as far as the server reports them."""
        if self.connected is None:
            return ""
        return ", ".join(filter(None, (self.connected.version, self.connected.role)))

    # --- questions --------------------------------------------------------------------------

    def ask(self, reader: RedisStreamReader) -> None:
        """Get the bounds of a partition, which learns them or a failure."""
        self._questions[reader] = None
        self._run("ask", self._ask)

    async def _ask(self) -> None:
        while self._questions:
            await self._pause()
            readers = list(self._questions)[:_STREAMS_A_QUESTION]
            for reader in readers:
                del self._questions[reader]
            streams = list(dict.fromkeys(reader.stream for reader in readers))
            asked = self.moment
            answers: dict[bytes, StreamBounds | StorageError]
            try:
                found = await self._call(partial(_bounds, streams))
                answers = dict(zip(streams, found, strict=True))
            except StorageError as e:
                answers = dict.fromkeys(streams, e)
            for reader in readers:
                reader.learn(answers[reader.stream], asked)

    # --- waiting ----------------------------------------------------------------------------

    def watch(self, reader: RedisStreamReader) -> None:
        """Report a partition's growth to it while fetches wait for it."""
        if reader in self._watched:
            return
        self._watched[reader] = None
        task = self._tasks.get("watch")
        if task is None or task.done():
            self._run("watch", self._watch)
        elif not self._unblocking and self._link is not None and self.is_up:
            self._unblocking = True
            self._run("unblock", self._unblock)

    def watches(self, reader: RedisStreamReader) -> bool:
        """Whether the partition's growth is reported to it."""
        return self.is_up and reader in self._watched

    async def _unblock(self) -> None:
        self._unblocking = False
        if self._link is not None:
            await self._worker.submit(self._link.unblock())

    async def _watch(self) -> None:
        while True:
            for reader in [each for each in self._watched if not each.is_waited_for]:
                del self._watched[reader]
            if not self._watched:
                return
            await self._pause()
            streams: dict[bytes, EntryId] = {}
            for reader in self._watched:  # of readers of the same stream, the last one behind
                streams[reader.stream] = min(streams.get(reader.stream, reader.last), reader.last)
            asked = self.moment
            try:
                grown = await self._call(partial(_watch, streams))
            except StorageError:
                await self._watch_refused()
                continue
            for reader in [each for each in self._watched if each.stream in grown]:
                if not reader.is_waited_for:
                    del self._watched[reader]
                growth = grown[reader.stream]
                if isinstance(growth, EntryId):
                    reader.grew(growth)
                else:
                    reader.learn(growth, asked)

    async def _watch_refused(self) -> None:
        """Request all bounds, which shows the fault; sound streams are then watched again."""
        if self.is_up:  # for example, one stream of another type makes Redis refuse to wait for any
            await asyncio.sleep(_REFUSED_SECONDS)
        readers = list(self._watched)
        self._watched.clear()
        for reader in readers:
            self.ask(reader)

    # --- reading ----------------------------------------------------------------------------

    async def read(self, request: ReadRequest) -> ReadAnswer:
        """Read entries of a stream. Raises StorageError."""
        answer = await self._one_read(lambda link: link.read(request))
        self.figures.reads += 1
        self.figures.entries_read += len(answer.encoded.offsets)
        self.figures.bytes_read += answer.encoded.size
        return answer

    async def entry_at(self, stream: bytes, start: EntryId, *, last: bool = False) -> Entry | None:
        """The first entry from an id on, or the last of all. Raises StorageError."""
        return await self._one_read(lambda link: link.entry_at(stream, start.text, last=last))

    async def _one_read(self, call: Callable[[ServerLink], Coroutine[Any, Any, T]]) -> T:
        if self._reads_waiting >= _READS_WAITING:
            raise StorageError("too many reads wait for Redis")
        self._reads_waiting += 1
        try:
            async with self._reads:
                return await self._call(call)
        finally:
            self._reads_waiting -= 1

    # --- appending --------------------------------------------------------------------------

    def append(self, batch: ProducedBatch) -> asyncio.Future[Appended]:
        """Queue a batch. The future raises StorageError.

        Raises:
            StorageError: the queue is full.
        """
        if self._queued_bytes + len(batch.records) > self._most_queued and self._appends:
            raise StorageError("too many records wait for Redis")
        queued = _QueuedAppend(batch)
        self._appends.append(queued)
        self._queued_bytes += len(batch.records)
        self._run("append", self._append)
        return queued.outcome

    async def _append(self) -> None:
        while self._appends:
            taken = self._take()
            try:
                outcomes = await self._call(partial(_append_all, taken))
            except StorageError as e:
                self._refuse(taken, e)
                continue
            except asyncio.CancelledError:
                self._refuse(taken, InDoubtError("the broker stops"))
                raise
            for queued, outcome in zip(taken, outcomes, strict=True):
                if isinstance(outcome, StorageError):
                    self._failed(outcome)
                if isinstance(outcome, ReadOnlyRedisError):
                    self.look_for_master()
                queued.settle(outcome)
            self.figures.appends += len(taken)

    def _take(self) -> list[_QueuedAppend]:
        taken: list[_QueuedAppend] = []
        size = 0
        while self._appends and len(taken) < _APPEND_BATCHES and size < _APPEND_BYTES:
            queued = self._appends.popleft()
            size += len(queued.batch.records)
            taken.append(queued)
        self._queued_bytes -= size
        return taken

    def _refuse(self, taken: Sequence[_QueuedAppend], error: StorageError) -> None:
        """Fail these batches and those behind them, which must not overtake a repetition."""
        kind = InDoubtError if isinstance(error, InDoubtError) else StorageError
        for queued in taken:
            queued.settle(kind(str(error)))
        behind = list(self._appends)
        self._appends.clear()
        self._queued_bytes = 0
        for queued in behind:
            queued.settle(StorageError(str(error)))

    async def close(self) -> None:
        """End all tasks and connections."""
        self._closed = True
        tasks = [*self._tasks.values(), *filter(None, (self._connecting,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._refuse((), StorageError("the broker stops"))
        if self._link is not None:
            await self._worker.submit(self._link.close())


async def _bounds(streams: Sequence[bytes], link: ServerLink) -> list[StreamBounds | StorageError]:
    return await link.bounds(streams)


async def _watch(streams: Mapping[bytes, EntryId], link: ServerLink) -> dict[bytes, Growth]:
    return await link.watch(streams)


async def _append_all(
    taken: Sequence[_QueuedAppend], link: ServerLink
) -> list[Appended | StorageError]:
    """Build the requests, in the worker, and send them."""
    return await link.append([queued.batch.request() for queued in taken])
