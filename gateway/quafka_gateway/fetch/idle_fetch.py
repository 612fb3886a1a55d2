"""A fetch that found nothing, kept in case its client sends it again.

A consumer at the tail repeats its fetch, except for the correlation id and the epoch of its
session. The repetition is recognised by its bytes (`handlers/repeated_poll.py`), waits for an op
that is parked at the broker already (`standing_polls`), and has a response that is known in
advance.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from quafka_gateway.fetch.cached_partition import PartitionKey
from quafka_gateway.fetch.session_table import Session, SessionTable
from quafka_gateway.fetch.standing_polls import (
    LINGER_SECONDS,
    StandingPoll,
    StandingPolls,
    TailWait,
)
from quafka_mesh_ops.ops.records import FetchOp
from quafka_proto.headers import encode_response
from quafka_proto.message import Buffer
from quafka_proto.schema.fetch import FetchResponse

_CORRELATION = struct.Struct(">i")
_FIRST_WITHOUT_REPLICA_ID = 15
_REPLICA_ID_BYTES = 4
_BEFORE_EPOCH = 17
"""Bytes of the body before a session's epoch, without the replica id; all have a fixed width."""


def epoch_position(version: int) -> int:
    """The position of the session's epoch in the body of a request with sessions."""
    return _BEFORE_EPOCH + (_REPLICA_ID_BYTES if version < _FIRST_WITHOUT_REPLICA_ID else 0)


class SessionEpoch:
    """The next epoch of a fetch session."""

    __slots__ = ("_session", "_table", "epoch")

    def __init__(self, table: SessionTable, session: Session) -> None:
        self._table = table
        self._session = session
        self.epoch = session.epoch

    @property
    def is_next(self) -> bool:
        """Whether the session exists, and no request has taken this epoch."""
        session = self._session
        return session.epoch == self.epoch and self._table.find(session.id) is session

    def take(self, now: float) -> None:
        """Answer a request with this epoch."""
        self._table.advance(self._session, now)
        self.epoch = self._session.epoch


class IdleFetch:
    """What the repetition of a fetch at the tail waits for, and its response.

    Args:
        partitions: as the client names them; `keys`: the same by topic id.
        wait_seconds: how long the client lets an answer without records wait.
        session: None if the fetch has no session: then the repetition has the same epoch.
        response: without records, and without news for a session.
        may_repeat: whether the client's rights are still those of the fetch; None: always.
    """

    def __init__(
        self,
        standing: StandingPolls,
        partitions: Sequence[FetchOp],
        keys: Sequence[PartitionKey],
        wait_seconds: float,
        session: SessionEpoch | None,
        response: FetchResponse,
        version: int,
        may_repeat: Callable[[], bool] | None = None,
    ) -> None:
        self.session = session
        self._standing = standing
        self._partitions = partitions
        self._keys = keys
        self._seconds = wait_seconds
        self._response: FetchResponse | bytes = response
        self._version = version
        self._may_repeat = may_repeat
        self._poll: StandingPoll | None = None

    @property
    def epoch_at(self) -> int | None:
        """The position in the request's body of the epoch; None: the repetition is the same."""
        return None if self.session is None else epoch_position(self._version)

    @property
    def is_allowed(self) -> bool:
        """Whether the client's rights are still those of the fetch."""
        return self._may_repeat is None or self._may_repeat()

    def wait(self, ended: Callable[[bool], object]) -> TailWait | None:
        """Wait as the client asked. None: the fetch must be served as any other.

        `ended` is called with True if `response` is the answer, with False if the fetch must be
        served as any other; within this call if the client waits for no time at all.
        """
        if not self.is_allowed:
            return None
        poll = self._poll
        if poll is None or not poll.alive:
            keep = self._seconds + LINGER_SECONDS
            poll = self._poll = self._standing.find(self._partitions, self._keys, keep)
        return self._standing.wait(poll, self._seconds, ended)

    def response(self, correlation_id: int, now: float) -> list[Buffer]:
        """The response of the repetition, whose session advances to its next epoch."""
        if self.session is not None:
            self.session.take(now)
        if not isinstance(self._response, bytes):
            self._response = b"".join(encode_response(0, self._response, self._version))
        frame = self._response
        return [frame[:4] + _CORRELATION.pack(correlation_id) + frame[8:]]
