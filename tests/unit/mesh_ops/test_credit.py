"""Ops that wait for credit: in the order of the calls within an org, and orgs in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from quafka_loop import clock
from quafka_mesh_ops.broker_session import Call
from quafka_mesh_ops.credit import SHARE, Credit, work_of
from quafka_mesh_ops.ops.base import AnyOp
from quafka_mesh_ops.ops.records import ProduceOp, ProduceOps


@dataclass
class Waiting:
    """As much of a call as credit looks at."""

    request_id: int
    org_id: int
    size: int
    op: AnyOp


def _call(number: int, org: int, size: int = 1, partitions: int = 1) -> Call:
    op = ProduceOps([ProduceOp("t", each, b"") for each in range(partitions)])
    return cast(Call, Waiting(number, org, size, op))


def test_an_org_with_many_ops_delays_another_orgs_first_by_one() -> None:
    credit = Credit(most=1, budget=100, largest=100)
    running = _call(0, 1)
    credit.reserve(running)
    for number in range(1, 100):
        credit.waiting.add(_call(number, 1))
    credit.waiting.add(_call(100, 2))
    credit.waiting.add(_call(101, 2))
    sent: list[int] = []
    while credit.waiting:
        assert credit.pop_next() is None
        credit.release(running)
        taken = credit.pop_next()
        assert taken is not None
        credit.reserve(taken)
        running = taken
        sent.append(running.request_id)
    assert sent[:5] == [1, 100, 2, 101, 3]
    assert sorted(sent) == list(range(1, 102))
    assert [number for number in sent if number < 100] == list(range(1, 100))


def test_a_large_op_keeps_its_turn() -> None:
    credit = Credit(most=10, budget=100, largest=100)
    running = _call(0, 1, 60)
    credit.reserve(running)
    credit.waiting.add(_call(1, 1, 80))
    credit.waiting.add(_call(2, 2, 1))
    assert credit.pop_next() is None
    credit.release(running)
    for expected in (1, 2):
        taken = credit.pop_next()
        assert taken is not None
        assert taken.request_id == expected
        credit.reserve(taken)


def test_a_call_that_ends_waits_no_longer() -> None:
    credit = Credit(most=10, budget=100, largest=100)
    calls = [_call(0, 1), _call(1, 2)]
    for call in calls:
        credit.waiting.add(call)
    credit.waiting.remove(calls[0])
    credit.waiting.remove(calls[0])
    assert len(credit.waiting) == 1
    assert not credit.admits(_call(2, 3))
    assert credit.waiting.remove_all() == [calls[1]]
    assert credit.admits(_call(2, 3))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Credit:
    """Credit of two orgs: the second has just had an op."""
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    credit = Credit(most=1_000, budget=1 << 30, largest=1 << 30, shared=True)
    for org in (1, 2):
        call = _call(0, org)
        credit.reserve(call)
        credit.release(call)
    return credit


def _send_all(credit: Credit, calls: list[Call]) -> list[Call]:
    sent: list[Call] = []
    for call in calls:
        if credit.admits(call):
            credit.reserve(call)
            sent.append(call)
    return sent


@pytest.mark.parametrize(("size", "partitions"), [(100, 1), (10_000, 32), (1 << 20, 1)])
def test_beside_others_an_org_has_a_share_of_the_work_under_way(
    shared: Credit, size: int, partitions: int
) -> None:
    calls = [_call(number, 1, size, partitions) for number in range(100)]
    sent = _send_all(shared, calls)
    assert 1 <= len(sent) < 100
    assert sum(map(work_of, sent)) <= SHARE < sum(map(work_of, calls[: len(sent) + 1]))
    for call in calls[len(sent) :]:
        shared.waiting.add(call)
    other = _call(200, 2, size, partitions)
    assert shared.admits(other), "it does not wait for the first org's turn"
    assert shared.pop_next() is None
    shared.release(sent[0])
    assert shared.pop_next() is calls[len(sent)]


def test_one_op_is_always_allowed(shared: Credit) -> None:
    assert shared.admits(_call(1, 1, 1 << 30, 5_000))


def test_an_org_that_is_alone_has_no_share(shared: Credit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic", lambda: 101.5)
    first = _call(0, 1)
    shared.reserve(first)
    monkeypatch.setattr(clock, "monotonic", lambda: 103.0)
    calls = [_call(number, 1) for number in range(100)]
    assert _send_all(shared, calls) == calls


def test_a_waiting_call_that_fits_is_not_passed(shared: Credit) -> None:
    credit = Credit(most=1, budget=100, largest=100, shared=True)
    running = _call(0, 1)
    credit.reserve(running)
    credit.waiting.add(_call(1, 1))
    credit.release(running)
    assert not credit.admits(_call(2, 2))
