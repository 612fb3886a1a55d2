"""The rules of transactions, connections, and a partition's open and aborted transactions."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.transactions import PartitionTransactions
from quafka_broker.transactions import rules
from quafka_broker.transactions.connections import CONNECTION, Connections
from quafka_broker.transactions.events import (
    Added,
    BranchJoined,
    Ended,
    Event,
    Finished,
    Forgotten,
    GroupDropped,
    Initialized,
    Moved,
    OffsetsStored,
    Spread,
    decode,
    encode,
)
from quafka_broker.transactions.rules import AGAIN, InitPlan, Successor
from quafka_broker.transactions.states import TransactionalIdState
from quafka_broker.transactions.table import TransactionTable
from quafka_broker.transactions.transaction import LAST_EPOCH, Transaction
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import ROW_ABORT, ROW_CONTROL, ROW_TRANSACTIONAL, IndexRow

OK, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
INVALID, UNKNOWN = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING


def known(
    state: TransactionalIdState, epoch: int = 5, last_epoch: int = -1, *, by_client: bool = True
) -> Transaction:
    return Transaction(
        1, "tx", 70, epoch, 1_000, last_epoch, state=state, by_client=by_client,
        start_ms=9 if state is TransactionalIdState.ONGOING else -1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "commit", "bumps", "expected"),
    [
        (TransactionalIdState.ONGOING, True, False, OK),
        (TransactionalIdState.ONGOING, False, False, OK),
        (TransactionalIdState.ONGOING, True, True, OK),
        (TransactionalIdState.ONGOING, False, True, OK),
        (TransactionalIdState.EMPTY, True, False, INVALID),
        (TransactionalIdState.EMPTY, False, False, INVALID),
        (TransactionalIdState.EMPTY, True, True, INVALID),
        (TransactionalIdState.EMPTY, False, True, OK),
        (TransactionalIdState.COMPLETE_COMMIT, True, False, AGAIN),
        (TransactionalIdState.COMPLETE_COMMIT, False, False, INVALID),
        (TransactionalIdState.COMPLETE_COMMIT, True, True, INVALID),
        (TransactionalIdState.COMPLETE_COMMIT, False, True, OK),
        (TransactionalIdState.COMPLETE_ABORT, True, False, INVALID),
        (TransactionalIdState.COMPLETE_ABORT, False, False, AGAIN),
        (TransactionalIdState.COMPLETE_ABORT, True, True, INVALID),
        (TransactionalIdState.COMPLETE_ABORT, False, True, OK),
    ],
)
@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_the_end_by_state_and_epoch_first(
    state: TransactionalIdState, commit: bool, bumps: bool, expected: object, epoch: int
) -> None:
    found = rules.end(known(state), 70, epoch, commit, bumps)
    if epoch != 5:
        assert found is FENCED
    elif expected is OK:
        assert isinstance(found, rules.EndPlan)
        assert not found.again
        assert found.successor == Successor(5 + bumps)
    else:
        assert found == expected


def test_an_end_that_is_repeated_with_the_last_epoch() -> None:
    done = known(TransactionalIdState.COMPLETE_COMMIT, 6, 5)
    assert rules.end(done, 70, 5, True, True) == AGAIN
    assert rules.end(done, 70, 5, False, True) is INVALID
    assert rules.end(done, 70, 5, True, False) is FENCED
    aborted = known(TransactionalIdState.COMPLETE_ABORT, 6, 5, by_client=False)
    assert rules.end(aborted, 70, 5, False, True) == AGAIN
    assert rules.end(aborted, 70, 5, True, True) is FENCED
    assert rules.end(known(TransactionalIdState.ONGOING, 6, 5), 70, 5, True, True) is FENCED
    assert rules.end(None, 70, 5, True, True) is UNKNOWN
    assert rules.end(done, 71, 6, True, True) is UNKNOWN


def test_sessions_begin_recover_and_are_fenced() -> None:
    assert rules.init(None, -1, -1) == InitPlan(Successor(0, new_id=True))
    assert rules.init(None, 70, 5) == InitPlan(Successor(0, new_id=True))
    for state in (
        TransactionalIdState.EMPTY,
        TransactionalIdState.ONGOING,
        TransactionalIdState.COMPLETE_COMMIT,
    ):
        assert rules.init(known(state), -1, -1) == InitPlan(Successor(6))
        assert rules.init(known(state), 70, 5) == InitPlan(Successor(6), 5)
        assert rules.init(known(state), 70, 4) is FENCED
        assert rules.init(known(state), 71, 5) is FENCED
    assert rules.init(known(TransactionalIdState.EMPTY, 6, 5), 70, 5) == InitPlan(None)
    assert rules.init(known(TransactionalIdState.ONGOING, 6, 5), 70, 5) is FENCED


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    last = known(TransactionalIdState.EMPTY, LAST_EPOCH)
    assert rules.init(last, -1, -1) == InitPlan(Successor(0, new_id=True))
    assert rules.init(last, 70, LAST_EPOCH) == InitPlan(Successor(0, new_id=True), LAST_EPOCH, 70)
    replaced = known(TransactionalIdState.EMPTY, 0, LAST_EPOCH)
    replaced.producer_id, replaced.previous_id = 99, 70
    assert rules.init(replaced, 70, LAST_EPOCH) == InitPlan(None)
    assert rules.check_producer(replaced, 70, LAST_EPOCH) is FENCED
    assert rules.abort(known(TransactionalIdState.ONGOING, LAST_EPOCH)).marker_epoch == 0x7FFF


def test_a_producer_never_returns_to_a_connection_it_has_left() -> None:
    def at(gateway: bytes, number: int) -> bytes:
        return CONNECTION.pack(gateway * 8, number)

    seen = Connections()
    for connection, admitted in (
        (at(b"a", 1), True),
        (at(b"a", 1), True),
        (at(b"a", 3), True),
        (at(b"a", 1), False),
        (at(b"a", 2), False),
        (at(b"b", 1), True),
        (at(b"a", 3), False),
        (at(b"a", 4), True),
        (at(b"b", 1), False),
        (b"", True),
        (at(b"a", 4), True),
    ):
        assert seen.admit(connection) is admitted, connection
    assert not seen.is_saved
    loaded = Connections()
    loaded.load(seen.dump())
    assert loaded.is_saved
    for connections in (seen, loaded):
        assert not connections.admit(at(b"b", 1))
        assert connections.admit(at(b"a", 4))
        assert not connections.admit(at(b"a", 3))
        assert connections.admit(at(b"a", 5))
        connections.load(loaded.dump()[:1])  # an event that was on its way
        assert connections.admit(at(b"a", 5))
    for number in range(100):
        assert seen.admit(at(bytes((number,)), 1))


EVENTS: list[Event] = [
    Initialized(1, "tx", 7, 3, 1_000, 2, -1, 99),
    Added(1, "tx", ((b"h" * 16, 0, 1, "topic"),), ("group",), 100),
    OffsetsStored(1, "tx", "group", (("topic", 1, 0, 17, -1, "meta", 5),)),
    Ended(1, "tx", 7, 4, True, 7, 4, 3, -1, ((b"h" * 16, 0, 1, 12),), 2, True, 101),
    Forgotten(1, "tx"),
    GroupDropped(1, "group"),
    Moved(1, "tx", 2, (b"gateway1" + bytes(8), b"gateway2" + bytes(8))),
    Ended(1, "", 7, 4, False, -1, -1, -1, -1, (), 0, False, 101, 99, ("a" * 64, "b" * 64)),
    Spread(1, "tx", 99, "a" * 64, (("topic", 0), ("topic", 1)), 100),
    Finished(1, "tx", 99),
    BranchJoined(1, "tx", "a" * 64, 7, 4, 99, ((b"h" * 16, 0, 1, "topic"),), 100),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_are_read_as_they_were_written(event: Event) -> None:
    assert decode(encode(event)) == event
    assert encode(event)[:1] == b"\x01"


def test_the_end_at_one_broker_has_the_bytes_that_older_brokers_write() -> None:
    ended = EVENTS[3]
    assert isinstance(ended, Ended)
    assert encode(ended) == b"\x01" + msgpack.packb((3, *ended[:13]))


def test_an_unfinished_end_is_restated_with_who_must_end_it() -> None:
    table = TransactionTable()
    made: list[Event] = [
        Initialized(1, "tx", 7, 3, 1_000, 2, -1, 99),
        Spread(1, "tx", 100, "a" * 64, (("far", 0),), 100),
        Ended(1, "tx", 7, 4, True, 7, 4, 3, -1, (), 0, True, 101, 100, ("a" * 64,)),
    ]
    for event in made:
        table.apply(event)
    found = table.entries[1, "tx"]
    assert found.shown_state is TransactionalIdState.PREPARE_COMMIT
    for session in (False, True):
        if session:  # as a restore begins one
            table.apply(Initialized(1, "tx", 7, 5, 1_000, -1, -1, 102))
        again = TransactionTable()
        for event in found.restated():
            again.apply(event)
        same = again.entries[1, "tx"]
        assert (same.state, same.epoch, same.number) == (found.state, found.epoch, 100)
        assert same.unfinished == found.unfinished
        assert list(again.unfinished) == [(1, "tx")]
    table.apply(Finished(1, "tx", 99))  # of an earlier transaction
    assert table.unfinished
    table.apply(Finished(1, "tx", 100))
    assert not table.unfinished


def test_later_versions_of_events_are_refused() -> None:
    with pytest.raises(ValueError, match="version 02"):
        decode(b"\x02" + encode(EVENTS[0])[1:])


def row(producer: int, offset: int, count: int, flags: int) -> IndexRow:
    return IndexRow(
        0, offset, 0, bytes(16), 0, producer, 0, 1, 0, 0, count, 100, 0, ROW_TRANSACTIONAL | flags
    )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("wca"), st.integers(1, 3)), max_size=60)
)
def test_the_index_of_aborted_transactions_equals_a_scan(
    steps: list[tuple[int, str, int]],
) -> None:
    known_, offset = PartitionTransactions(), 0
    open_: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for producer, what, count in steps:
        if what == "w":
            known_.add(row(producer, offset, count, 0))
            open_.setdefault(producer, offset)
            offset += count
        else:
            known_.add(row(producer, offset, 1, ROW_CONTROL | (ROW_ABORT if what == "a" else 0)))
            first = open_.pop(producer, None)
            if first is not None and what == "a":
                aborted.append((producer, first, offset))
            offset += 1
        assert known_.first_open == min(open_.values(), default=None)
    stable = min(open_.values(), default=offset)
    for start in range(0, offset, 3):
        for end in range(start, stable + 1, 2):
            found = {each[:3] for each in known_.aborted(start, end)}
            assert found == {a for a in aborted if a[2] >= start and a[1] < end}
    assert PartitionTransactions.load(known_.dump()).dump() == known_.dump()
    known_.drop_below(offset // 2)
    assert known_.aborted_count == len([a for a in aborted if a[2] >= offset // 2])


def test_an_end_that_is_learnt_late_hides_no_other_aborted_transaction() -> None:
    known_ = PartitionTransactions()
    known_.add(row(1, 0, 1, 0))
    known_.add(row(2, 1, 1, 0))
    known_.add(row(3, 2, 1, 0))  # its marker, at offset 3, is damaged
    known_.add(row(1, 4, 1, ROW_CONTROL | ROW_ABORT))
    known_.add(row(2, 5, 1, ROW_CONTROL | ROW_ABORT))
    known_.end(3, 3, aborted=True)
    assert [each.producer_id for each in known_.aborted(0, 3)] == [3, 1, 2]
    assert known_.first_open is None
