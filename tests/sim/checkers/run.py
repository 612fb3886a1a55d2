"""A history with all that several checkers need to know of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from tests.sim.checkers.logs import Log, Logs
from tests.sim.checkers.timeline import Call, Place, Timeline
from tests.sim.checkers.txns import Txns
from tests.sim.history import Event


class Run(Timeline):
    """What checkers take."""

    def __init__(self, events: Sequence[Event]) -> None:
        """Index a history."""
        super().__init__(events)
        self.logs = Logs(self)
        self.txns = Txns(self)
        self._compacted = self._topics_with("cleanup.policy", "compact")
        self._retained = self._topics_with("retention.ms") | self._topics_with("retention.bytes")
        self._known: dict[tuple[Place, bool], list[int]] = {}

    @cached_property
    def calls_of(self) -> dict[str, list[Call]]:
        """The produce calls that have a value, by value."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls["produce"]:
            for value in call["values"]:
                found[value].append(call)
        return found

    @cached_property
    def final(self) -> dict[tuple[Place, str], Final]:
        """The reads after the run, by partition and isolation."""
        found: dict[tuple[Place, str], Final] = {}
        for call in self.ok("read"):
            if call.get("final"):
                key = self.place(call), call["isolation"]
                found.setdefault(key, Final()).add(call)
        return found

    @cached_property
    def only_by_transactions(self) -> set[tuple[str, Place]]:
        """The groups and partitions whose offsets only transactions commit."""
        others = {
            (call["group"], self.partition(call.org, *part[:2]))
            for call in (*self.calls["offset_commit"], *self.calls["offset_delete"])
            for part in call.get("offsets", call.get("partitions"))
        }
        return {
            (call["group"], place)
            for call in self.calls["add_offsets"]
            for topic, partition, _ in call["offsets"]
            if (place := self.partition(call.org, topic, partition)) is not None
            and (call["group"], place) not in others
        }

    def is_compacted(self, place: Place) -> bool:
        """True if later records with the same key may replace records."""
        return place[:2] in self._compacted

    def may_expire(self, place: Place) -> bool:
        """True if the log start may move by itself."""
        return place[:2] in self._retained

    def known(self, place: Place, committed: bool, first: int, end: int) -> list[int]:
        """The offsets from `first` to `end` that have a record for readers of an isolation."""
        offsets = self._offsets(place, committed)
        return offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]

    def _offsets(self, place: Place, committed: bool) -> list[int]:
        if (found := self._known.get((place, committed))) is None:
            values = self.logs.of.get(place, Log(place)).values
            by_value = self.txns.by_value
            if committed and by_value:
                hidden = {name for name, txn in self.txns.by_name.items() if not txn.visible}
                found = [
                    offset
                    for offset, value in values.items()
                    if value not in by_value or by_value[value].name not in hidden
                ]
            else:
                found = list(values)
            found.sort()
            self._known[place, committed] = found
        return found

    def _topics_with(self, config: str, part: str = "") -> set[tuple[str, str]]:
        created = (
            (call.org, call["topic"], call.get("configs", {}).get(config))
            for call in self.calls["create_topic"]
        )
        altered = (
            (call.org, call["resource"].removeprefix("topic:"), call["value"])
            for call in self.calls["alter_config"]
            if call["name"] == config
        )
        return {
            (org, topic)
            for org, topic, value in chain(created, altered)
            if value is not None and value != "-1" and part in value
        }


class Final:
    """The final reads of a partition in one isolation."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.values: dict[int, str] = {}
        self.found: set[str] = set()
        """The values."""
        self.log_start = 0
        self.end = 0
        """The position after the last read."""
        self.high_watermark = 0
        self.event = 0

    def add(self, call: Call) -> None:
        """Add one read."""
        records = call.outcome["records"]
        self.values.update((record[0], record[1]) for record in records)
        self.found.update(record[1] for record in records)
        self.log_start = max(self.log_start, call.answer("log_start", 0))
        self.end = max(self.end, call.answer("next", 0))
        self.high_watermark = max(self.high_watermark, call.answer("high_watermark", 0))
        self.event = call.outcome["n"]
