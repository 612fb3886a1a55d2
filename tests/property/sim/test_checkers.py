"""The checkers accept what a correct system does, and find one event that was changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.sim.tiny_kafka import RC, RU, TinyKafka
from tests.sim.checkers import check_all
from tests.sim.history import Event, dumps, loads

STEPS = 400
Mutation = Callable[[list[Event], random.Random], bool]
"""Changes a history; false if this one has nothing to change."""


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_correct_system_is_accepted(seed: int) -> None:
    assert check_all(TinyKafka(random.Random(seed), STEPS).events) == []


def test_a_history_survives_its_file() -> None:
    made = TinyKafka(random.Random(1), STEPS)
    assert loads(made.history.dumps()) == loads(dumps(made.events)) == made.events


def _finals(events: Sequence[Event], isolation: str) -> list[Event]:
    """The outcomes of final reads."""
    asked = {e["n"] for e in events if e.get("final") and e.get("isolation") == isolation}
    return [event for event in events if event.get("id") in asked]


def _acknowledged(events: Sequence[Event]) -> dict[str, Event]:
    """The outcome of the produce of each value that was acknowledged."""
    return {
        value: event
        for event in events
        if event["op"] == "produce" and event["type"] == "ok"
        for value in events[event["id"]]["values"]
    }


def _record(
    events: Sequence[Event], isolation: str, rnd: random.Random, *, txn: bool = False
) -> tuple[Event, int] | None:
    """A final read and the index of a record in it that was acknowledged."""
    known = _acknowledged(events)
    found = [
        (event, index)
        for event in _finals(events, isolation)
        for index, (_, value) in enumerate(event["records"])
        if value in known and (not txn or "txn" in events[known[value]["id"]])
    ]
    return rnd.choice(found) if found else None


def _drop(events: list[Event], rnd: random.Random) -> bool:
    if (found := _record(events, RU, rnd)) is None:
        return False
    del found[0]["records"][found[1]]
    return True


def _drop_of_transaction(events: list[Event], rnd: random.Random) -> bool:
    if (found := _record(events, RC, rnd, txn=True)) is None:
        return False
    del found[0]["records"][found[1]]
    return True


def _swap(events: list[Event], rnd: random.Random) -> bool:
    found = _record(events, RU, rnd)
    if found is None or len(found[0]["records"]) < 2:
        return False
    records, one = found[0]["records"], found[1]
    other = one - 1 if one else 1
    records[one][1], records[other][1] = records[other][1], records[one][1]
    return True


def _repeat(events: list[Event], rnd: random.Random) -> bool:
    if (found := _record(events, RU, rnd)) is None:
        return False
    found[0]["records"].insert(found[1], found[0]["records"][found[1]])
    return True


def _double(events: list[Event], rnd: random.Random) -> bool:
    found = _finals(events, RU)[0]
    if not found["records"]:
        return False
    found["records"].append([found["next"], found["records"][-1][1]])
    found["next"] += 1
    found["high_watermark"] += 1
    return True


def _invent(events: list[Event], rnd: random.Random) -> bool:
    if (found := _record(events, RU, rnd)) is None:
        return False
    found[0]["records"][found[1]][1] = "invented"
    return True


def _move(events: list[Event], rnd: random.Random) -> bool:
    found = _record(events, RU, rnd)
    if found is None:
        return False
    value = found[0]["records"][found[1]][1]
    _acknowledged(events)[value]["offset"] += rnd.choice([-1, 1])
    return True


def _truncate(events: list[Event], rnd: random.Random) -> bool:
    """A partition has lost its end."""
    if (found := _record(events, RU, rnd)) is None:
        return False
    end, place = found[0]["records"][found[1]][0], events[found[0]["id"]]["partition"]
    for event in (*_finals(events, RU), *_finals(events, RC)):
        if events[event["id"]]["partition"] == place:
            event["records"] = [record for record in event["records"] if record[0] < end]
            event |= {"next": end, "high_watermark": end, "last_stable": end}
    return True


def _stale(events: list[Event], rnd: random.Random) -> bool:
    found = [e for e in _finals(events, RC) if e["records"] and e["high_watermark"] > 0]
    plain = [e for e in found if _acknowledged(events).keys() & {r[1] for r in e["records"]}]
    if not plain:
        return False
    event = rnd.choice(plain)
    event |= {"records": [], "next": events[event["id"]]["position"], "last_stable": 0}
    event["high_watermark"] = event["log_start"] = 0
    events[event["id"]]["position"] = 0
    return True


def _abort(events: list[Event], rnd: random.Random) -> bool:
    found = _record(events, RC, rnd, txn=True)
    if found is None:
        return False
    value = found[0]["records"][found[1]][1]
    txn = events[_acknowledged(events)[value]["id"]]["txn"]
    for event in events:
        if event["op"] == "commit" and event.get("txn") == txn:
            event["op"] = "abort"
    for event in events:
        if "id" in event:
            event["op"] = events[event["id"]]["op"]
    return True


def _offset(events: list[Event], rnd: random.Random) -> bool:
    found = [e for e in events if e["op"] == "offset_fetch" and e["type"] == "ok"]
    rnd.choice(found)["offsets"][0][2] += 1000
    return True


def _no_offset(events: list[Event], rnd: random.Random) -> bool:
    found = [e for e in events if e["op"] == "offset_fetch" and e["type"] == "ok"]
    found = [e for e in found if e["offsets"][0][2] >= 0]
    if not found:
        return False
    found[-1]["offsets"][0][2] = -1  # the first commit was certainly done, or was seen before
    part = found[-1]["offsets"][0][1], events[found[-1]["id"]]["group"]
    return any(
        (e["type"], e["op"]) == ("ok", "offset_commit")
        and (events[e["id"]]["offsets"][0][1], events[e["id"]]["group"]) == part
        for e in events[: found[-1]["id"]]
    )


def _share_again(events: list[Event], rnd: random.Random) -> bool:
    done = [
        events[event["id"]]
        for event in events
        if (event["op"], event["type"]) == ("share_ack", "ok")
        and events[event["id"]]["ranges"][0][2] != "release"
    ]
    if not done:
        return False
    first, last, _ = rnd.choice(done)["ranges"][0]
    asked: dict[str, Any] = {"group": "s", "member": "m3", "topic": "a", "partition": 0}
    n, now = len(events), events[-1]["t"]
    common = {"t": now, "who": "m3", "op": "share_read"}
    events.append({"n": n, "type": "call", "isolation": RU, **common, **asked})
    answer = {"records": [], "acquired": [[first, last, 2]], "lock_s": 30}
    events.append({"n": n + 1, "type": "ok", "id": n, **common, **answer})
    return True


def _another_topic(events: list[Event], rnd: random.Random) -> bool:
    found = [e for e in events if e["op"] == "describe_topic" and e["type"] == "ok"]
    rnd.choice(found)["topic_id"] = "another"
    made = [e["type"] for e in events if e["op"] == "create_topic"]
    return made.count("call") == made.count("ok") + made.count("fail")  # all ids are known


def _not_a_cut(events: list[Event], rnd: random.Random) -> bool:
    made = [e for e in events if e["op"] == "snapshot" and e["type"] == "ok"]
    acknowledged = [e for e in events if e["op"] == "produce" and e["type"] == "ok"]
    for snapshot in made:
        before = [e for e in acknowledged if e["n"] < snapshot["id"]]
        if before:
            partition = events[rnd.choice(before)["id"]]["partition"]
            snapshot["ends"][partition][2] = 0
            return True
    return False


MUTATIONS: dict[Mutation, set[str]] = {
    _drop: {"lost", "skipped"},
    _drop_of_transaction: {"lost", "skipped", "in part"},
    _swap: {"offsets disagree"},
    _repeat: {"order"},
    _double: {"doubled"},
    _invent: {"invented", "offsets disagree"},
    _move: {"doubled", "offsets disagree", "reordered"},
    _truncate: {"lost"},
    _stale: {"stale"},
    _abort: {"aborted seen"},
    _offset: {"never written"},
    _no_offset: {"went back"},
    _share_again: {"delivered again"},
    _another_topic: {"never written"},
    _not_a_cut: {"not a cut"},
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_changed_event_is_found(mutation: Mutation) -> None:
    changed = 0
    for seed in range(40):
        events = list(loads(_history(seed)))
        if mutation(events, random.Random(seed)):
            changed += 1
            assert {v.name for v in check_all(events)} & MUTATIONS[mutation], seed
    assert changed >= 3


@cache
def _history(seed: int) -> str:
    return TinyKafka(random.Random(seed), STEPS).history.dumps()
