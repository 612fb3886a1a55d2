"""Ops that wait for credit: in the order of the calls within an org, and orgs in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from quafka_mesh_ops.broker_session import Call
from quafka_mesh_ops.credit import Credit


@dataclass
class Waiting:
    """As much of a call as credit looks at."""

    request_id: int
    org_id: int
    size: int = 1


def _call(number: int, org: int, size: int = 1) -> Call:
    return cast(Call, Waiting(number, org, size))


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
