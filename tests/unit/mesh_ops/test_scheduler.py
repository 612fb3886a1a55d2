"""Which op a gateway sends next: orgs share memory and turns, and none waits for another."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from quafka_loop import clock
from quafka_mesh_ops import gateway_session
from quafka_mesh_ops.errors import OpTooLargeError
from quafka_mesh_ops.ops.base import AnyOp, OpKind
from quafka_mesh_ops.ops.leases import HoldLease
from quafka_mesh_ops.ops.probe import Probe
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps
from quafka_mesh_ops.scheduler import BOUNDS, LARGE, Bounds, Scheduler, work_of
from quafka_proto.compression import Codec
from quafka_proto.record_codec import Record, build_batch

PLENTY = Bounds(1_000, 1 << 30, 1 << 29, share=96, shares=320, cost=5)


@dataclass
class Waiting:
    """As much of a call as a scheduler looks at."""

    request_id: int
    org_id: int
    size: int
    op: AnyOp
    turn: int = 0


def call(number: int, org: int, size: int = 1, partitions: int = 1) -> Waiting:
    op = ProduceOps([ProduceOp("t", each, b"") for each in range(partitions)])
    return Waiting(number, org, size, op)


def send(scheduler: Scheduler[Waiting], *calls: Waiting) -> list[Waiting]:
    """Offer calls; returns those that are sent at once. The others wait."""
    sent: list[Waiting] = []
    for each in calls:
        if scheduler.admits(each):
            scheduler.reserve(each)
            sent.append(each)
        else:
            scheduler.wait(each)
    return sent


def send_waiting(scheduler: Scheduler[Waiting]) -> list[Waiting]:
    sent: list[Waiting] = []
    while (found := scheduler.pop_next()) is not None:
        scheduler.reserve(found)
        sent.append(found)
    return sent


def several(bounds: Bounds = PLENTY) -> Scheduler[Waiting]:
    """A scheduler that two orgs have just used."""
    scheduler = Scheduler[Waiting](bounds)
    for org in (1, 2):
        for each in send(scheduler, call(0, org)):
            scheduler.release(each)
    return scheduler


# --- memory ---------------------------------------------------------------------------------------


PARKING = Bounds(100, 100, 100)


def test_an_op_that_does_not_fit_holds_nothing_that_fits() -> None:
    scheduler = Scheduler[Waiting](PARKING)
    assert send(scheduler, call(0, 1, 70))
    assert not send(scheduler, call(1, 2, 40))
    other = call(2, 3, 20)
    assert send(scheduler, other) == [other]


@pytest.mark.parametrize("kind", [OpKind.SMALL_OPS, OpKind.RECORDS])
def test_large_ops_leave_room_and_keep_their_turn(kind: OpKind) -> None:
    half = BOUNDS[kind].largest // 2
    scheduler = Scheduler[Waiting](BOUNDS[kind])
    first, second, third = call(0, 1, half), call(1, 2, half + 1), call(2, 3, half // 2)
    small = [call(10 + org, org, LARGE) for org in range(10, 16)]
    assert send(scheduler, first, second, third, *small) == [first, *small]
    assert scheduler.pop_next() is None, "the one that waits for more room comes first"
    for each in (first, *small):
        scheduler.release(each)
    assert send_waiting(scheduler) == [second, third]


def test_an_org_within_its_share_displaces_the_latest_of_the_largest() -> None:
    scheduler = Scheduler[Waiting](PARKING)
    mine, small = [call(number, 1, 6) for number in range(15)], call(20, 2, 10)
    assert send(scheduler, *mine, small) == [*mine, small]
    more = call(21, 2, 20)
    assert not scheduler.admits(more)
    assert scheduler.displaced_by(more) == mine[:-5:-1]
    assert scheduler.displaced_by(call(22, 2, 41)) == [], "that is more than its share"
    assert scheduler.displaced_by(call(22, 1, 6)) == []
    scheduler.wait(more)
    assert scheduler.displaced_by(call(22, 2, 1)) == [], "it waits for the earlier one"


def test_ops_are_displaced_by_number_as_by_bytes() -> None:
    scheduler = Scheduler[Waiting](PARKING)
    many = [call(number, 1, 1) for number in range(100)]
    send(scheduler, *many)
    for org in (2, 3, 4):
        newcomer = call(200 + org, org, 1)
        displaced = scheduler.displaced_by(newcomer)
        assert displaced == [many.pop()]
        scheduler.release(displaced[0])
        assert send(scheduler, newcomer)


def test_what_can_never_be_sent_is_refused_and_the_largest_is_sent() -> None:
    for bounds in BOUNDS.values():
        scheduler = Scheduler[Waiting](bounds)
        largest = call(0, 1, bounds.largest)
        scheduler.check(largest)
        assert send(scheduler, largest)
        with pytest.raises(OpTooLargeError, match=str(bounds.largest)):
            scheduler.check(call(1, 1, bounds.largest + 1))


def test_all_kinds_together_stay_below_the_limits_of_a_broker() -> None:
    assert sum(each.size for each in BOUNDS.values()) <= gateway_session.MAX_REQUEST_BYTES
    assert all(each.largest <= each.size for each in BOUNDS.values())
    assert sum(each.ops for each in BOUNDS.values()) <= gateway_session.MAX_IN_FLIGHT


def test_ops_of_an_org_keep_their_order() -> None:
    scheduler = Scheduler[Waiting](PARKING)
    first, second, third = call(0, 1, 70), call(1, 1, 60), call(2, 1, 1)
    assert send(scheduler, first, second, third) == [first]
    scheduler.release(first)
    assert send_waiting(scheduler) == [second, third]


def test_a_call_that_ends_waits_no_longer() -> None:
    scheduler = Scheduler[Waiting](PARKING)
    running, *waiting = (call(number, 1, 80) for number in range(3))
    send(scheduler, running, *waiting)
    scheduler.remove(waiting[0])
    scheduler.remove(waiting[0])
    assert scheduler.waiting == 1
    assert scheduler.remove_all() == waiting[1:]
    assert (scheduler.waiting, scheduler.pop_next()) == (0, None)
    scheduler.release(running)
    assert (scheduler.used, scheduler.unanswered) == (0, 0)
    assert not vars(scheduler)["_orgs"], "nothing is kept of an org that has nothing here"


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "partitions"), [(100, 1), (10_000, 32), (1 << 20, 1)])
def test_beside_others_an_org_has_a_share_of_the_work_under_way(size: int, partitions: int) -> None:
    scheduler = several()
    calls = [call(number, 1, size, partitions) for number in range(100)]
    sent = send(scheduler, *calls)
    assert 1 <= len(sent) < 100
    cost = PLENTY.cost + work_of(calls[0])
    assert len(sent) == max(1, PLENTY.share // cost)
    other = call(200, 2, size, partitions)
    assert send(scheduler, other) == [other], "it does not wait for the first org's turn"
    scheduler.release(sent[0])
    assert send_waiting(scheduler) == calls[len(sent) : len(sent) + 1]


def test_the_more_orgs_are_at_work_the_less_each_has_under_way() -> None:
    scheduler = several()
    for org in range(1, 10):
        send(scheduler, *(call(number, org) for number in range(100)))
    under_way = scheduler.unanswered * (PLENTY.cost + 1)
    assert under_way <= PLENTY.shares + 9 * PLENTY.cost + PLENTY.share * 3


def test_a_long_path_holds_more_work() -> None:
    scheduler = several()
    scheduler.round_trip = 0.1
    assert len(send(scheduler, *(call(number, 1) for number in range(900)))) > 600


async def test_where_commits_take_long_more_is_under_way() -> None:
    """The log in an object store: the work of a produce is done long before its answer."""
    scheduler = several()
    calls = [call(number, 1) for number in range(2_000)]
    few = len(send(scheduler, *calls))
    for seconds in (0.3, 0.1, 0.4):
        scheduler.committed(seconds)
    more = few + len(send_waiting(scheduler))
    assert few < 50
    assert 600 < more < 1_000
    scheduler.committed(0.0)
    assert not send_waiting(scheduler)
    await asyncio.sleep(10)
    scheduler.committed(0.001)
    for each in calls[:more]:
        scheduler.release(each)
    (other,) = send(scheduler, call(0, 2))
    scheduler.release(other)
    assert len(send_waiting(scheduler)) < 3 * few, "they do not take long any more"


def test_an_op_with_more_work_than_a_share_is_sent_alone_and_paid_for() -> None:
    scheduler = several()
    long = call(1, 1, 100 * 12_500 * 10)
    after = call(2, 1)
    assert send(scheduler, long, after) == [long]
    mine = [call(10 + number, 2) for number in range(400)]
    sent = send(scheduler, *mine)
    scheduler.release(long)
    assert after not in send_waiting(scheduler), "the other org has not had as much"
    served = 0
    while after not in sent:
        scheduler.release(sent.pop(0))
        served += 1
        sent += send_waiting(scheduler)
    assert served * 6 >= 1_000 - 3 * PLENTY.share
    for each in sent:
        scheduler.release(each)


def test_an_org_that_is_ahead_goes_on_while_no_other_has_work() -> None:
    scheduler = several()
    for number in range(5):
        long = call(number, 1, 100 * 12_500)
        assert send(scheduler, long) == [long]
        scheduler.release(long)


def test_an_org_that_is_alone_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.monotonic()
    scheduler = several()
    for each in send(scheduler, call(0, 1)):
        scheduler.release(each)
    monkeypatch.setattr(clock, "monotonic", lambda: now + 3)
    calls = [call(number, 1) for number in range(100)]
    assert send(scheduler, *calls) == calls


def test_what_the_broker_parks_takes_no_turn() -> None:
    scheduler = several()
    parked: Any = [Waiting(number, 1, 1, HoldLease(b"h")) for number in range(100)]
    assert send(scheduler, *parked) == parked
    assert send(scheduler, call(200, 1))


def test_packed_records_count_as_work() -> None:
    batch = build_batch([Record(0, 0, None, b"", [])] * 5_000, codec=Codec.ZSTD)
    op = ProduceOps([ProduceOp("t", 0, batch), ProduceOp("t", 1, b"")])
    assert work_of(Waiting(0, 1, len(batch), op)) >= 20
    assert work_of(Waiting(0, 1, 100, Probe())) == 1


def test_what_the_broker_says_corrects_the_next_ops() -> None:
    scheduler = several()
    first = call(1, 1)
    assert send(scheduler, first)
    scheduler.release(first, seconds=0.1)
    other = call(2, 2)
    calls = [call(10 + number, 1) for number in range(16)]
    assert send(scheduler, other, *calls) == [other], "it has had 100 ms"
    scheduler.release(other)
    assert send_waiting(scheduler) == calls[:1], "and one op is as much as it may have under way"


def test_each_kind_has_bounds() -> None:
    assert BOUNDS.keys() == set(OpKind)
