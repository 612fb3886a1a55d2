"""Nobody sees what he may not, and no org sees records of another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, name_of
from tests.sim.checkers.violation import Violation

_Right = tuple[str, str, str, str]
"""Org, principal, resource, and what may be done."""
_GUARDED = {"read": "read", "share_read": "read", "produce": "write", "list_offsets": "describe"}


def check(run: Run) -> list[Violation]:
    """Uses of revoked rights, refusals of granted ones, and records of other orgs."""
    changes: dict[_Right, list[Call]] = defaultdict(list)
    for call in run.calls["rights"]:
        changes[call.org, call["principal"], call["resource"], call["right"]].append(call)
    found = list(_foreign(run))
    if changes:
        found += [*_used(run, changes), *_refused(run, changes)]
    return found


def _foreign(run: Run) -> Iterator[Violation]:
    if len({call.org for call in run.calls["produce"]}) < 2:
        return
    for value, sightings in run.logs.where.items():
        owners = {call.org for call in run.calls_of.get(value, ())}
        for sighting in sightings:
            if owners and sighting.place[0] not in owners:
                message = f"{value!r} of org {owners} was seen in {name_of(sighting.place)}"
                yield Violation("foreign record", message, (sighting.event,))


def _used(run: Run, changes: dict[_Right, list[Call]]) -> Iterator[Violation]:
    for call in run.ok(*_GUARDED):
        right = _right(call)
        if right not in changes or (
            call.op in ("read", "share_read") and not call.outcome["records"]
        ):
            continue
        revoked = _settled(changes[right], call, run.bounds.rights_s, allowed=False)
        if revoked is not None:
            message = f"{right[1]} could {right[3]} {right[2]} after that was revoked"
            yield Violation("without right", message, (*revoked.events, *call.events))
    yield from _parked(run, changes)


def _parked(run: Run, changes: dict[_Right, list[Call]]) -> Iterator[Violation]:
    """A fetch from before a revocation shows nothing that was written after it."""
    for call in run.ok("read", "share_read"):
        right = _right(call)
        for revoked in changes.get(right, ()):
            if revoked["allowed"] or not call.n < revoked.done < call.end:
                continue
            if any(c["allowed"] and revoked.end < c.end and c.n < call.end for c in changes[right]):
                continue  # it was granted again
            late = revoked.end_t + run.bounds.rights_s
            for record in call.outcome["records"]:
                written = run.calls_of.get(record[1])
                if written and written[0].t > late:
                    message = f"{right[1]} got {record[1]!r}, which is younger than the revocation"
                    events = (*revoked.events, *written[0].events, *call.events)
                    yield Violation("without right", message, events)
                    break


def _refused(run: Run, changes: dict[_Right, list[Call]]) -> Iterator[Violation]:
    for call in run.ended:
        if call.type != "fail" or call.outcome["error"] != "denied" or call.op not in _GUARDED:
            continue
        right = _right(call)
        granted = _settled(changes.get(right, []), call, run.bounds.rights_s, allowed=True)
        if granted is not None:
            message = f"{right[1]} could not {right[3]} {right[2]} after that was granted"
            yield Violation("refused", message, (*granted.events, *call.events))


def _right(call: Call) -> _Right:
    return call.org, call.get("principal", ""), f"topic:{call['topic']}", _GUARDED[call.op]


def _settled(changes: list[Call], use: Call, bound_s: float, *, allowed: bool) -> Call | None:
    """The change that was known everywhere when a call began, with nothing else under way."""
    last: Call | None = None
    for change in changes:
        if change.type == "fail" or change.n > use.end:
            continue
        if change["allowed"] is not allowed:
            last = None
        elif change.type == "ok":
            last = change
    return last if last is not None and last.end_t + bound_s < use.t else None
