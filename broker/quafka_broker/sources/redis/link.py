"""The connections to one Redis server. All coroutines run in the worker's loop.

Reads share a few connections, appends have their own, which keeps their order, and another
connection blocks in XREAD for all watched streams. No command is repeated: after a lost answer only
the caller knows whether that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from redis import exceptions

from quafka_broker.partitions.errors import InDoubtError, StorageError
from quafka_broker.sources.redis import scripts
from quafka_broker.sources.redis.batches import Entry
from quafka_broker.sources.redis.bounded import AnswerTooLargeError
from quafka_broker.sources.redis.bounds import StreamBounds
from quafka_broker.sources.redis.client import Answer, Client, ClientLimits, RedisAccess
from quafka_broker.sources.redis.clients import Clients, greet, load_script
from quafka_broker.sources.redis.entry_ids import EntryId
from quafka_broker.sources.redis.errors import UNEXPECTED, failure_of, refusal_of
from quafka_broker.sources.redis.failures import RedisUnavailableError
from quafka_broker.sources.redis.requests import (
    Appended,
    AppendRequest,
    Connected,
    Growth,
    ReadAnswer,
    ReadRequest,
)
from quafka_broker.sources.redis.url import Server, read_auth
from quafka_broker.sources.source import BadSourceError

_READERS = 4
_BLOCK_MS = 1_000
_WAIT_MS = 2_000
_READ_ROUNDS = 4
_MOST_ENTRIES = 20_000
_GROWTH = 8
"""A read that ends early requests at most this multiple of the entries of its last command."""
_CLOSE_SECONDS = 2.0
_SHRINK = 16
"""A read whose answer was too large requests this fraction of its entries."""
_SHORT_ANSWER = 1 << 16
"""Bytes of the longest answer to an append, which has an id."""
_UNBLOCK_TRIES, _UNBLOCK_SECONDS = 50, 0.001

T = TypeVar("T")


class Link:
    """Connects to one server at a time: the master among the addresses, if one reports to be it."""

    def __init__(
        self, server: Server, secrets: Path | None, ca_file: Path | None, limits: ClientLimits
    ) -> None:
        self._server = server
        self._limits = limits
        self._secrets = secrets
        self._ca_file = ca_file
        self._clients: Clients | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._watching = False

    async def connect(self) -> Connected:
        """Connect anew. Raises StorageError."""
        await self._disconnect()
        failure: StorageError = RedisUnavailableError("Redis cannot be reached")
        found: list[tuple[Clients, Connected]] = []
        for address in self._server.addresses:
            try:
                clients = self._open(address)
                found.append((clients, await self._guarded(greet(clients, address))))
            except StorageError as e:
                failure = e
                continue
            except BaseException:
                for others, _ in found:
                    await others.close()
                raise
            if found[-1][1].role in ("master", ""):
                found.reverse()
                break
        if not found:
            raise failure
        for clients, _ in found[1:]:
            await clients.close()
        self._clients, connected = found[0]
        return connected

    def _open(self, address: str) -> Clients:
        server = self._server
        try:
            access = RedisAccess(
                server.db, server.tls, *read_auth(server.auth, self._secrets), self._ca_file
            )
        except BadSourceError as e:
            raise failure_of(e) from e
        limits = self._limits
        short = limits._replace(answer_bytes=_SHORT_ANSWER)
        return Clients(
            Client(address, access, limits, _READERS),
            Client(address, access, short, 1),
            Client(address, access, limits, 1),
        )

    async def close(self) -> None:
        """Close all connections, after cancelled calls have ended."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CLOSE_SECONDS)
        await self._disconnect()

    async def _disconnect(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()

    def _connected(self) -> Clients:
        if self._clients is None:
            raise RedisUnavailableError("Redis is not connected")
        return self._clients

    # --- bounds -----------------------------------------------------------------------------

    async def bounds(self, streams: Sequence[bytes]) -> list[StreamBounds | StorageError]:
        """The bounds of each stream, or its failure. Raises StorageError."""
        return await self._guarded(_bounds(self._connected(), streams))

    # --- reading ----------------------------------------------------------------------------

    async def read(self, request: ReadRequest) -> ReadAnswer:
        """Read entries from an offset on. Raises StorageError."""
        return await self._guarded(_read(self._connected(), request))

    async def entry_at(self, stream: bytes, start: bytes, *, last: bool) -> Entry | None:
        """The first entry from an id on, or the last entry of all. Raises StorageError."""
        order = ("XREVRANGE", stream, "+", "-") if last else ("XRANGE", stream, start, "+")
        found = await self._guarded(self._connected().readers.call(*order, "COUNT", 1))
        return found[0] if found else None

    # --- waiting ----------------------------------------------------------------------------

    async def watch(self, streams: Mapping[bytes, EntryId]) -> dict[bytes, Growth]:
        """Wait for the first entry after the id, for streams that have one; empty after a second.

        Returns the streams' bounds instead if the entries are too large.

        `unblock` ends the wait. Raises StorageError.
        """
        clients = self._connected()
        self._watching = True
        try:
            return await self._guarded(_watch(clients, streams))
        finally:
            self._watching = False

    async def unblock(self) -> None:
        """End the wait of `watch`, which must then wait for other streams, too."""
        clients = self._clients
        if clients is None or clients.watcher_id < 0:
            return
        for _ in range(_UNBLOCK_TRIES):
            if not self._watching:
                return
            with suppress(exceptions.RedisError, OSError):
                if await clients.readers.call("CLIENT", "UNBLOCK", clients.watcher_id):
                    return
            await asyncio.sleep(_UNBLOCK_SECONDS)  # XREAD is still on its way

    # --- appending --------------------------------------------------------------------------

    async def append(self, batches: Sequence[AppendRequest]) -> list[Appended | StorageError]:
        """Append batches in their order; returns the result of each. Raises StorageError.

        InDoubtError: the answer was lost, so all of them may be in Redis.
        """
        return await self._guarded(_append(self._connected(), batches), in_doubt=True)

    async def _guarded(self, call: Coroutine[Any, Any, T], *, in_doubt: bool = False) -> T:
        """Run a call with a deadline, translating its failures to StorageError.

        With `in_doubt`, a failure after which Redis may have run the command becomes InDoubtError.
        """
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            async with asyncio.timeout(2 * self._limits.seconds):
                return await call
        except StorageError:
            raise
        except UNEXPECTED as e:
            failure = failure_of(e)
            if in_doubt and not isinstance(e, exceptions.ResponseError | exceptions.DataError):
                raise InDoubtError(str(failure)) from e
            raise failure from e
        finally:
            self._calls.discard(task)


# --- reading --------------------------------------------------------------------------------


async def _bounds(clients: Clients, streams: Sequence[bytes]) -> list[StreamBounds | StorageError]:
    loaded = clients.scripts[scripts.BOUNDS]
    try:
        answers = await clients.readers.call("EVALSHA", loaded, len(streams), *streams)
    except exceptions.NoScriptError:  # SCRIPT FLUSH, or another server behind the address
        await load_script(clients, scripts.BOUNDS)
        loaded = clients.scripts[scripts.BOUNDS]
        answers = await clients.readers.call("EVALSHA", loaded, len(streams), *streams)
    return [_bounds_of(answer) for answer in answers]


def _bounds_of(answer: Answer) -> StreamBounds | StorageError:
    if len(answer) == 1:
        return refusal_of(answer[0].decode(errors="replace"))
    return StreamBounds.parse(answer)


async def _read(clients: Clients, request: ReadRequest) -> ReadAnswer:
    encoder = request.encoder
    count = max(1, min(request.entries, _MOST_ENTRIES))
    start = encoder.offsets.first_id_from(request.offset)
    while True:
        try:
            found, bounds = await _range_and_bounds(clients, request.stream, start, count)
            break
        except AnswerTooLargeError:
            if count == 1:
                raise
            count = max(1, count // _SHRINK)
    entries, size, asked = list(found), _size(found), count
    for _ in range(_READ_ROUNDS):
        if len(found) < asked or size >= request.limit:
            break
        asked = _next_count(asked, len(entries), size, request.limit)
        start = _after(entries[-1][0])
        try:
            found, later = await _range_and_bounds(clients, request.stream, start, asked)
        except AnswerTooLargeError:
            break  # the next entries are much larger than the previous ones
        if later.first is None or later.first > start:
            break  # entries between this command and the last one may have been trimmed
        bounds = later
        entries += found
        size += _size(found)
    encoded = encoder.encode(
        entries,
        request.offset,
        request.limit,
        at_least_one=request.at_least_one,
        leader_epoch=request.leader_epoch,
        most=request.most,
    )
    return ReadAnswer(encoded, bounds, size / len(entries) if entries else 0.0, not entries)


async def _range_and_bounds(
    clients: Clients, stream: bytes, start: EntryId, count: int
) -> tuple[list[Entry], StreamBounds]:
    """Read entries and then bounds, which show whether trimming has left a gap in the entries.

    Does not use MULTI, which a full Redis refuses.
    """
    entries, bounds = await clients.readers.pipeline(
        [
            ("XRANGE", stream, start.text, "+", "COUNT", count),
            ("EVALSHA", clients.scripts[scripts.BOUNDS], 1, stream),
        ]
    )
    if isinstance(bounds, exceptions.NoScriptError):
        await load_script(clients, scripts.BOUNDS)
        return await _range_and_bounds(clients, stream, start, count)
    for answer in (entries, bounds):
        if isinstance(answer, Exception):
            raise answer
    known = _bounds_of(bounds[0])
    if isinstance(known, StorageError):
        raise known
    return entries, known


def _size(entries: Sequence[Entry]) -> int:
    return sum(sum(map(len, flat)) for _, flat in entries)


def _next_count(asked: int, count: int, size: int, limit: int) -> int:
    """The number of entries to request next, after `count` entries with a total of `size` bytes."""
    wanted = (limit - size) * count // max(size, 1) + 1
    return max(1, min(wanted, asked * _GROWTH, _MOST_ENTRIES))


def _after(text: bytes) -> EntryId:
    """The lowest id above this one."""
    ms, sequence = EntryId.parse(text)
    return EntryId(ms, sequence + 1) if sequence + 1 < 1 << 64 else EntryId(ms + 1, 0)


async def _watch(clients: Clients, streams: Mapping[bytes, EntryId]) -> dict[bytes, Growth]:
    block = _BLOCK_MS if clients.watcher_id >= 0 else _BLOCK_MS // 10
    ids = [last.text for last in streams.values()]
    try:
        answer = await clients.watcher.call(
            "XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *streams, *ids
        )
    except AnswerTooLargeError:  # it has an entry of each stream that has grown
        return dict(zip(streams, await _bounds(clients, list(streams)), strict=True))
    grown = {stream: EntryId.parse(entries[0][0]) for stream, entries in answer or ()}
    if not all(entry > streams[stream] for stream, entry in grown.items()):
        raise ValueError("entries that were not asked for")
    return dict(grown)


# --- appending ------------------------------------------------------------------------------


async def _append(
    clients: Clients, batches: Sequence[AppendRequest]
) -> list[Appended | StorageError]:
    answers = await _send_appends(clients, batches)
    unknown = [n for n, each in enumerate(answers) if isinstance(each, exceptions.NoScriptError)]
    if unknown:  # none of these has run: scripts are forgotten all at once
        await load_script(clients, scripts.APPEND)
        again = await _send_appends(clients, [batches[n] for n in unknown])
        for n, answer in zip(unknown, again, strict=True):
            answers[n] = answer
    return [_appended_of(answer) for answer in answers]


async def _send_appends(clients: Clients, batches: Sequence[AppendRequest]) -> list[Answer]:
    script = clients.scripts[scripts.APPEND]
    commands: list[tuple[bytes | str | int, ...]] = [
        ("EVALSHA", script, len(batch.keys), *batch.keys, *batch.arguments) for batch in batches
    ]
    replicas = max(batch.replicas for batch in batches)
    if not replicas:
        return await clients.writer.pipeline(commands)
    *answers, confirmed = await clients.writer.pipeline([*commands, ("WAIT", replicas, _WAIT_MS)])
    for n, batch in enumerate(batches):
        enough = isinstance(confirmed, int) and confirmed >= batch.replicas
        if batch.replicas and not enough and not isinstance(answers[n], Exception):
            answers[n] = InDoubtError(f"fewer than {batch.replicas} replicas have confirmed")
    return answers


def _appended_of(answer: Answer) -> Appended | StorageError:
    if isinstance(answer, Exception):
        return failure_of(answer)
    return Appended(answer[0].decode(), answer[1].decode())
