"""The table of fetch sessions: bounded, with an order of eviction. Pure.

A session only saves bytes: nothing is lost with it. So the number of sessions is bounded, and so
is the number of partitions in all of them. A new session evicts, in this order:

1. if clients at one address hold more than half of the sessions or of their partitions, the
   least recently used session of that address;
2. a session that was not used for two minutes;
3. a session of less worth that is two minutes old, or is a consumer's if the new one is a
   replica's. A replica's session is worth more than a consumer's; then more partitions are worth
   more than fewer.

Orgs share the bounds (`fair_budget`). These rules are for sessions of one org; an org that is below
its share evicts the least recently used session of the org with the most.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_gateway.fair_budget import FairBudget, OrgShare
from quafka_gateway.fetch.requested_partitions import Key, RequestedPartitions, key_of
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp

EVICTION_SECONDS = 120.0
FIRST_EPOCH = 1
MAX_EPOCH = _MAX_ID = 0x7FFFFFFF
NO_SESSION = 0
_UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class SessionPartition:
    """A partition of a session: what the client requests, and the last answer about it."""

    op: FetchOp
    high_watermark: int = _UNKNOWN_OFFSET
    log_start: int = _UNKNOWN_OFFSET
    last_stable: int = _UNKNOWN_OFFSET

    def record_answer(self, answer: FetchOpResp) -> bool:
        """Record what the client is answered. False: the client knows all of it already."""
        if answer.error_code:
            self.high_watermark = _UNKNOWN_OFFSET  # so that the end of the error is news
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
class Session:
    """One fetch session.

    Attributes:
        privileged: it is a replica's.
        owner: the client's address.
        epoch: the epoch that the next request must have.
        partitions: in the order in which they are read.
    """

    id: int
    privileged: bool
    topic_ids: bool
    created: float
    last_used: float
    owner: str = ""
    epoch: int = FIRST_EPOCH
    partitions: dict[Key, SessionPartition] = field(default_factory=dict[Key, SessionPartition])

    @property
    def worth(self) -> tuple[bool, int]:
        """Its rank among sessions: see the order of eviction."""
        return self.privileged, len(self.partitions)

    def size_with(self, requested: Iterable[Key]) -> int:
        """The number of partitions that it would have with these."""
        return len(self.partitions) + sum(key not in self.partitions for key in requested)

    def update(self, requested: RequestedPartitions, forgotten: Iterable[Key]) -> None:
        """Add or replace partitions, then remove the forgotten ones."""
        for key, op in requested.items():
            partition = self.partitions.get(key)
            if partition is None:
                self.partitions[key] = SessionPartition(op)
            else:
                partition.op = op
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, op: FetchOp) -> None:
        """Read the partition last from now on: under a small max_bytes the others have a turn."""
        key = key_of(op)
        self.partitions[key] = self.partitions.pop(key)

    def advance(self, now: float) -> None:
        """Begin the next epoch."""
        self.epoch = FIRST_EPOCH if self.epoch == MAX_EPOCH else self.epoch + 1
        self.last_used = now


class SessionShares(NamedTuple):
    """An org's shares of the bounds on sessions and on their partitions."""

    sessions: OrgShare
    partitions: OrgShare


class SessionBudget:
    """The bounds on the sessions of all orgs, and on the partitions in them."""

    def __init__(self, slots: int, max_partitions: int) -> None:
        self._sessions = FairBudget(slots)
        self._partitions = FairBudget(max_partitions)

    def open(self) -> SessionShares:
        """Return the shares of one more org."""
        return SessionShares(self._sessions.open(), self._partitions.open())


class SessionTable:
    """The sessions of one org, by id.

    Args:
        slots: the greatest number of sessions; 0: sessions are off.
        max_partitions: the greatest number of partitions in all sessions together.
        session_partitions: the greatest number of partitions in one session.
        random_below: draws a session id. Sessions belong to no connection, so that an id must not
            be guessable.
    """

    def __init__(
        self,
        slots: int,
        max_partitions: int,
        session_partitions: int,
        random_below: Callable[[int], int] = secrets.randbelow,
        shares: SessionShares | None = None,
    ) -> None:
        """`shares`: of bounds that all orgs have together, instead of the first two."""
        shares = shares or SessionBudget(slots, max_partitions).open()
        self._slots = shares.sessions.part(self._evict_oldest)
        self._room = shares.partitions.part(self._evict_oldest)
        self._session_partitions = min(self._room.limit, session_partitions)
        self._random_below = random_below
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # least recently used first

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions together."""
        return self._room.held

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> Session | None:
        """The session with this id."""
        return self._sessions.get(session_id)

    def create(
        self,
        answered: Sequence[tuple[FetchOp, FetchOpResp]],
        privileged: bool,
        topic_ids: bool,
        now: float,
        owner: str = "",
    ) -> int:
        """Begin a session of these partitions, if there is room for it. Returns its id, or 0."""
        size = len(answered)
        if not self._slots.limit or not 0 < size <= self._session_partitions:
            return NO_SESSION
        while not (self._slots.make_room(1) and self._room.make_room(size)):
            victim = self._greedy(owner) or self._evictable((privileged, size), now)
            if victim is None:
                return NO_SESSION
            self.remove(victim)
        session = Session(self._new_id(), privileged, topic_ids, now, now, owner)
        for op, answer in answered:
            partition = session.partitions[key_of(op)] = SessionPartition(op)
            partition.record_answer(answer)
        self._sessions[session.id] = session
        self._slots.hold(1)
        self._room.hold(size)
        return session.id

    def update(
        self, session: Session, requested: RequestedPartitions, forgotten: Iterable[Key]
    ) -> bool:
        """Change a session's partitions. A session that grows beyond the bounds, or has no
        partitions left, is removed; False: it would have grown beyond them."""
        before = len(session.partitions)
        size = session.size_with(requested)
        if size > self._session_partitions or not self._room.make_room(size - before):
            self.remove(session)
            return False
        session.update(requested, forgotten)
        self._room.hold(len(session.partitions) - before)
        if not session.partitions:
            self.remove(session)
        return True

    def advance(self, session: Session, now: float) -> None:
        """Begin a session's next epoch: it is the most recently used one."""
        session.advance(now)
        self._sessions.move_to_end(session.id)

    def remove(self, session: Session) -> None:
        """Remove a session."""
        del self._sessions[session.id]
        self._slots.hold(-1)
        self._room.hold(-len(session.partitions))

    def clear(self) -> None:
        """Remove all sessions."""
        while self._sessions:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        self.remove(next(iter(self._sessions.values())))

    def _greedy(self, owner: str) -> Session | None:
        """The least recently used session of an address that holds more than half.

        None if all sessions, with the new one of `owner`, are of one address, or of unknown ones:
        then no client has a greater claim than another.
        """
        held: dict[str, list[int]] = {}
        for session in self._sessions.values():
            sums = held.setdefault(session.owner, [0, 0])
            sums[0] += 1
            sums[1] += len(session.partitions)
        if len({*held, owner}) < 2:
            return None
        for each, (count, partitions) in held.items():
            if 2 * count > self._slots.size or 2 * partitions > self._room.size:
                return next(one for one in self._sessions.values() if one.owner == each)
        return None

    def _evictable(self, worth: tuple[bool, int], now: float) -> Session | None:
        """The session that a new one of this worth may evict."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
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

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._random_below(_MAX_ID)
            if session_id not in self._sessions:
                return session_id
