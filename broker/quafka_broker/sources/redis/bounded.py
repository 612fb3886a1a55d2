"""Connections to Redis with bounded answers: a hostile server may send bytes without end.

hiredis allocates a list when it has read its length, so a dozen bytes could cost gigabytes. A list
needs four bytes for each of its elements: a list that is too long for the answer is refused before
hiredis sees it. To distinguish a list's header from the same bytes in a value, an answer is parsed
from its beginning; this is done only for answers with such bytes.
"""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakSet

from redis import exceptions
from redis.asyncio import Connection, SSLConnection

_LISTS, _STRINGS = b"*%~>|", b"$!="
_LONG_LISTS = [(bytes((kind,)), re.compile(rb"[%c][0-9]{7}" % kind)) for kind in _LISTS]
_LONGEST_HEAD = 32
_LEAST_ELEMENT = 4


class AnswerTooLargeError(exceptions.RedisError):
    """An answer is too long. Its connection is closed."""


class Headers:
    """Reads the headers of RESP values, over chunks; `most` is the length of the longest list."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._skip = 0
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Read the next chunk.

        Raises:
            AnswerTooLargeError: a list is longer.
            ValueError: this is not RESP.
        """
        data = self._partial + data
        at, self._skip, self._partial = self._skip, 0, b""
        while at < len(data):
            end = data.find(b"\r\n", at)
            if end < 0:
                self._partial = data[at:]
                return
            kind = data[at]
            if kind in _STRINGS:
                at = end + 2 + max(0, int(data[at + 1 : end]) + 2)
            else:
                if kind in _LISTS and int(data[at + 1 : end]) > self._most:
                    raise AnswerTooLargeError("a list is too long")
                at = end + 2
        self._skip = at - len(data)


class BoundedStream:
    """A StreamReader that returns at most `left` more bytes, and no list too long for them."""

    def __init__(self, stream: Any, answer_bytes: int) -> None:
        self._stream = stream
        self._most = answer_bytes // _LEAST_ELEMENT
        self._chunks: list[bytes] = []
        self._headers: Headers | None = None
        self.left = 0

    def begin(self) -> None:
        """Begin an answer at the next bytes."""
        self._chunks.clear()
        self._headers = None

    async def read(self, size: int) -> bytes:
        """Read the next bytes. Raises AnswerTooLargeError, ValueError."""
        data: bytes = await self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise AnswerTooLargeError("the answer is too large")
        if self._headers is not None:
            self._headers.feed(data)
            return data
        before = self._chunks[-1][-_LONGEST_HEAD:] if self._chunks else b""
        self._chunks.append(data)
        if _may_have_long_list(before + data):
            self._headers = Headers(self._most)
            for chunk in self._chunks:
                self._headers.feed(chunk)
            self._chunks.clear()
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _may_have_long_list(data: bytes) -> bool:
    """Whether the bytes have, or seem to have, the header of a list of 1,000,000 elements or more.

    One pattern for all kinds of lists would take five times as long.
    """
    return any(kind in data and pattern.search(data) for kind, pattern in _LONG_LISTS)


class OpenConnections:
    """The connections of a client. None stays open after `close`, whatever is under way.

    A closed pool forgets connections that are being opened and, if its close is cancelled, all.
    """

    def __init__(self) -> None:
        self._connections: WeakSet[Any] = WeakSet()
        self._closed = False

    def add(self, connection: Any) -> None:
        """Add an open connection. Raises redis.ConnectionError: the client is closed."""
        self._connections.add(connection)
        if self._closed:
            self.close()
            raise exceptions.ConnectionError("the client is closed")

    def close(self) -> None:
        """Close all, and refuse others."""
        self._closed = True
        for connection in self._connections:
            connection._close()  # noqa: SLF001 - the one close that does not wait


class _Bounded:
    answer_bytes = 0
    opened: OpenConnections
    _reader: Any

    async def _connect(self) -> None:
        base: Any = super()
        await base._connect()  # noqa: SLF001 - the one step between socket and parser
        self._reader = BoundedStream(self._reader, self.answer_bytes)
        self.opened.add(self)

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """Send commands. The answers to all earlier ones have been read."""
        base: Any = super()
        if self._reader is not None:
            self._reader.begin()
        await base.send_packed_command(*args, **options)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """The next answer. Raises AnswerTooLargeError, ValueError."""
        if self._reader is not None:
            self._reader.left = self.answer_bytes
        base: Any = super()
        return await base.read_response(*args, **options)


def connection_class(tls: bool, answer_bytes: int, opened: OpenConnections) -> type:
    """redis-py's class of connections, with bounded answers; `opened` collects open ones."""
    base = SSLConnection if tls else Connection
    return type(
        "BoundedConnection", (_Bounded, base), {"answer_bytes": answer_bytes, "opened": opened}
    )
