"""Fetch sessions (KIP-227). Pure: takes requests, what was read for them, and the time.

A client names its partitions once, in a full fetch. From then on its requests name only the
partitions that it adds or changes, and the answers name only those that have changed. The meaning
of a request depends on the session that it names and on its epoch:

| session  | epoch        | meaning                                                            |
| -------- | ------------ | ------------------------------------------------------------------ |
| any      | -1, final    | close the session, if it exists; a full fetch without a session    |
| any      | 0, initial   | the same, but begin a new session if there is room for it          |
| known    | the next one | an incremental fetch                                               |
| known    | any other    | INVALID_FETCH_SESSION_EPOCH                                        |
| unknown  | any other    | FETCH_SESSION_ID_NOT_FOUND: the client begins again                |

A new session is at epoch 1; each request takes it to the next one, and 1 follows the greatest.
Sessions belong to no connection. An answer without a session has the session id 0.
`session_table` bounds the sessions and evicts them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from quafka_gateway.fetch.requested_partitions import (
    RequestedPartitions,
    forgotten,
    has_topic_ids,
    replica_id,
    requested,
)
from quafka_gateway.fetch.session_table import NO_SESSION, Session, SessionShares, SessionTable
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchRequest

_FINAL, _INITIAL = -1, 0

_Answers = Sequence[FetchOpResp]


class Answered(NamedTuple):
    """The answer to the client: an error of the request as a whole, or these partitions."""

    error: ErrorCode
    session_id: int
    partitions: list[tuple[FetchOp, FetchOpResp]]


class Fetch:
    """A request in progress: the caller reads `ops`, then calls `finish` with the answers."""

    ops: list[FetchOp]
    error = ErrorCode.NONE
    """An error of the request as a whole: then there are no ops."""
    repeatable = False
    """Whether the same request again, with the session's next epoch, means the same."""

    @property
    def session(self) -> Session | None:
        """The session of an incremental fetch."""
        return None

    def finish(self, answers: _Answers, now: float) -> Answered:
        """The answer to the client, from one answer for each op, in their order."""
        del now
        return Answered(self.error, NO_SESSION, list(zip(self.ops, answers, strict=True)))

    def throttled(self) -> Answered:
        """The answer without partitions of a client that has read too much; no session begins."""
        return Answered(self.error, NO_SESSION, [])


class _Sessionless(Fetch):
    repeatable = True

    def __init__(self, wanted: RequestedPartitions) -> None:
        self.ops = list(wanted.values())


class _Refused(Fetch):
    def __init__(self, error: ErrorCode) -> None:
        self.ops = []
        self.error = error


class _Full(Fetch):
    """All partitions are answered, and a session begins if there is room for it."""

    def __init__(
        self,
        table: SessionTable,
        wanted: RequestedPartitions,
        privileged: bool,
        topic_ids: bool,
        owner: str,
    ) -> None:
        self.ops = list(wanted.values())
        self._table = table
        self._privileged = privileged
        self._topic_ids = topic_ids
        self._owner = owner

    def finish(self, answers: _Answers, now: float) -> Answered:
        pairs = list(zip(self.ops, answers, strict=True))
        session_id = self._table.create(pairs, self._privileged, self._topic_ids, now, self._owner)
        return Answered(ErrorCode.NONE, session_id, pairs)


class _Incremental(Fetch):
    """All partitions of the session are read; those that changed are answered.

    The fetch holds its session: a session that is evicted meanwhile still answers this request.
    """

    repeatable = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self._epoch = session.epoch
        self._partitions = list(session.partitions.values())
        self.ops = [partition.op for partition in self._partitions]

    @property
    def session(self) -> Session | None:
        return self._session

    def finish(self, answers: _Answers, now: float) -> Answered:
        session = self._session
        if session.epoch != self._epoch:  # a later request has overtaken this one
            return Answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, [])
        changed: list[tuple[FetchOp, FetchOpResp]] = []
        for partition, answer in zip(self._partitions, answers, strict=True):
            if partition.record_answer(answer):
                changed.append((partition.op, answer))
                if answer.records:
                    session.move_to_end(partition.op)
        return Answered(ErrorCode.NONE, session.id, changed)

    def throttled(self) -> Answered:
        overtaken = self._session.epoch != self._epoch
        error = ErrorCode.INVALID_FETCH_SESSION_EPOCH if overtaken else ErrorCode.NONE
        return Answered(error, self._session.id, [])


class _Meaning(Enum):
    FULL = auto()
    BEGIN = auto()
    INCREMENTAL = auto()
    WRONG_EPOCH = auto()
    NOT_FOUND = auto()


class _Epoch(Enum):
    FINAL = auto()
    INITIAL = auto()
    NEXT = auto()
    OTHER = auto()


_KNOWN, _UNKNOWN = True, False
_MEANINGS: dict[tuple[bool, _Epoch], _Meaning] = {
    (_UNKNOWN, _Epoch.FINAL): _Meaning.FULL,
    (_KNOWN, _Epoch.FINAL): _Meaning.FULL,
    (_UNKNOWN, _Epoch.INITIAL): _Meaning.BEGIN,
    (_KNOWN, _Epoch.INITIAL): _Meaning.BEGIN,
    (_KNOWN, _Epoch.NEXT): _Meaning.INCREMENTAL,
    (_KNOWN, _Epoch.OTHER): _Meaning.WRONG_EPOCH,
    (_UNKNOWN, _Epoch.OTHER): _Meaning.NOT_FOUND,
}
_ERRORS = {
    _Meaning.WRONG_EPOCH: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    _Meaning.NOT_FOUND: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
}


class FetchSessions:
    """The sessions of one org. The arguments are those of `SessionTable`."""

    def __init__(
        self,
        slots: int,
        max_partitions: int,
        session_partitions: int,
        random_below: Callable[[int], int] = secrets.randbelow,
        shares: SessionShares | None = None,
    ) -> None:
        self.table = SessionTable(slots, max_partitions, session_partitions, random_below, shares)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together."""
        return self.table.partitions

    def begin(
        self,
        request: FetchRequest,
        version: int,
        now: float,
        owner: str = "",
        wanted: RequestedPartitions | None = None,
    ) -> Fetch:
        """Interpret a request. The caller reads the returned `Fetch`'s ops and finishes it.

        `owner` is the client's address; `wanted` the result of `requested_in_steps`, if the caller
        has it already.
        """
        if wanted is None:
            wanted = requested(request, version)
        session = self.table.find(request.session_id)
        epoch = _epoch(request.session_epoch, session)
        meaning = _MEANINGS[session is not None, epoch]
        if meaning is _Meaning.NOT_FOUND or meaning is _Meaning.WRONG_EPOCH:
            return _Refused(_ERRORS[meaning])
        if meaning is _Meaning.INCREMENTAL and session is not None:
            return self._next(session, request, version, wanted, now)
        if session is not None:
            self.table.remove(session)
        if meaning is _Meaning.FULL:
            return _Sessionless(wanted)
        privileged = replica_id(request) >= 0
        return _Full(self.table, wanted, privileged, has_topic_ids(version), owner)

    def _next(
        self,
        session: Session,
        request: FetchRequest,
        version: int,
        wanted: RequestedPartitions,
        now: float,
    ) -> Fetch:
        if session.topic_ids != has_topic_ids(version):
            return _Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self.table.update(session, wanted, forgotten(request, version)):
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            return _Sessionless({})
        self.table.advance(session, now)
        return _Incremental(session)


def _epoch(epoch: int, session: Session | None) -> _Epoch:
    if epoch == _FINAL:
        return _Epoch.FINAL
    if epoch == _INITIAL:
        return _Epoch.INITIAL
    if session is not None and epoch == session.epoch:
        return _Epoch.NEXT
    return _Epoch.OTHER
