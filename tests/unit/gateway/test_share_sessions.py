"""Share sessions: epochs, partitions, bounds, and the ends of connections."""

from __future__ import annotations

from quafka_gateway.fetch.share_sessions import FINAL, INITIAL, Place, ShareSession, ShareSessions
from quafka_proto.errors import ErrorCode

KEY = ("group", "member")
A: Place = (bytes(16), 0)
B: Place = (bytes(16), 1)
NOT_FOUND = ErrorCode.SHARE_SESSION_NOT_FOUND
WRONG_EPOCH = ErrorCode.INVALID_SHARE_SESSION_EPOCH
FULL = ErrorCode.SHARE_SESSION_LIMIT_REACHED


def begun(sessions: ShareSessions, *places: Place, connection: int = 1) -> ShareSession:
    found = sessions.begin(KEY, INITIAL, connection, places, fetches=True)
    assert isinstance(found, ShareSession)
    return found


def test_epochs_of_fetches_and_acknowledgements_count_together() -> None:
    sessions = ShareSessions(b"here", 10, 10)
    assert sessions.begin(KEY, 1, 1, fetches=True) is NOT_FOUND
    assert sessions.begin(KEY, FINAL, 1, fetches=False) is NOT_FOUND
    assert sessions.begin(KEY, INITIAL, 1, fetches=False) is WRONG_EPOCH
    session = begun(sessions, A)
    assert sessions.begin(KEY, 1, 1, fetches=False) is session
    assert sessions.begin(KEY, 1, 1, fetches=True) is WRONG_EPOCH
    assert sessions.begin(KEY, 2, 1, fetches=True) is session
    session.epoch = 0x7FFFFFFF
    assert sessions.begin(KEY, 0x7FFFFFFF, 1, fetches=True) is session
    assert session.epoch == 1
    assert sessions.begin(KEY, FINAL, 1, fetches=True) is session
    assert sessions.begin(KEY, 1, 1, fetches=True) is NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_partitions_are_added_and_forgotten() -> None:
    sessions = ShareSessions(b"here", 10, 2)
    session = begun(sessions, A)
    sessions.begin(KEY, 1, 1, [A, B], fetches=True)
    assert list(session.partitions) == [A, B]
    session.read_last([A])
    assert list(session.partitions) == [B, A]
    assert sessions.begin(KEY, 2, 1, [(bytes(16), 2)], fetches=True) is FULL
    assert sessions.begin(KEY, 2, 1, [], [A], fetches=True) is session
    assert (list(session.partitions), sessions.partitions) == ([B], 1)


def test_partitions_that_are_new_to_the_group_stay_so() -> None:
    sessions = ShareSessions(b"here", 10, 10)
    assert list(sessions.missing(KEY, 1, [A])) == [], "there is no session"
    assert list(sessions.missing(KEY, INITIAL, [A, B])) == [A, B]
    session = begun(sessions, A)
    assert list(sessions.missing(KEY, 1, [A, B])) == [B]
    assert list(sessions.missing(KEY, FINAL, [A, B])) == []
    assert list(sessions.missing(KEY, INITIAL, [A, B])) == [A, B]
    sessions.begin(KEY, 1, 1, [A, B], new=[A, B], fetches=True)
    session.read_last([A, B])
    assert session.partitions == {A: False, B: True}


def test_a_session_ends_with_the_connection_of_its_last_request() -> None:
    sessions = ShareSessions(b"here", 1, 10)
    first = begun(sessions, A)
    assert sessions.begin(("group", "other"), INITIAL, 1, fetches=True) is FULL
    sessions.begin(KEY, 1, 2, fetches=True)
    assert sessions.connection_lost(1) == []
    assert sessions.connection_lost(2) == [first]
    assert (len(sessions), sessions.partitions) == (0, 0)
    begun(sessions, A)
    last = begun(sessions, B, connection=3)
    assert (len(sessions), sessions.partitions) == (1, 1)
    assert sessions.connection_lost(1) == []
    assert sessions.clear() == [last]


def test_a_session_has_an_id_of_its_own_until_it_ends() -> None:
    sessions, others = ShareSessions(b"here", 2, 10), ShareSessions(b"there", 2, 10)
    first = begun(sessions, A)
    again = begun(sessions, B, connection=2)
    assert first.id == again.id, "what was acquired before ends with the session that goes on"
    sessions.connection_lost(2)
    later = begun(sessions, A)
    assert len({first.id, later.id, begun(others, A).id}) == 3
