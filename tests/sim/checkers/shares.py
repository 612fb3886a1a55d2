"""Share groups: a finished record never comes back, and a locked one goes to nobody else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.violation import Violation

_Record = tuple[str, Place, int]
"""Group, partition and offset."""


class _Given(NamedTuple):
    """A record was given to a member."""

    member: str
    call: Call


class _Said(NamedTuple):
    """A member acknowledged a record."""

    member: str
    call: Call
    how: str


def check(run: Run) -> list[Violation]:
    """Records that come back after they were finished, or are with two members at once."""
    given = _given(run)
    if not given:
        return []
    said, ends = _said(run), _ends(run)
    found: list[Violation] = []
    for record, deliveries in given.items():
        about = said.get(record, ())
        found.extend(_delivered_again(record, deliveries, about))
        found.extend(_finished_twice(record, about, given))
        if len(deliveries) > 1:
            found.extend(_at_once(run, record, deliveries, about, ends))
    return found


def _given(run: Run) -> dict[_Record, list[_Given]]:
    found: dict[_Record, list[_Given]] = defaultdict(list)
    for call in run.ok("share_read"):
        group, place, member = call["group"], run.place(call), call["member"]
        for first, last, *_ in call.outcome["acquired"]:
            given = _Given(member, call)
            for offset in range(first, last + 1):
                found[group, place, offset].append(given)
    return found


def _said(run: Run) -> dict[_Record, list[_Said]]:
    found: dict[_Record, list[_Said]] = defaultdict(list)
    for call in run.calls["share_ack"]:
        if call.type == "fail":
            continue
        group, place = call["group"], run.place(call)
        for first, last, how in call["ranges"]:
            said = _Said(call["member"], call, how)
            for offset in range(first, last + 1):
                found[group, place, offset].append(said)
    return found


def _ends(run: Run) -> dict[tuple[str, str], list[int]]:
    """When the sessions of each member of a group have ended."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in run.notes["share_end"]:
        found[event["group"], event["member"]].append(event["n"])
    return found


def _delivered_again(
    record: _Record, deliveries: Sequence[_Given], said: Sequence[_Said]
) -> Iterator[Violation]:
    first = _first_finish(said)
    again = next((g for g in deliveries if first and g.call.n > first.call.end), None)
    if first is not None and again is not None:
        message = f"{_name(record)} was finished ({first.how}) and then given to {again.member}"
        yield Violation("delivered again", message, (*first.call.events, *again.call.events))


def _finished_twice(
    record: _Record, said: Sequence[_Said], given: Mapping[_Record, Sequence[_Given]]
) -> Iterator[Violation]:
    """Members that have finished a record, although only one can have held it to the end.

    Acknowledgements of records below the start of the window are left out without an error, as in
    Kafka's `SharePartition`: those of a member whose lock had run out, or went with a broker. The
    start is not above a record if a lower one is given to a member later.
    """
    first = _first_finish(said)
    other = next((s for s in _finishes(said) if first and s.member != first.member), None)
    if first is None or other is None:
        return
    last = max(first.call.end, other.call.end)
    group, place, offset = record
    below = (given[each] for each in given if each[:2] == (group, place) and each[2] < offset)
    if any(one.call.n > last for deliveries in below for one in deliveries):
        message = f"{_name(record)} was finished by {first.member} and by {other.member}"
        yield Violation("finished twice", message, (*first.call.events, *other.call.events))


def _finishes(said: Sequence[_Said]) -> list[_Said]:
    return [s for s in said if s.how in ("accept", "reject") and s.call.type == "ok"]


def _first_finish(said: Sequence[_Said]) -> _Said | None:
    return min(_finishes(said), key=lambda s: s.call.end, default=None)


def _at_once(
    run: Run,
    record: _Record,
    deliveries: Sequence[_Given],
    said: Sequence[_Said],
    ends: dict[tuple[str, str], list[int]],
) -> Iterator[Violation]:
    by_call = sorted(deliveries, key=lambda given: given.call.n)
    for one, two in pairwise(by_call):
        lock_s = one.call.answer("lock_s", 0.0)
        began, ended = one.call.t, max(one.call.end_t, two.call.end_t)
        last = max(one.call.end, two.call.end)
        if began < run.bounds.moves_s:
            continue  # the lock may have gone with a shard that moved
        if one.member == two.member or ended - began >= lock_s:
            continue  # the same session again, or the lock may have run out
        if any(s.member in (one.member, two.member) and s.call.n < last for s in said):
            continue  # released or finished; whatever it was, it was not locked any more
        if any(n < last for g in (one, two) for n in ends.get((record[0], g.member), ())):
            continue
        if not run.disturbed(began, ended):
            message = f"{_name(record)} was with {one.member} and {two.member} at once"
            yield Violation("two members", message, (*one.call.events, *two.call.events))


def _name(record: _Record) -> str:
    group, place, offset = record
    return f"offset {offset} of {name_of(place)} in group {group}"
