"""No partition has two owners in one group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call
from tests.sim.checkers.violation import Violation
from tests.sim.history import Event

_Group = tuple[str, str]
"""Org and name."""
_Part = tuple[str, int]
"""Topic and partition."""


class _Overlap(NamedTuple):
    """A member had a partition when another one got it."""

    group: _Group
    part: _Part
    holder: str
    held: Event
    """When the holder got it."""
    other: Event
    """When the other member got it."""


def check(run: Run) -> list[Violation]:
    """Two owners in one epoch, and owners that were still members when the next one began.

    A member that was fenced may learn of it later than the next owner begins. So an overlap counts
    only with proof that the coordinator still took the first owner for a member.
    """
    history = _Ownership()
    for event in _notes(run):
        history.add(event)
    commits = _commits(run) if history.overlaps else {}
    found = history.same_epoch
    for overlap in history.overlaps:
        key = overlap.group, overlap.holder
        found.extend(_proven(run, overlap, history.by_member[key], commits.get(key, [])))
    return found


class _Ownership:
    """Who has which partition, by what members say."""

    def __init__(self) -> None:
        self.by_member: dict[tuple[_Group, str], list[Event]] = defaultdict(list)
        self.overlaps: list[_Overlap] = []
        self.same_epoch: list[Violation] = []
        self._holders: dict[_Group, dict[_Part, dict[str, Event]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self._epochs: dict[tuple[_Group, _Part, str, int], Event] = {}

    def add(self, event: Event) -> None:
        """Take the next event."""
        group, member = (event.get("org", ""), event["group"]), event["member"]
        self.by_member[group, member].append(event)
        holders = self._holders[group]
        if event["op"] == "lost":
            for members in holders.values():
                members.pop(member, None)
            return
        for topic, partition in event["partitions"]:
            if event["op"] == "released":
                holders[topic, partition].pop(member, None)
            else:
                self._gained(group, (topic, partition), event)

    def _gained(self, group: _Group, part: _Part, event: Event) -> None:
        member, members = event["member"], self._holders[group][part]
        epoch = group, part, event["protocol"], event["epoch"]
        first = self._epochs.setdefault(epoch, event)
        if first["member"] != member:
            message = (
                f"{_name(group, part)} went to {first['member']} and to {member}, "
                f"both in epoch {event['epoch']}"
            )
            self.same_epoch.append(Violation("two owners", message, (first["n"], event["n"])))
        self.overlaps += [
            _Overlap(group, part, holder, held, event)
            for holder, held in members.items()
            if holder != member
        ]
        members[member] = event


def _notes(run: Run) -> list[Event]:
    notes = [*run.notes["gained"], *run.notes["released"], *run.notes["lost"]]
    return sorted(notes, key=lambda event: event["n"])


def _commits(run: Run) -> dict[tuple[_Group, str], list[Call]]:
    found: dict[tuple[_Group, str], list[Call]] = defaultdict(list)
    for call in run.ok("offset_commit"):
        if call.get("member") and call.get("epoch", -1) >= 0:
            found[(call.org, call["group"]), call["member"]].append(call)
    return found


def _proven(
    run: Run, overlap: _Overlap, notes: list[Event], commits: list[Call]
) -> Iterator[Violation]:
    began = overlap.other["n"]
    later = [event for event in notes if event["n"] > began]
    lost = next((event["n"] for event in later if event["op"] == "lost"), None)
    proof = next((call.n for call in commits if call.n > began), None)
    if proof is not None and lost is not None and lost < proof:
        proof = None  # it has joined again
    if proof is None and lost is None:
        proof = next((event["n"] for event in later if _is_member(run, overlap, event)), None)
    if proof is not None:
        message = (
            f"{_name(overlap.group, overlap.part)} went to {overlap.other['member']} while "
            f"{overlap.holder} had it, which was a member after that, as event {proof} shows"
        )
        yield Violation("two owners", message, (overlap.held["n"], began, proof))


def _is_member(run: Run, overlap: _Overlap, event: Event) -> bool:
    """True if an event shows a member; with a fault, it may be the answer to an old request."""
    asked = event["op"] == "gained" or not event.get("leaving")
    return asked and not run.disturbed(overlap.held["t"], event["t"])


def _name(group: _Group, part: _Part) -> str:
    return f"partition {part[0]}-{part[1]} of group {group[1]}"
