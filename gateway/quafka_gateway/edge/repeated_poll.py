"""Recognises a long poll that the client sends again after an answer without records.

The repetition differs from the last request in the correlation id and, if the fetch has a session,
in the session's epoch. It is not decoded, and no task serves it: it waits as
`fetch/idle_fetch.py` describes.
"""

from __future__ import annotations

from collections.abc import Callable

from quafka_gateway.fetch.idle_fetch import IdleFetch
from quafka_gateway.fetch.standing_polls import TailWait
from quafka_gateway.handlers.kafka_api import AnyApi
from quafka_proto.headers import RequestHeader, decode_request_header
from quafka_proto.message import Buffer

LONGEST = 1 << 10
"""Bytes of a request that is kept for comparison."""
_AFTER_CORRELATION = 8
_EPOCH_BYTES = 4


class RepeatedPoll:
    """The request that one client is expected to send next."""

    __slots__ = ("_after", "_before", "_cut", "_header", "_idle", "_kind", "_size", "api")

    def __init__(self, api: AnyApi, frame: bytes, idle: IdleFetch) -> None:
        """`frame`: the last request, whose header can be decoded."""
        self.api = api
        self._idle = idle
        self._header, body = decode_request_header(frame)
        self._size = len(frame)
        self._kind = frame[:4]  # API key and version
        at = idle.epoch_at
        self._cut = self._size if at is None else body + at
        self._before = frame[_AFTER_CORRELATION : self._cut]
        self._after = frame[self._cut + _EPOCH_BYTES :]

    def matches(self, frame: bytes) -> bool:
        """Whether this is the repetition."""
        cut = self._cut
        if len(frame) != self._size or not frame.startswith(self._kind):
            return False
        if not frame.startswith(self._before, _AFTER_CORRELATION):
            return False
        session = self._idle.session
        if session is None:
            return True
        epoch = int.from_bytes(frame[cut : cut + _EPOCH_BYTES], "big", signed=True)
        return epoch == session.epoch and frame.endswith(self._after) and session.is_next

    def header(self, frame: bytes) -> RequestHeader:
        """The header of the repetition."""
        key, version, _, client_id = self._header
        correlation_id = int.from_bytes(frame[4:_AFTER_CORRELATION], "big", signed=True)
        return RequestHeader(key, version, correlation_id, client_id)

    def wait(self, ended: Callable[[bool], object]) -> TailWait | None:
        """See `IdleFetch.wait`."""
        return self._idle.wait(ended)

    def response(self, correlation_id: int, now: float) -> list[Buffer] | None:
        """The response without records; None: the poll must be served as any other.

        Another request has used the session meanwhile, or the client's rights have changed.
        """
        session = self._idle.session
        if not self._idle.is_allowed or (session is not None and not session.is_next):
            return None
        return self._idle.response(correlation_id, now)
