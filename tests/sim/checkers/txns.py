"""The transactions of a history and how they ended."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.sim.checkers.timeline import Call, Timeline


class Txn:
    """One transaction: its calls, and what is known of its end."""

    def __init__(self, name: str) -> None:
        """Begin without calls."""
        self.name = name
        self.produces: list[Call] = []
        self.adds: list[Call] = []
        self.commits: list[Call] = []
        self.aborts: list[Call] = []
        self.seen: int | None = None
        """The first event in which a read_committed reader has seen one of its records."""

    @property
    def committed(self) -> bool:
        """True if a commit was answered."""
        return any(call.type == "ok" for call in self.commits)

    @property
    def aborted(self) -> bool:
        """True if it is certain that it is not, or will not be, committed."""
        aborted = any(call.type == "ok" for call in self.aborts)
        return not self.committed and (aborted or all(call.type == "fail" for call in self.commits))

    @property
    def visible(self) -> bool:
        """True if it is certain that it is committed."""
        return self.committed or (self.seen is not None and not self.aborted)

    @property
    def first_commit(self) -> float:
        """The number of the first call of commit; infinite without one."""
        return min((call.n for call in self.commits), default=math.inf)

    @property
    def done(self) -> float:
        """The number of the event by which it was certainly committed."""
        return min((call.done for call in self.commits), default=math.inf)

    @property
    def events(self) -> tuple[int, ...]:
        """The numbers of the events of its end, or of its first record."""
        ends = (*self.commits, *self.aborts) or self.produces[:1] or self.adds[:1]
        return tuple(n for call in ends for n in call.events)

    @property
    def acknowledged(self) -> Iterator[tuple[Call, str]]:
        """The values that the producer has acknowledgements for."""
        for call in self.produces:
            if call.type == "ok":
                for value in call["values"]:
                    yield call, value


class Txns:
    """All transactions, by name and by value."""

    def __init__(self, timeline: Timeline) -> None:
        """Gather the calls of each transaction."""
        self.by_name: dict[str, Txn] = {}
        self.by_value: dict[str, Txn] = {}
        for call in timeline.calls["produce"]:
            if (name := call.get("txn")) is not None:
                txn = self._named(name)
                txn.produces.append(call)
                self.by_value.update(dict.fromkeys(call["values"], txn))
        for call in timeline.calls["add_offsets"]:
            self._named(call["txn"]).adds.append(call)
        for call in timeline.calls["commit"]:
            self._named(call["txn"]).commits.append(call)
        for call in timeline.calls["abort"]:
            self._named(call["txn"]).aborts.append(call)
        if self.by_value:
            self._look(timeline)

    def _named(self, name: str) -> Txn:
        return self.by_name.setdefault(name, Txn(name))

    def _look(self, timeline: Timeline) -> None:
        by_value = self.by_value
        for call in timeline.ok("read", "share_read"):
            if call.get("isolation") == "read_committed":
                for record in call.outcome["records"]:
                    txn = by_value.get(record[1])
                    if txn is not None and txn.seen is None:
                        txn.seen = call.outcome["n"]
