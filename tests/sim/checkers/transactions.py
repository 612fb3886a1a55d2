"""What read_committed readers see of transactions: all of those that commit, nothing of others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, name_of
from tests.sim.checkers.txns import Txn
from tests.sim.checkers.violation import Violation


def check(run: Run) -> list[Violation]:
    """Aborted and undecided records that were seen, and transactions that are seen in part."""
    if not run.txns.by_value:
        return []
    return [*_seen(run), *_parts(run)]


def _seen(run: Run) -> Iterator[Violation]:
    by_value = run.txns.by_value
    visible_from = {
        name: math.inf if txn.aborted else txn.first_commit
        for name, txn in run.txns.by_name.items()
    }
    from_event = {value: visible_from[txn.name] for value, txn in by_value.items()}
    reported: set[Txn] = set()
    for call in run.ok("read", "share_read"):
        if call.get("isolation") != "read_committed":
            continue
        end = call.end
        for record in call.outcome["records"]:
            if from_event.get(record[1], -1) > end and (txn := by_value[record[1]]) not in reported:
                reported.add(txn)
                yield _too_early(run, call, record, txn)


def _too_early(run: Run, call: Call, record: list[Any], txn: Txn) -> Violation:
    state = "aborted" if txn.aborted else "undecided"
    message = (
        f"{name_of(run.place(call))}: {record[1]!r} at {record[0]} is of the {state} "
        f"transaction {txn.name}, and was seen with read_committed"
    )
    return Violation(f"{state} seen", message, (*txn.events, *call.events))


def _parts(run: Run) -> Iterator[Violation]:
    """In the end, a transaction of which anything is seen is there as a whole."""
    for txn in run.txns.by_name.values():
        if not txn.visible:
            continue
        missing = list(_missing(run, txn))
        if missing:
            known = f"was seen in event {txn.seen}" if txn.seen is not None else "was committed"
            message = (
                f"transaction {txn.name} {known}; {missing[:3]} of it are not there in the end"
            )
            yield Violation("in part", message, txn.events)


def _missing(run: Run, txn: Txn) -> Iterator[str]:
    for call, value in txn.acknowledged:
        place = run.place(call)
        final = run.final.get((place, "read_committed"))
        if final is None or run.is_compacted(place):
            continue
        offset = call.answer("offset")
        if offset is None and final.log_start > 0:
            continue  # it may be below
        if offset is not None and offset + call["values"].index(value) < final.log_start:
            continue
        if value not in final.found:
            yield value
