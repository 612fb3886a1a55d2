"""The calls of a history with their outcomes, and its notes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from tests.sim.checkers.bounds import Bounds
from tests.sim.history import Event

Place = tuple[str, str, int, str]
"""A partition: org, topic, partition, and the topic's id if its name has had several."""


_CUTS_OFF = frozenset(
    {
        "pause",
        "partition",
        "one way",
        "store away",
        "store busy",
        "store down",
        "store late",
        "store lost",
        "store slow",
    }
)
"""Faults after which a broker may not know that another one has its shard."""


class Call:
    """A call and its outcome, if it has one."""

    __slots__ = ("asked", "end", "end_t", "n", "op", "org", "outcome", "place", "t", "type", "who")

    def __init__(self, asked: Event) -> None:
        """Begin without an outcome."""
        self.asked = asked
        self.outcome: Event = {}
        self.n: int = asked["n"]
        self.t: float = asked["t"]
        self.who: str = asked["who"]
        self.op: str = asked["op"]
        self.org: str = asked.get("org", "")
        self.type = "unknown"
        self.end: float = math.inf
        """The number of the outcome."""
        self.end_t: float = math.inf
        self.place: Place | None = None
        """Set by `Timeline.place`."""

    def ended(self, outcome: Event) -> None:
        """Add the outcome."""
        assert not self.outcome, f"call {self.n} has two outcomes"
        self.outcome = outcome
        self.type = outcome["type"]
        self.end = outcome["n"]
        self.end_t = outcome["t"]

    @property
    def done(self) -> float:
        """The number of the event by which it was certainly done; infinite if it may not be."""
        return self.end if self.type == "ok" else math.inf

    @property
    def events(self) -> tuple[int, ...]:
        """The numbers of the call and its outcome."""
        return (self.n, self.outcome["n"]) if self.outcome else (self.n,)

    @property
    def gateway(self) -> str | None:
        """The gateway that has answered."""
        found: str | None = self.outcome.get("gateway", self.asked.get("gateway"))
        return found

    def __getitem__(self, name: str) -> Any:
        """A field of the call."""
        return self.asked[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field of the call, or the default."""
        return self.asked.get(name, default)

    def answer(self, name: str, default: Any = None) -> Any:
        """A field of the outcome; the default also in place of null."""
        found = self.outcome.get(name)
        return default if found is None else found


class Timeline:
    """A history, indexed."""

    def __init__(self, events: Sequence[Event]) -> None:
        """Pair calls with outcomes."""
        self.events = events
        self.calls: dict[str, list[Call]] = defaultdict(list)
        """By op, in the order of the calls."""
        self.notes: dict[str, list[Event]] = defaultdict(list)
        """By op."""
        self.ended: list[Call] = []
        """Calls with outcomes, in the order of these."""
        self._by_number: dict[int, Call] = {}
        for event in events:
            self._add(event)
        run = self.notes["run"]
        self.bounds = Bounds.of(run[0] if run else None)
        self.deleted = {(call.org, call["topic"]) for call in self.calls["delete_topic"]}
        """Topics whose names may have had several lives."""
        faults, settle = list(self._fault_times()), self.bounds.settle_s
        self._faults = [(start, end + settle) for _, start, end in faults]
        self._cuts = [(start, end) for kind, start, end in faults if kind in _CUTS_OFF]
        self._ok: dict[tuple[str, ...], list[Call]] = {}

    def _add(self, event: Event) -> None:
        kind = event["type"]
        if kind == "note":
            self.notes[event["op"]].append(event)
        elif kind == "call":
            call = self._by_number[event["n"]] = Call(event)
            self.calls[call.op].append(call)
        else:
            call = self._by_number[event["id"]]
            call.ended(event)
            self.ended.append(call)

    def ok(self, *ops: str) -> list[Call]:
        """The calls of some ops that were done, in the order in which they were answered."""
        if (found := self._ok.get(ops)) is None:
            of_ops = [call for op in ops for call in self.calls[op] if call.type == "ok"]
            found = sorted(of_ops, key=lambda call: call.end)
            self._ok[ops] = found
        return found

    def place(self, call: Call) -> Place:
        """The partition that a call is about."""
        if (place := call.place) is None:
            topic = call.asked["topic"]
            life = call.answer("topic_id", "") if (call.org, topic) in self.deleted else ""
            place = call.place = call.org, topic, call.asked["partition"], life
        return place

    def partition(self, org: str, topic: str, partition: int) -> Place | None:
        """The place of a partition in a list; None if the topic's name has had several lives."""
        return None if (org, topic) in self.deleted else (org, topic, partition, "")

    def disturbed(self, first: float, last: float) -> bool:
        """True if a fault or its consequences may have been under way between two moments."""
        return any(start <= last and first <= end for start, end in self._faults)

    def may_be_ousted(self, moment: float) -> bool:
        """True if a broker may not know yet that another one has its shard."""
        ousted_s = self.bounds.ousted_s
        return any(start <= moment < end + ousted_s for start, end in self._cuts)

    @property
    def may_lose(self) -> bool:
        """True if a power cut may have lost acknowledged writes."""
        faults = self.notes["fault"]
        return not self.bounds.durable and any(fault["fault"] == "power" for fault in faults)

    def _fault_times(self) -> Iterator[tuple[str, float, float]]:
        """The kind of each fault, its start and its end."""
        started: dict[tuple[Any, Any], list[float]] = defaultdict(list)
        for event in self.notes["fault"]:
            key, phase, now = (
                (event["fault"], str(event.get("node"))),
                event.get("phase"),
                event["t"],
            )
            if phase == "start":
                started[key].append(now)
            elif phase == "end" and started[key]:
                yield key[0], started[key].pop(), now
            else:
                yield key[0], now, now
        for (kind, _), times in started.items():
            for start in times:
                yield kind, start, math.inf


def name_of(place: Place) -> str:
    """A place as people write it."""
    org, topic, partition, life = place
    return f"{org}{'/' if org else ''}{topic}{'@' if life else ''}{life}-{partition}"
