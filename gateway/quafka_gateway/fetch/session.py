"""Fetch sessions (KIP-227). Pure: takes requests, what was read for them, and the time.

A client names its partitions once, in a full fetch. From then on its requests name those that it
wants otherwise than before, and answers those that have changed. What a request means depends on
the session that it names and on its epoch:

| session  | epoch        | meaning                                                            |
| -------- | ------------ | ------------------------------------------------------------------ |
| any      | -1, final    | close the session, if there is one; a full fetch without a session |
| any      | 0, initial   | the same, but begin a new session if there is a place for it       |
| known    | the next one | an incremental fetch                                               |
| known    | any other    | INVALID_FETCH_SESSION_EPOCH                                        |
| unknown  | any other    | FETCH_SESSION_ID_NOT_FOUND: the client begins again                |

A new session is at epoch 1; each request takes it to the next, and the greatest is followed by 1.
Sessions belong to no connection. Where a session cannot be had, its id in the answer is 0.

A session is at most a way to save bytes: nothing is lost with it. So the number of sessions is
bounded, and so are the partitions in all of them. A new session may take the place of one that
was not used for two minutes; or of one that has had its two minutes, or is a consumer's where the
new one is a replica's, provided that the new one is worth more: a replica's above a consumer's,
then more partitions above fewer. Before that, where clients at one address hold more than half of
the sessions or of their partitions, a new one takes the place of their least recently used.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import FetchRequest

EVICTION_SECONDS = 120.0
_NO_SESSION = 0
_FINAL, _INITIAL, _FIRST = -1, 0, 1
_MAX_INT = 0x7FFFFFFF
_TOPIC_IDS_SINCE = 13
_UNKNOWN_OFFSET = -1

_Key = tuple[str | bytes, int]
_Answers = Sequence[FetchOpResp]


class Answered(NamedTuple):
    """What the client is told: an error of the request as a whole, or these partitions."""

    error: ErrorCode
    session_id: int
    partitions: list[tuple[FetchOp, FetchOpResp]]


@dataclass(slots=True)
class _Cached:
    """A partition of a session: what the client wants of it, and was last told about it."""

    op: FetchOp
    high_watermark: int = _UNKNOWN_OFFSET
    log_start: int = _UNKNOWN_OFFSET
    last_stable: int = _UNKNOWN_OFFSET

    def tell(self, answer: FetchOpResp) -> bool:
        """Note what the client is told; False if it knows all of that already."""
        if answer.error_code:
            self.high_watermark = _UNKNOWN_OFFSET  # so that the end of the error is told
            return True
        if (
            self.high_watermark == answer.high_watermark
            and self.log_start == answer.log_start_offset
            and self.last_stable == answer.last_stable_offset
        ):
            return bool(answer.records) or answer.diverging_epoch is not None
        self.high_watermark = answer.high_watermark
        self.log_start = answer.log_start_offset
        self.last_stable = answer.last_stable_offset
        return True


@dataclass(slots=True, eq=False)
class _Session:
    """`epoch` is what the next request must have; `partitions` are in the order of reading."""

    id: int
    privileged: bool
    topic_ids: bool
    created: float
    last_used: float
    owner: str = ""
    epoch: int = _FIRST
    partitions: dict[_Key, _Cached] = field(default_factory=dict["_Key", "_Cached"])

    @property
    def worth(self) -> tuple[bool, int]:
        return self.privileged, len(self.partitions)

    def grown_to(self, wanted: Iterable[_Key]) -> int:
        """How many partitions it would have with these."""
        return len(self.partitions) + sum(key not in self.partitions for key in wanted)

    def update(self, wanted: dict[_Key, FetchOp], forgotten: Iterable[_Key]) -> None:
        for key, op in wanted.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _Cached(op)
            else:
                cached.op = op
        for key in forgotten:
            self.partitions.pop(key, None)

    def to_the_back(self, op: FetchOp) -> None:
        """It has returned data: under a small max_bytes it is the others' turn."""
        key = _key(op)
        self.partitions[key] = self.partitions.pop(key)


class Fetch:
    """A request as it is to be served: read `ops`, then say what came of it."""

    ops: list[FetchOp]
    error = ErrorCode.NONE
    """Of the request as a whole; then there is nothing to read."""

    def finish(self, answers: _Answers, now: float) -> Answered:
        """What to answer. `answers` are one for each op, in their order."""
        del now
        return Answered(self.error, _NO_SESSION, list(zip(self.ops, answers, strict=True)))


class _Sessionless(Fetch):
    def __init__(self, wanted: dict[_Key, FetchOp]) -> None:
        self.ops = list(wanted.values())


class _Refused(Fetch):
    def __init__(self, error: ErrorCode) -> None:
        self.ops = []
        self.error = error


class _Full(Fetch):
    """All partitions are answered, and a session begins, if it can."""

    def __init__(
        self,
        sessions: FetchSessions,
        wanted: dict[_Key, FetchOp],
        privileged: bool,
        ids: bool,
        owner: str,
    ) -> None:
        self.ops = list(wanted.values())
        self._sessions = sessions
        self._privileged = privileged
        self._topic_ids = ids
        self._owner = owner

    def finish(self, answers: _Answers, now: float) -> Answered:
        pairs = list(zip(self.ops, answers, strict=True))
        session_id = self._sessions.create(
            pairs, self._privileged, self._topic_ids, now, self._owner
        )
        return Answered(ErrorCode.NONE, session_id, pairs)


class _Incremental(Fetch):
    """All partitions of the session are read; those that changed are answered.

    It holds its session: one that is evicted meanwhile is answered, and not found after that.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._epoch = session.epoch
        self._cached = list(session.partitions.values())
        self.ops = [cached.op for cached in self._cached]

    def finish(self, answers: _Answers, now: float) -> Answered:
        session = self._session
        if session.epoch != self._epoch:  # a later request has overtaken this one
            return Answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, [])
        changed: list[tuple[FetchOp, FetchOpResp]] = []
        for cached, answer in zip(self._cached, answers, strict=True):
            if cached.tell(answer):
                changed.append((cached.op, answer))
                if answer.records:
                    session.to_the_back(cached.op)
        return Answered(ErrorCode.NONE, session.id, changed)


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


class FetchSessions:
    """The sessions of one gateway, by id.

    Args:
        slots: how many sessions there may be; 0: there are none.
        max_partitions: how many partitions there may be in all of them together.
        session_partitions: how many there may be in one of them.
        random_below: draws a session id; sessions are shared, so it must not be guessed.
    """

    def __init__(
        self,
        slots: int,
        max_partitions: int,
        session_partitions: int,
        random_below: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._session_partitions = min(max_partitions, session_partitions)
        self._random_below = random_below
        self._sessions: OrderedDict[int, _Session] = OrderedDict()  # least recently used first
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """In all sessions together."""
        return self._partitions

    def begin(
        self,
        request: FetchRequest,
        version: int,
        now: float,
        owner: str = "",
        wanted: dict[_Key, FetchOp] | None = None,
    ) -> Fetch:
        """What a request asks for. It is to be answered with what the `Fetch` gives at its end.

        `owner` is the client's address; `wanted` what `wanted_in_steps` gave, or None.
        """
        if wanted is None:
            wanted = _at_once(wanted_in_steps(request, version))
        session = self._sessions.get(request.session_id)
        epoch = _epoch(request.session_epoch, session)
        meaning = _MEANINGS[session is not None, epoch]
        topic_ids = version >= _TOPIC_IDS_SINCE
        if meaning is _Meaning.NOT_FOUND or meaning is _Meaning.WRONG_EPOCH:
            return _Refused(_ERRORS[meaning])
        if meaning is _Meaning.INCREMENTAL and session is not None:
            return self._next(session, request, wanted, topic_ids, now)
        if session is not None:
            self._remove(session)
        if meaning is _Meaning.FULL:
            return _Sessionless(wanted)
        return _Full(self, wanted, replica_id(request) >= 0, topic_ids, owner)

    def _next(
        self,
        session: _Session,
        request: FetchRequest,
        wanted: dict[_Key, FetchOp],
        topic_ids: bool,
        now: float,
    ) -> Fetch:
        if session.topic_ids != topic_ids:
            return _Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        before = len(session.partitions)
        grown = session.grown_to(wanted)
        total = self._partitions - before + grown
        if grown > self._session_partitions or total > self._max_partitions:
            self._remove(session)
            return _Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(wanted, _forgotten(request, topic_ids))
        self._partitions += len(session.partitions) - before
        if not session.partitions:
            self._remove(session)
            return _Sessionless({})
        session.epoch = _FIRST if session.epoch == _MAX_INT else session.epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session.id)
        return _Incremental(session)

    # --- places -----------------------------------------------------------------------------

    def create(
        self,
        told: list[tuple[FetchOp, FetchOpResp]],
        privileged: bool,
        topic_ids: bool,
        now: float,
        owner: str = "",
    ) -> int:
        """Begin a session of these partitions, if a place can be had. Its id, or 0."""
        size = len(told)
        if not self._slots or not 0 < size <= self._session_partitions:
            return _NO_SESSION
        while len(self._sessions) >= self._slots or self._partitions + size > self._max_partitions:
            victim = self._greedy(owner) or self._evictable((privileged, size), now)
            if victim is None:
                return _NO_SESSION
            self._remove(victim)
        session = _Session(self._new_id(), privileged, topic_ids, now, now, owner)
        for op, answer in told:
            cached = session.partitions[_key(op)] = _Cached(op)
            cached.tell(answer)
        self._sessions[session.id] = session
        self._partitions += size
        return session.id

    def _greedy(self, asking: str) -> _Session | None:
        """The least recently used session of the address that holds more than half, if one does.

        Where clients have no address, or all are at one, nobody has a greater claim than others.
        """
        held: dict[str, list[int]] = {}
        for session in self._sessions.values():
            sums = held.setdefault(session.owner, [0, 0])
            sums[0] += 1
            sums[1] += len(session.partitions)
        if len({*held, asking}) < 2:
            return None
        for owner, (count, partitions) in held.items():
            if 2 * count > self._slots or 2 * partitions > self._max_partitions:
                return next(one for one in self._sessions.values() if one.owner == owner)
        return None

    def _evictable(self, worth: tuple[bool, int], now: float) -> _Session | None:
        """The session that one of this worth may take the place of, if there is any."""
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used > EVICTION_SECONDS:
            return oldest
        privileged, _ = worth
        least = min(
            (
                session
                for session in self._sessions.values()
                if now - session.created > EVICTION_SECONDS
                or (privileged and not session.privileged)
            ),
            key=lambda session: session.worth,
            default=None,
        )
        return least if least is not None and least.worth < worth else None

    def _remove(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._partitions -= len(session.partitions)

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._random_below(_MAX_INT)
            if session_id not in self._sessions:
                return session_id


_ERRORS = {
    _Meaning.WRONG_EPOCH: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    _Meaning.NOT_FOUND: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
}


def _epoch(epoch: int, session: _Session | None) -> _Epoch:
    if epoch == _FINAL:
        return _Epoch.FINAL
    if epoch == _INITIAL:
        return _Epoch.INITIAL
    if session is not None and epoch == session.epoch:
        return _Epoch.NEXT
    return _Epoch.OTHER


def replica_id(request: FetchRequest) -> int:
    """Who fetches: 0 and above a replica, -1 a consumer."""
    return request.replica_state.replica_id if request.replica_id < 0 else request.replica_id


def wanted_in_steps(
    request: FetchRequest, version: int
) -> Generator[None, None, dict[_Key, FetchOp]]:
    """The partitions that a request names, in its order. Of two mentions the later counts."""
    topic_ids = version >= _TOPIC_IDS_SINCE
    wanted: dict[_Key, FetchOp] = {}
    for topic in request.topics:
        name, topic_id = ("", topic.topic_id) if topic_ids else (topic.topic, b"")
        for partition in topic.partitions:
            wanted[topic_id or name, partition.partition] = FetchOp(
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                topic_id,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            yield
        yield
    return wanted


def _at_once(steps: Generator[None, None, dict[_Key, FetchOp]]) -> dict[_Key, FetchOp]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            wanted: dict[_Key, FetchOp] = end.value
            return wanted


def _forgotten(request: FetchRequest, topic_ids: bool) -> list[_Key]:
    return [
        (topic.topic_id if topic_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _key(op: FetchOp) -> _Key:
    return op.topic_id or op.topic, op.partition
