"""Transactions that copy records commit their offsets and their records together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.txns import Txn
from tests.sim.checkers.violation import Violation

_Source = tuple[str, Place]
"""A group, and a partition that it reads."""


def check(run: Run) -> list[Violation]:
    """Inputs that were copied twice or never, and offsets that are behind their records."""
    if not run.calls["add_offsets"]:
        return []
    copies = _Copies(run)
    return [*copies.twice, *_behind(run, copies), *_never(run, copies)]


class _Copy(NamedTuple):
    txn: Txn
    event: int


class _Copies:
    """Which input is in which transaction that was committed."""

    def __init__(self, run: Run) -> None:
        self.done: dict[_Source, dict[int, _Copy]] = defaultdict(dict)
        self.deleted: dict[_Source, set[int]] = defaultdict(set)
        """Inputs whose copies, if they were committed, were deleted before anybody saw them."""
        self.begun: dict[_Source, int] = {}
        """The first input that any transaction has tried to copy."""
        self.ends: dict[_Source, tuple[int, Txn]] = {}
        """The last offset that a transaction has committed, by what is visible of it."""
        self.twice: list[Violation] = []
        for txn in run.txns.by_name.values():
            for call in txn.adds:
                self._ends(run, txn, call)
            groups = {(call.org, call["group"]) for call in txn.adds if call.type != "fail"}
            if len(groups) == 1:
                self._inputs(run, txn, groups.pop()[1])

    def _ends(self, run: Run, txn: Txn, call: Call) -> None:
        if not txn.visible or call.type != "ok":
            return
        for topic, partition, offset in call["offsets"]:
            place = run.partition(call.org, topic, partition)
            if place is not None:
                source = call["group"], place
                if offset >= self.ends.get(source, (-1, txn))[0]:
                    self.ends[source] = offset, txn

    def _inputs(self, run: Run, txn: Txn, group: str) -> None:
        for call in txn.produces:
            for value, of in zip(call["values"], call.get("inputs") or (), strict=False):
                place = run.partition(call.org, of[0], of[1]) if of is not None else None
                if place is not None:
                    self._input(run, (group, place), of[2], txn, call, value)

    def _input(
        self, run: Run, source: _Source, offset: int, txn: Txn, call: Call, value: str
    ) -> None:
        self.begun[source] = min(offset, self.begun.get(source, offset))
        if call.type == "fail" or txn.aborted:
            return
        if not txn.visible:
            if _is_deleted(run, call, value):
                self.deleted[source].add(offset)
            return
        other = self.done[source].setdefault(offset, _Copy(txn, call.n))
        if other.txn is not txn:
            message = (
                f"offset {offset} of {name_of(source[1])} was copied by {other.txn.name}, and as "
                f"{value!r} again by {txn.name}; both are committed"
            )
            self.twice.append(Violation("copied twice", message, (other.event, call.n)))


def _is_deleted(run: Run, call: Call, value: str) -> bool:
    final = run.final.get((run.place(call), "read_committed"))
    offset = call.answer("offset")
    if final is None or offset is None:
        return final is not None and final.log_start > 0
    return bool(offset + call["values"].index(value) < final.log_start)


def _last_fetches(run: Run) -> dict[_Source, tuple[int, Call]]:
    """What each group's committed offsets were in the end, when nothing could change any more."""
    found: dict[_Source, tuple[int, Call]] = {}
    changed = max(
        (
            call.done
            for txn in run.txns.by_name.values()
            for call in txn.commits
            if call.type == "ok"
        ),
        default=0.0,
    )
    for call in run.ok("offset_fetch"):
        if call.n > changed:
            for topic, partition, offset in call.outcome["offsets"]:
                if (place := run.partition(call.org, topic, partition)) is not None:
                    found[call["group"], place] = offset, call
    return found


def _behind(run: Run, copies: _Copies) -> Iterator[Violation]:
    """Records of a transaction are visible, and its offsets are not committed."""
    ours, fetches = run.only_by_transactions, _last_fetches(run)
    for source, (due, txn) in copies.ends.items():
        if source in ours and source in fetches:
            offset, call = fetches[source]
            if offset < due:
                message = (
                    f"transaction {txn.name} is committed and moves {source[0]} to {due} in "
                    f"{name_of(source[1])}; the group's offset is {offset} in the end"
                )
                yield Violation("offsets and records part", message, (*txn.events, *call.events))


def _never(run: Run, copies: _Copies) -> Iterator[Violation]:
    """The group's offset is past records of which there is no visible copy."""
    ours, fetches = run.only_by_transactions, _last_fetches(run)
    for source, first in copies.begun.items():
        if source not in ours or source not in fetches:
            continue
        group, place = source
        offset, call = fetches[source]
        if (final := run.final.get((place, "read_committed"))) is None:
            continue
        done = copies.done[source].keys() | copies.deleted[source]
        missing = [o for o in final.values if first <= o < offset and o not in done]
        if missing:
            message = (
                f"{group} is at {offset} in {name_of(place)}, and of {sorted(missing)[:5]} "
                "there is no copy in a transaction that is committed"
            )
            yield Violation("offsets and records part", message, call.events)
