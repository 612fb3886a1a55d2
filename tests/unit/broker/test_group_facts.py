"""The table of groups whose members are facts of their own, as the journal's events make it."""

from __future__ import annotations

from typing import Any

import pytest

from quafka_broker.groups.event_writer import QueuedEvents
from quafka_broker.groups.table import Event, Fact, GroupTable, size_of, stated_by
from quafka_loop.slices import at_once

KEY = (1, "g")
OWN: Fact = (KEY, None)


def no_group(_key: object, _kind: object) -> Any:
    class Nothing:
        def release(self) -> None:
            pass

    return Nothing()


def step(
    born_ms: int, own: dict[str, Any] | None = None, gone: tuple[str, ...] = (), **members: bytes
) -> Event:
    rows = [[name, data] for name, data in members.items()]
    return {
        "event": "group_members", "org": 1, "group": "g", "kind": "consumer", "born_ms": born_ms,
        "own": own, "members": rows, "gone": list(gone),
    }  # fmt: skip


CLASSIC: Event = {"event": "group", "org": 1, "group": "g", "since_ms": 0, "members": []}
STATE = {"epoch": 1}


class Facts:
    """A table, and the place of each fact as the journal keeps it."""

    def __init__(self, *events: Event) -> None:
        self.table = GroupTable(no_group, lambda *_: True, lambda: 0.0)
        self.places: dict[Fact, int] = {}
        self.count = 0
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        facts = self.table.facts(event)
        self.table.apply(event)
        for fact in facts:
            if self.table.has(fact):
                self.places[fact] = self.count
            else:
                self.places.pop(fact, None)
        self.count += 1

    @property
    def members(self) -> dict[str, bytes]:
        return self.table.entries[KEY].members


def test_a_step_changes_its_facts_only() -> None:
    facts = Facts(step(5, STATE, a=b"1", b=b"1"), step(5, None, ("a",), b=b"2", c=b"1"))
    assert facts.members == {"b": b"2", "c": b"1"}
    assert facts.places == {OWN: 0, (KEY, "b"): 1, (KEY, "c"): 1}
    assert facts.table.weight((KEY, "b")) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_facts_are_restated_in_any_order(order: tuple[int, ...]) -> None:
    before = Facts(step(5, STATE, a=b"1", b=b"2"))
    every = [OWN, (KEY, "a"), (KEY, "b")]
    events = before.table.restated(every)
    assert [stated_by(event) for event in events] == [[fact] for fact in every]
    after = Facts(*[events[number] for number in order])
    assert after.members == before.members
    assert after.table.entries[KEY].stored == before.table.entries[KEY].stored
    assert after.places.keys() == before.places.keys()


def test_a_copy_has_members_in_slices() -> None:
    facts = Facts(step(5, STATE, (), **{f"m{n}": b"x" * 1024 for n in range(5)}))
    slices = list(facts.table.slices_of(KEY, 4))
    assert [len(some) for some in slices] == [1, 2, 2, 1]
    copies = [facts.table.restated_in_one(some) for some in slices]
    assert [stated_by(copy) for copy in copies] == slices
    assert Facts(*copies).members == facts.members
    assert size_of(copies[1]) >= 2048


def test_an_event_of_another_kind_ends_the_group() -> None:
    facts = Facts(step(5, STATE, a=b"1"), CLASSIC)
    assert (facts.members, facts.places) == ({}, {OWN: 1})
    facts.feed(step(6, STATE, b=b"1"))
    assert (facts.members, facts.places) == ({"b": b"1"}, {OWN: 2, (KEY, "b"): 2})
    facts.feed({"event": "group_deleted", "org": 1, "group": "g"})
    assert facts.places == {}


def test_members_of_an_earlier_group_do_not_return() -> None:
    """Damage may have taken the event that ended them."""
    later = Facts(step(5, STATE, a=b"1"), step(6, STATE, b=b"1"))
    assert (later.members, later.places) == ({"b": b"1"}, {OWN: 1, (KEY, "b"): 1})
    later.feed(step(5, None, a=b"2"))
    assert (later.members, later.places) == ({"b": b"1"}, {OWN: 1, (KEY, "b"): 1})
    alone = Facts(step(5, None, a=b"1"), CLASSIC, step(5, None, a=b"2"))
    assert alone.members == {}


def test_members_without_their_group_are_dropped() -> None:
    alone = Facts(step(5, None, a=b"1"))
    orphans = at_once(alone.table.restore_groups())
    assert (orphans, alone.members) == ([(KEY, "a")], {})


def test_queued_events_hold_their_facts() -> None:
    queued = QueuedEvents()
    queued.add(KEY, step(5, None, ("gone",), a=b"1"))
    held = [part for part in (None, "a", "gone", "b") if queued.has_fact((KEY, part))]
    assert held == ["a", "gone"]
    queued.add(KEY, CLASSIC)
    assert all(queued.has_fact(fact) for fact in (OWN, (KEY, "b")))
    assert not queued.has_fact((KEY, ("t", 0)))
