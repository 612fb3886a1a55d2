"""What a throttled request's response carries, and when its connection is read from again.

As in Kafka (KIP-219): the response leaves at once with `throttle_time_ms`, and the connection is
muted for that time, since clients older than the KIP do not wait themselves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from math import ceil
from struct import Struct
from weakref import WeakKeyDictionary

from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_loop.deadlines import Deadline, Deadlines
from quafka_loop.garbage import ignore
from quafka_proto.message import Buffer, Message

LONGEST_SECONDS = 3_600.0
"""A client waits no longer, however far it is over its quota."""
_TICK = 0.01
_TIME = Struct(">i")
_FIELD = "throttle_time_ms"
_HALF_CLOSED = (7, 8)  # TCP_CLOSE, TCP_CLOSE_WAIT of the Linux kernel

_deadlines: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


class Muting:
    """For how long one connection is not read from."""

    __slots__ = ("_deadline", "_loop", "_unmute", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, unmute: Callable[[], None]) -> None:
        """`unmute` is called when the time is over."""
        self._loop = loop
        self._unmute = unmute
        self._until = 0.0
        self._deadline: Deadline | None = None

    @property
    def active(self) -> bool:
        """Whether the connection is muted."""
        return self._deadline is not None

    def extend(self, seconds: float) -> None:
        """Mute for this time from now on, or for what is left, whichever is longer."""
        until = self._loop.time() + min(seconds, LONGEST_SECONDS)
        if until <= self._until:
            return
        self._until = until
        self.end()
        deadlines = _deadlines.get(self._loop)
        if deadlines is None:
            deadlines = _deadlines[self._loop] = Deadlines(self._loop, _TICK)
        self._deadline = deadlines.add(until, self._over)

    def end(self) -> None:
        """End the muting without calling `unmute`."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def close(self) -> None:
        """End it for good: the connection is gone."""
        self.end()
        self._unmute = ignore

    def _over(self) -> None:
        self._deadline = None
        self._unmute()


def milliseconds(seconds: float) -> int:
    """The time as responses state it."""
    return ceil(min(seconds, LONGEST_SECONDS) * 1000)


def set_throttle_time(response: Message | EncodedResponse, seconds: float) -> None:
    """State the time in a response, if its schema has a field for it."""
    if isinstance(response, Message) and hasattr(response, _FIELD):
        setattr(response, _FIELD, milliseconds(seconds))


def stated(response: EncodedResponse, version: int, seconds: float) -> list[Buffer]:
    """The body of an encoded response with the time; the response itself is not changed.

    The time is the first field of all responses that handlers encode themselves.
    """
    field = response.kind.FIELDS.get(_FIELD)
    if field is None or version not in field.versions:
        return response.body
    first, *rest = response.body
    return [_TIME.pack(milliseconds(seconds)) + bytes(first)[_TIME.size :], *rest]


def peer_has_gone(transport: asyncio.Transport) -> bool:
    """Whether the client has closed its side; a connection that is not read from cannot know."""
    found = transport.get_extra_info("socket")
    if found is None:
        return False
    state: bytes = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return bool(state) and state[0] in _HALF_CLOSED
