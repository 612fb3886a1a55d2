"""Recognises a long poll that the client sends again after an answer without records.

The repetition differs from the last request in the correlation id and, if the fetch has a session,
in the session's epoch. No task serves it: it waits as `fetch/idle_fetch.py` describes.
"""

from __future__ import annotations

import asyncio

from quafka_gateway.fetch.idle_fetch import IdleFetch
from quafka_gateway.fetch.standing_polls import TailWait
from quafka_gateway.handlers.prediction import (
    CORRELATION_ENDS,
    Caller,
    PredictedAnswer,
    Prediction,
)
from quafka_loop.eager_task import DirectFuture
from quafka_proto.headers import RequestHeader, decode_request_header
from quafka_proto.schema.fetch import FetchRequest

_LONGEST = 1 << 10
"""Bytes of a request that is kept for comparison."""
_EPOCH_BYTES = 4


class _Wait(DirectFuture[bool]):
    """Ends with True if nothing has changed until the deadline, see `TailWait.ended`."""

    tail: TailWait | None = None

    def end(self, nothing: bool) -> None:
        self.tail = None
        self.set_result(nothing)

    def cancel(self, msg: object = None) -> bool:
        """Wait no longer: the client is gone."""
        tail, self.tail = self.tail, None
        if tail is not None:
            tail.cancel()
        return super().cancel(msg)


class RepeatedPoll(Prediction[IdleFetch]):
    """The fetch that one client is expected to send next, once a fetch has found nothing."""

    def __init__(self, header: RequestHeader, frame: bytes) -> None:
        """`frame`: the last request."""
        super().__init__(header)
        self._frame = frame
        self._idle: IdleFetch | None = None
        self._cut = 0
        self._before = self._after = b""

    @classmethod
    def after(
        cls, header: RequestHeader, _request: FetchRequest, frame: bytes, _end: int
    ) -> RepeatedPoll | None:
        """What may follow a request; None: it will be decoded."""
        return cls(header, frame) if len(frame) <= _LONGEST else None

    def learn(self, idle: IdleFetch | None) -> None:
        """See Prediction."""
        self._idle = idle
        if idle is not None and not self._cut:
            frame, at = self._frame, idle.epoch_at
            self._cut = len(frame) if at is None else decode_request_header(frame)[1] + at
            self._before = frame[CORRELATION_ENDS : self._cut]
            self._after = frame[self._cut + _EPOCH_BYTES :]

    def read(self, frame: bytes, caller: Caller) -> IdleFetch | None:
        """See Prediction. The news is what the fetch waits for."""
        idle, cut = self._idle, self._cut
        if idle is None or len(frame) != len(self._frame):
            return None
        if not frame.startswith(self._before, CORRELATION_ENDS):
            return None
        session = idle.session
        if session is None:
            return idle
        epoch = int.from_bytes(frame[cut : cut + _EPOCH_BYTES], "big", signed=True)
        is_it = epoch == session.epoch and frame.endswith(self._after) and session.is_next
        return idle if is_it else None

    def begin(self, news: IdleFetch, caller: Caller) -> _Wait | None:
        """See Prediction. Waits as the client asked."""
        wait = _Wait(loop=asyncio.get_running_loop())
        tail = news.wait(wait.end)
        if tail is None:
            return None
        if not wait.done():
            wait.tail = tail
        return wait

    def answer(
        self, correlation_id: int, news: IdleFetch, begun: DirectFuture[bool], caller: Caller
    ) -> PredictedAnswer | None:
        """See Prediction. The handler must serve the poll if there is something, if another request
        has used the session meanwhile, and if the client's rights have changed.
        """
        session = news.session
        if not begun.result() or not news.is_allowed:
            return None
        if session is not None and not session.is_next:
            return None
        return news.response(correlation_id, begun.get_loop().time()), 0
