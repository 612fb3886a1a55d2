"""Share sessions (KIP-932): the partitions that a member reads, without naming them each time.

A session belongs to a group and a member, and to the connection of its last request. ShareFetch and
ShareAcknowledge count its epochs together:

| epoch        | ShareFetch                                      | ShareAcknowledge               |
| ------------ | ----------------------------------------------- | ------------------------------ |
| 0, initial   | begins a session, replacing an earlier one      | INVALID_SHARE_SESSION_EPOCH    |
| -1, final    | ends the session                                | ends the session               |
| the next one | an incremental fetch                            | belongs to the session         |
| any other    | INVALID_SHARE_SESSION_EPOCH                     | INVALID_SHARE_SESSION_EPOCH    |

Without a session, all but the initial epoch are SHARE_SESSION_NOT_FOUND: the client begins again.
A session that ends gives back the records that its member has acquired or renewed in it. One that
is begun anew while it exists goes on under its id. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from quafka_proto.errors import ErrorCode

INITIAL, FINAL = 0, -1
_FIRST, _MAX_EPOCH = 1, 0x7FFFFFFF

Key = tuple[str, str]
"""A group and a member."""
Place = tuple[bytes, int]
"""A partition of a topic, by the topic's id."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """One session.

    Attributes:
        id: differs from that of any other session of any gateway.
        connection: the number of the connection of its last request.
        epoch: the one that the next request must have.
        partitions: in the order in which they are read; whether each is new to the group: see
            `SharePlace.is_new`.
        lock_ms: how long the member has what it acquires, as far as that is known.
    """

    key: Key
    id: bytes
    connection: int
    epoch: int = _FIRST
    partitions: dict[Place, bool] = field(default_factory=dict[Place, bool])
    lock_ms: int = 0

    def advance(self) -> None:
        """Begin the next epoch."""
        self.epoch = _FIRST if self.epoch == _MAX_EPOCH else self.epoch + 1

    def read_last(self, places: Iterable[Place]) -> None:
        """Read these partitions after the others from now on."""
        for place in places:
            if place in self.partitions:
                self.partitions[place] = self.partitions.pop(place)


class ShareSessions:
    """The share sessions of an org's clients at this gateway."""

    def __init__(self, prefix: bytes, most: int, most_partitions: int) -> None:
        """`prefix`: what the ids begin with; no other gateway, and no earlier run, has it.

        `most`: sessions; `most_partitions`: those in all of them together.
        """
        self._prefix = prefix
        self._begun = 0
        self._most = most
        self._most_partitions = most_partitions
        self.partitions = 0
        """The partitions in all sessions."""
        self._sessions: dict[Key, ShareSession] = {}
        self._of_connection: defaultdict[int, dict[Key, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def missing(self, key: Key, epoch: int, places: Iterable[Place]) -> Iterator[Place]:
        """The places that a ShareFetch with this epoch would add to its session."""
        session = self._sessions.get(key) if epoch != INITIAL else None
        if epoch != FINAL and (session is not None or epoch == INITIAL):
            known = session.partitions if session is not None else ()
            yield from (place for place in places if place not in known)

    def begin(
        self,
        key: Key,
        epoch: int,
        connection: int,
        added: Iterable[Place] = (),
        removed: Iterable[Place] = (),
        new: Collection[Place] = (),
        *,
        fetches: bool,
    ) -> ShareSession | ErrorCode:
        """The session of a request, at its next epoch. A final request ends it.

        `added` and `removed` change its partitions; those of `new` are new to the group.
        `fetches`: whether the request is a ShareFetch.
        """
        if epoch == INITIAL and fetches:
            return self._new(key, connection, {place: place in new for place in added})
        session = self._sessions.get(key)
        if session is None:
            found = epoch != INITIAL or fetches
            return (
                ErrorCode.SHARE_SESSION_NOT_FOUND
                if found
                else ErrorCode.INVALID_SHARE_SESSION_EPOCH
            )
        if epoch == FINAL:
            self._remove(session)
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if not self._change(session, {place: place in new for place in added}, removed):
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session.advance()
        self._connect(session, connection)
        return session

    def _new(
        self, key: Key, connection: int, partitions: dict[Place, bool]
    ) -> ShareSession | ErrorCode:
        before = self._sessions.get(key)
        if before is not None:
            self._remove(before)
        room = self._most_partitions - self.partitions
        if len(self._sessions) >= self._most or len(partitions) > room:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self.partitions += len(partitions)
        self._begun += 1
        its_id = before.id if before is not None else self._prefix + self._begun.to_bytes(8)
        session = ShareSession(key, its_id, connection, partitions=partitions)
        self._sessions[key] = session
        self._of_connection[connection][key] = None
        return session

    def _change(
        self, session: ShareSession, added: Mapping[Place, bool], removed: Iterable[Place]
    ) -> bool:
        its = session.partitions
        new = {place: is_new for place, is_new in added.items() if place not in its}
        if self.partitions + len(new) > self._most_partitions:
            return False
        before = len(its)
        its.update(new)
        for place in removed:
            its.pop(place, None)
        self.partitions += len(its) - before
        return True

    def _connect(self, session: ShareSession, connection: int) -> None:
        if session.connection != connection:
            self._disconnect(session)
            session.connection = connection
            self._of_connection[connection][session.key] = None

    def _disconnect(self, session: ShareSession) -> None:
        its = self._of_connection[session.connection]
        its.pop(session.key, None)
        if not its:
            del self._of_connection[session.connection]

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.key]
        self.partitions -= len(session.partitions)
        self._disconnect(session)

    def connection_lost(self, connection: int) -> list[ShareSession]:
        """End the sessions of a connection, whose records are given back; returns them."""
        ended = [self._sessions[key] for key in self._of_connection.get(connection, ())]
        for session in ended:
            self._remove(session)
        return ended

    def clear(self) -> list[ShareSession]:
        """End all sessions; returns them."""
        ended = list(self._sessions.values())
        self._sessions.clear()
        self._of_connection.clear()
        self.partitions = 0
        return ended
