"""KIP-227: every row of the request-metadata table, and the state of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import pytest

from quafka_gateway.fetch.session import Answered, Fetch, FetchSessions
from quafka_gateway.fetch.session_table import EVICTION_SECONDS
from quafka_mesh_ops.ops.offsets import EpochEndResp
from quafka_mesh_ops.ops.records import FetchOpResp
from quafka_proto.errors import ErrorCode
from quafka_proto.schema.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

FINAL, INITIAL = -1, 0
MAX_INT = 0x7FFFFFFF
NAMES, IDS = 12, 13  # the last version that names topics by name, the first by id
STALE = EVICTION_SECONDS + 1

Place = tuple[str, int]
NOTHING_NEW = FetchOpResp([], high_watermark=0, log_start_offset=0, last_stable_offset=0)


def fixed_ids() -> Iterator[int]:
    return count(100)


class Client:
    """The client of one session; `log` has the answers of the broker."""

    def __init__(self, sessions: FetchSessions, version: int = NAMES, replica: int = -1) -> None:
        self.sessions = sessions
        self.version = version
        self.replica = replica
        self.id = self.epoch = 0
        self.log: dict[Place, FetchOpResp] = {}
        self.read: list[Place] = []

    def fetch(self, *wanted: str, forget: Iterable[str] = (), now: float = 0) -> Answered:
        """Fetch in the session's next epoch; partitions are written "a0"."""
        answer = self.finish(self.begin(*wanted, forget=forget, now=now), now)
        if answer.error:
            self.id = self.epoch = 0
        elif answer.session_id:
            self.id = answer.session_id
            self.epoch = 1 if self.epoch == MAX_INT else self.epoch + 1
        return answer

    def begin(
        self, *wanted: str, forget: Iterable[str] = (), now: float = 0, max_bytes: int = 9
    ) -> Fetch:
        request = FetchRequest(
            session_id=self.id,
            session_epoch=self.epoch,
            replica_state=ReplicaState(replica_id=self.replica),
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=uuid(name),
                    partitions=[
                        FetchPartition(
                            partition=int(number), fetch_offset=7, partition_max_bytes=max_bytes
                        )
                    ],
                )
                for name, number in map(split, wanted)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=uuid(name), partitions=[int(number)])
                for name, number in map(split, forget)
            ],
        )
        return self.sessions.begin(request, self.version, now)

    def finish(self, fetch: Fetch, now: float = 0) -> Answered:
        self.read = [place(op) for op in fetch.ops]
        return fetch.finish([self.log.get(at, NOTHING_NEW) for at in self.read], now)


def split(partition: str) -> tuple[str, str]:
    return partition[0], partition[1]


def uuid(name: str) -> bytes:
    return name.encode() * 16


def place(op: object) -> Place:
    topic: str = getattr(op, "topic") or getattr(op, "topic_id").decode()[0]  # noqa: B009
    return topic, getattr(op, "partition")  # noqa: B009


def told(answer: Answered) -> list[str]:
    """The partitions in an answer."""
    assert answer.error == ErrorCode.NONE
    return [f"{topic}{number}" for topic, number in (place(op) for op, _ in answer.partitions)]


def data(*batches: bytes, end: int = 0) -> FetchOpResp:
    return FetchOpResp(list(batches), end, log_start_offset=0, last_stable_offset=end)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(slots=3, max_partitions=100, session_partitions=50)


@pytest.fixture
def client(sessions: FetchSessions) -> Client:
    """In a session of a0, a1 and b0, at its second request."""
    begun = Client(sessions)
    assert told(begun.fetch("a0", "a1", "b0")) == ["a0", "a1", "b0"]
    assert begun.id > 0
    return begun


# --- the request-metadata table -------------------------------------------------------------

OURS, OTHER, NONE = "ours", "another", "none"
NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
WRONG_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(
    ("session", "epoch", "error", "begins", "goes_on"),
    [
        (NONE, FINAL, 0, False, True),
        (NONE, INITIAL, 0, True, True),
        (NONE, 1, NOT_FOUND, False, True),
        (NONE, MAX_INT, NOT_FOUND, False, True),
        (NONE, -2, NOT_FOUND, False, True),
        (OTHER, FINAL, 0, False, True),
        (OTHER, INITIAL, 0, True, True),
        (OTHER, 1, NOT_FOUND, False, True),
        (OURS, FINAL, 0, False, False),
        (OURS, INITIAL, 0, True, False),
        (OURS, 1, 0, False, True),
        (OURS, 2, WRONG_EPOCH, False, True),
        (OURS, MAX_INT, WRONG_EPOCH, False, True),
        (OURS, -2, WRONG_EPOCH, False, True),
    ],
)
def test_every_row_of_the_request_metadata_table(
    sessions: FetchSessions, client: Client, session: str, epoch: int, error: int, begins: bool,
    goes_on: bool,
) -> None:  # fmt: skip
    asking = Client(sessions)
    asking.id = {OURS: client.id, OTHER: client.id % MAX_INT + 1, NONE: 0}[session]
    asking.epoch = epoch
    fetch = asking.begin("c0")
    assert fetch.error == error
    if error:
        assert fetch.ops == []
    elif (session, epoch) == (OURS, 1):
        assert told(asking.finish(fetch)) == ["c0"]
        assert asking.read == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    else:
        answer = asking.finish(fetch)
        assert told(answer) == ["c0"], "a full answer to a full request"
        assert (answer.session_id != 0) == begins
        assert answer.session_id != client.id
    assert len(sessions) == goes_on + begins
    if goes_on and (session, epoch) != (OURS, 1):
        assert told(client.fetch()) == [], "its session is as it was"


def test_epochs_go_up_by_one_and_wrap_to_1(sessions: FetchSessions, client: Client) -> None:
    for epoch in range(1, 5):
        assert client.epoch == epoch
        assert told(client.fetch()) == []
    sessions.table._sessions[client.id].epoch = client.epoch = MAX_INT
    assert told(client.fetch()) == []
    assert client.epoch == 1
    assert told(client.fetch()) == []
    assert client.epoch == 2


def test_a_repeated_request_is_noticed(client: Client) -> None:
    client.fetch()
    client.epoch -= 1
    assert client.begin().error == WRONG_EPOCH
    client.epoch += 1
    assert told(client.fetch()) == []


def test_ids_are_random_positive_and_of_no_other_session() -> None:
    draws = iter([4, 4, 4, MAX_INT - 1])
    sessions = FetchSessions(9, 9, 9, random_below=lambda limit: min(next(draws), limit - 1))
    first, second = Client(sessions), Client(sessions)
    assert first.fetch("a0").session_id == 5
    assert second.fetch("a0").session_id == MAX_INT
    drawn = Client(FetchSessions(9, 9, 9)).fetch("a0").session_id
    assert 0 < drawn <= MAX_INT


def test_sessions_belong_to_no_connection(sessions: FetchSessions, client: Client) -> None:
    elsewhere = Client(sessions)
    elsewhere.id, elsewhere.epoch = client.id, client.epoch
    elsewhere.log["a", 0] = data(b"batch", end=1)
    assert told(elsewhere.fetch()) == ["a0"]


# --- what a session keeps of its requests ---------------------------------------------------


def test_partitions_that_a_request_does_not_name_are_read_as_before(client: Client) -> None:
    changed = client.begin("a1", max_bytes=5)
    assert [(op.topic, op.partition, op.max_bytes) for op in changed.ops] == [
        ("a", 0, 9), ("a", 1, 5), ("b", 0, 9),
    ]  # fmt: skip
    client.finish(changed)
    client.epoch += 1
    assert [op.max_bytes for op in client.begin().ops] == [9, 5, 9]


def test_new_partitions_are_added_and_answered_once(client: Client) -> None:
    assert told(client.fetch("c0", "a2")) == ["c0", "a2"]
    assert client.read == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("a", 2)]
    assert told(client.fetch()) == []


def test_forgotten_partitions_are_not_read_any_more(
    sessions: FetchSessions, client: Client
) -> None:
    assert told(client.fetch(forget=["a0", "x9"])) == []
    assert client.read == [("a", 1), ("b", 0)]
    assert sessions.partitions == 2
    assert told(client.fetch("a0")) == ["a0"], "added again, it is told again"
    assert client.read == [("a", 1), ("b", 0), ("a", 0)]


def test_forgetting_counts_more_than_naming(client: Client) -> None:
    assert told(client.fetch("c0", forget=["c0"])) == []
    assert ("c", 0) not in client.read


def test_a_session_without_partitions_ends(sessions: FetchSessions, client: Client) -> None:
    answer = client.fetch(forget=["a0", "a1", "b0"])
    assert (answer.error, answer.session_id, answer.partitions) == (0, 0, [])
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_full_fetch_of_nothing_begins_no_session(sessions: FetchSessions) -> None:
    assert Client(sessions).fetch().session_id == 0
    assert len(sessions) == 0


def test_of_two_mentions_of_a_partition_the_later_counts(sessions: FetchSessions) -> None:
    request = FetchRequest(
        session_epoch=FINAL,
        topics=[
            FetchTopic(topic="a", partitions=[FetchPartition(partition=0, fetch_offset=offset)])
            for offset in (3, 4)
        ],
    )
    (op,) = sessions.begin(request, NAMES, 0).ops
    assert op.fetch_offset == 4


def test_every_field_of_a_partition_reaches_the_op(sessions: FetchSessions) -> None:
    partition = FetchPartition(
        partition=3, fetch_offset=4, partition_max_bytes=5, current_leader_epoch=6,
        last_fetched_epoch=7,
    )  # fmt: skip
    topic = FetchTopic(topic="a", topic_id=uuid("a"), partitions=[partition])
    request = FetchRequest(session_epoch=FINAL, topics=[topic])
    for version, name, topic_id in ((NAMES, "a", b""), (IDS, "", uuid("a"))):
        (op,) = sessions.begin(request, version, 0).ops
        assert (op.topic, op.topic_id, op.partition) == (name, topic_id, 3)
        assert (op.fetch_offset, op.max_bytes) == (4, 5)
        assert (op.current_leader_epoch, op.last_fetched_epoch) == (6, 7)


# --- topic ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [(NAMES, IDS), (IDS, NAMES)])
def test_names_and_ids_do_not_mix_in_a_session(
    sessions: FetchSessions, first: int, then: int
) -> None:
    client = Client(sessions, first)
    client.fetch("a0")
    client.version = then
    assert client.begin().error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    client.version = first
    assert told(client.fetch()) == []


def test_a_session_by_topic_ids(sessions: FetchSessions) -> None:
    client = Client(sessions, IDS)
    assert told(client.fetch("a0", "b0")) == ["a0", "b0"]
    client.log["b", 0] = data(b"batch", end=1)
    assert told(client.fetch("c0", forget=["a0"])) == ["b0", "c0"]


def test_a_topic_that_is_there_again_under_another_id_replaces_its_former_self(
    sessions: FetchSessions,
) -> None:
    client = Client(sessions, IDS)
    client.fetch("a0")
    assert told(client.fetch("A0", forget=["a0"])) == ["A0"]
    assert client.read == [("A", 0)]


# --- what a session keeps of its answers ----------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        FetchOpResp([], high_watermark=1, log_start_offset=0, last_stable_offset=0),
        FetchOpResp([], high_watermark=0, log_start_offset=1, last_stable_offset=0),
        FetchOpResp([], high_watermark=0, log_start_offset=0, last_stable_offset=1),
    ],
    ids=["high watermark", "log start", "last stable offset"],
)
def test_a_moved_offset_is_answered_once(client: Client, change: FetchOpResp) -> None:
    client.log["a", 1] = change
    answer = client.fetch()
    assert [pair[1] for pair in answer.partitions] == [change]
    assert told(answer) == ["a1"]
    assert told(client.fetch()) == []


def test_records_are_always_answered(client: Client) -> None:
    client.log["a", 1] = data(b"batch")
    for _ in range(3):
        assert told(client.fetch()) == ["a1"]


def test_divergence_is_always_answered(client: Client) -> None:
    client.log["b", 0] = FetchOpResp(
        [], 0, log_start_offset=0, last_stable_offset=0, diverging_epoch=EpochEndResp(0, 0)
    )
    for _ in range(3):
        assert told(client.fetch()) == ["b0"]


def test_an_error_is_always_answered_and_so_is_its_end(client: Client) -> None:
    client.log["a", 0] = FetchOpResp([], 0, 1, log_start_offset=0, last_stable_offset=0)
    for _ in range(3):
        assert told(client.fetch()) == ["a0"]
    del client.log["a", 0]
    assert told(client.fetch()) == ["a0"]
    assert told(client.fetch()) == []


def test_the_end_of_an_error_in_the_first_answer_is_answered(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.log["a", 0] = FetchOpResp([], 0, 1, log_start_offset=0, last_stable_offset=0)
    client.fetch("a0", "a1")
    del client.log["a", 0]
    assert told(client.fetch()) == ["a0"]
    assert told(client.fetch()) == []


# --- turns ----------------------------------------------------------------------------------


def test_a_partition_with_data_moves_to_the_end(client: Client) -> None:
    """A small max_bytes starves no partition: each has its turn to be first."""
    for turn in ("a0", "a1", "b0", "a0", "a1"):
        first = turn[0], int(turn[1])
        client.log = {first: data(b"batch")}
        assert told(client.fetch()) == [turn]
        assert client.read[0] == first
    client.log = {}
    client.fetch("a1", now=1)
    assert client.read == [("b", 0), ("a", 0), ("a", 1)]
    client.fetch()
    assert client.read == [("b", 0), ("a", 0), ("a", 1)], "nothing new, nothing moves"


def test_a_sessionless_fetch_is_read_in_the_order_of_the_request(sessions: FetchSessions) -> None:
    client = Client(sessions)
    client.epoch = FINAL
    client.log["b", 0] = data(b"batch")
    for _ in range(2):
        assert told(client.finish(client.begin("b0", "a1", "a0"))) == ["b0", "a1", "a0"]


# --- requests that cross --------------------------------------------------------------------


def test_an_answer_that_a_later_request_has_overtaken_is_an_error(client: Client) -> None:
    slow = client.begin()
    client.epoch += 1
    fast = client.begin(forget=["a0"])
    answer = client.finish(slow)
    assert (answer.error, answer.partitions) == (WRONG_EPOCH, [])
    assert told(client.finish(fast)) == []


def test_a_session_evicted_while_a_fetch_is_in_flight_is_answered_and_then_not_found(
    sessions: FetchSessions, client: Client
) -> None:
    in_flight = client.begin()
    for _ in range(3):
        Client(sessions).fetch("x0", "x1", "x2", "x3", now=STALE)
    assert client.id not in sessions.table._sessions
    client.log["a", 1] = data(b"batch", end=1)
    answer = client.finish(in_flight, STALE)
    assert told(answer) == ["a1"]
    assert answer.session_id == client.id
    client.epoch += 1
    assert client.begin().error == NOT_FOUND
    assert sessions.partitions == 12


def test_a_session_closed_while_a_fetch_is_in_flight(
    sessions: FetchSessions, client: Client
) -> None:
    in_flight = client.begin()
    other = Client(sessions)
    other.id, other.epoch = client.id, FINAL
    other.fetch()
    client.log["a", 0] = data(b"batch", end=1)
    assert told(client.finish(in_flight)) == ["a0"]
    assert (len(sessions), sessions.partitions) == (0, 0)


# --- places ---------------------------------------------------------------------------------

CONSUMER, REPLICA = -1, 1


@pytest.mark.parametrize(
    ("owner", "size", "age", "idle", "comes", "of_size", "gets_a_place"),
    [
        (CONSUMER, 2, 0, 0, CONSUMER, 9, False),  # no session is two minutes old
        (CONSUMER, 2, STALE, STALE, CONSUMER, 1, True),  # unused for two minutes
        (REPLICA, 2, STALE, STALE, CONSUMER, 1, True),
        (CONSUMER, 2, STALE, 0, CONSUMER, 3, True),  # bigger than one that had its two minutes
        (CONSUMER, 2, STALE, 0, CONSUMER, 2, False),
        (CONSUMER, 2, STALE, 0, CONSUMER, 1, False),
        (REPLICA, 2, STALE, 0, CONSUMER, 9, False),  # a replica is worth more
        (CONSUMER, 2, 0, 0, REPLICA, 1, True),  # also at once
        (REPLICA, 2, 0, 0, REPLICA, 9, False),
        (REPLICA, 2, STALE, 0, REPLICA, 3, True),
        (REPLICA, 2, STALE, 0, REPLICA, 2, False),
        (CONSUMER, 2, EVICTION_SECONDS, EVICTION_SECONDS, CONSUMER, 9, False),
    ],
)
def test_eviction(
    owner: int, size: int, age: float, idle: float, comes: int, of_size: int, gets_a_place: bool
) -> None:
    sessions = FetchSessions(slots=2, max_partitions=100, session_partitions=50)
    there = [Client(sessions, replica=owner) for _ in range(2)]
    for client in there:
        client.fetch(*(f"a{n}" for n in range(size)))
    now = age
    for client in there:
        client.fetch(now=now - idle)
    new = Client(sessions, replica=comes)
    answer = new.fetch(*(f"b{n}" for n in range(of_size)), now=now)
    assert len(told(answer)) == of_size, "with a session or without"
    assert (answer.session_id != 0) == gets_a_place
    assert len(sessions) == 2
    assert sum(client.begin(now=now).error == 0 for client in there) == 2 - gets_a_place


def test_the_smallest_of_those_that_may_go_goes() -> None:
    sessions = FetchSessions(slots=3, max_partitions=100, session_partitions=50)
    there = [Client(sessions) for _ in range(3)]
    for client, size in zip(there, (3, 1, 2), strict=True):
        client.fetch(*(f"a{n}" for n in range(size)))
    for client in there:
        client.fetch(now=STALE)
    assert Client(sessions).fetch("b0", "b1", "b2", "b3", now=STALE).session_id
    assert [client.begin(now=STALE).error for client in there] == [0, NOT_FOUND, 0]


def test_the_least_recently_used_goes_first() -> None:
    sessions = FetchSessions(slots=2, max_partitions=100, session_partitions=50)
    there = [Client(sessions) for _ in range(2)]
    for client in there:
        client.fetch("a0")
    there[0].fetch(now=1)
    assert Client(sessions).fetch("b0", now=STALE).session_id
    assert [client.begin(now=STALE).error for client in there] == [0, NOT_FOUND]


def test_without_slots_there_are_no_sessions() -> None:
    sessions = FetchSessions(slots=0, max_partitions=100, session_partitions=50)
    assert told(answer := Client(sessions).fetch("a0")) == ["a0"]
    assert answer.session_id == 0


def test_a_session_has_a_greatest_size(sessions: FetchSessions) -> None:
    assert Client(sessions).fetch(*(f"{topic}{n}" for topic in "abcdef" for n in range(9)))[1] == 0
    client = Client(sessions)
    client.fetch(*(f"{topic}{n}" for topic in "abcde" for n in range(9)))
    assert told(client.fetch("f0", "f1", "f2", "f3", "f4", "a0")) == ["f0", "f1", "f2", "f3", "f4"]
    assert client.fetch("f5").error == NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_all_sessions_together_have_a_greatest_size() -> None:
    sessions = FetchSessions(slots=9, max_partitions=10, session_partitions=10)
    first, second = Client(sessions), Client(sessions)
    assert first.fetch("a0", "a1", "a2", "a3").session_id
    assert second.fetch("a0", "a1", "a2", "a3").session_id
    assert sessions.partitions == 8
    assert Client(sessions).fetch("b0", "b1", "b2").session_id == 0
    assert told(first.fetch("b0", "b1")) == ["b0", "b1"]
    assert second.fetch("b0").error == NOT_FOUND
    assert (len(sessions), sessions.partitions) == (1, 6)
    assert Client(sessions).fetch(*(f"b{n}" for n in range(9)), now=STALE).session_id
    assert (len(sessions), sessions.partitions) == (1, 9)


def test_where_one_address_holds_more_than_half_its_own_sessions_make_room() -> None:
    sessions = FetchSessions(slots=4, max_partitions=100, session_partitions=50)

    def begin(owner: str, replica: int = -1) -> int:
        partition = FetchPartition(partition=0, partition_max_bytes=1)
        request = FetchRequest(
            replica_id=replica,
            session_epoch=0,
            topics=[FetchTopic(topic="t", partitions=[partition])],
        )
        fetch = sessions.begin(request, 12, 0.0, owner)
        return fetch.finish([FetchOpResp([], high_watermark=0)] * len(fetch.ops), 0.0).session_id

    honest = begin("192.0.2.1")
    greedy = [begin("198.51.100.7") for _ in range(3)]
    assert all(begin("198.51.100.7", replica=1) for _ in range(20))  # replicas' are worth more
    assert {one.owner for one in sessions.table._sessions.values()} == {"192.0.2.1", "198.51.100.7"}
    assert honest in sessions.table._sessions
    assert not sessions.table._sessions.keys() & set(greedy)
    newcomers = [begin("192.0.2.2"), begin("192.0.2.3")]
    assert {honest, newcomers[0]} <= sessions.table._sessions.keys()
    assert newcomers[1] == 0  # no address has more than half any more
