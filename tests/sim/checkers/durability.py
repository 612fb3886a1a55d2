"""What was acknowledged or read once is still there in the end, and no read has left it out."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.violation import Violation

_UNCOMMITTED, _COMMITTED = "read_uncommitted", "read_committed"


def check(run: Run) -> list[Violation]:
    """Lost and skipped records. Without final reads only what reads have skipped is found."""
    return [*_lost(run), *_without_offset(run), *_unread(run), *_skipped(run)]


def _lost(run: Run) -> Iterator[Violation]:
    for (place, isolation), final in run.final.items():
        if place not in run.logs.of:
            continue
        log = run.logs.of[place]
        visible = run.known(place, isolation == _COMMITTED, final.log_start, 1 << 62)
        replaced = _Replaced(run, place)
        for offset in visible:
            if final.values.get(offset) != log.values[offset] and offset not in replaced:
                message = (
                    f"{log.values[offset]!r} was in {name_of(place)} at {offset}; "
                    f"a final read ({isolation}) finds {final.values.get(offset)!r} there"
                )
                yield Violation("lost", message, (log.seen[offset], final.event))
        if final.end < (final.high_watermark if isolation == _UNCOMMITTED else 0):
            message = f"{name_of(place)} was read to {final.end} of {final.high_watermark}"
            yield Violation("not read to the end", message, (final.event,))


def _without_offset(run: Run) -> Iterator[Violation]:
    """Values whose acknowledgement had no offset are somewhere."""
    for call in run.ok("produce"):
        final = run.final.get((run.place(call), _UNCOMMITTED))
        if final is None or call.outcome.get("offset") is not None:
            continue
        if run.is_compacted(run.place(call)) or final.log_start > 0:
            continue
        for value in call["values"]:
            if value not in run.logs.where:
                message = f"{value!r} was acknowledged and is not in {name_of(run.place(call))}"
                yield Violation("lost", message, (*call.events, final.event))


def _unread(run: Run) -> Iterator[Violation]:
    if not run.final:
        return
    for place, log in run.logs.of.items():
        if place[:2] not in run.deleted and (place, _UNCOMMITTED) not in run.final:
            shown = min(log.seen.values())
            yield Violation("not read to the end", f"{name_of(place)} has no final read", (shown,))


def _skipped(run: Run) -> Iterator[Violation]:
    for call in run.ok("read"):
        first, end = _range(call)
        if first is None or end is None:
            continue
        place = run.place(call)
        known = run.known(place, call["isolation"] == _COMMITTED, first, end)
        records = call.outcome["records"]
        if len(known) <= len(records) or run.is_compacted(place):
            continue
        missing = sorted(set(known).difference(record[0] for record in records))
        if call.get("reader") == "live":
            start = _deleted_below(run, place, call.end)
            missing = [offset for offset in missing if offset >= start]
        if missing:
            shown = run.logs.of[place].seen[missing[0]]
            message = f"a read of {name_of(place)} from {first} to {end} left out {missing[:5]}"
            yield Violation("skipped", message, (*call.events, shown))


def _deleted_below(run: Run, place: Place, end: float) -> int:
    """The highest offset below which an administrator has asked to delete the records by then.

    Spark's reader continues there with failOnDataLoss=false (docs/spark.md); consumers get
    OFFSET_OUT_OF_RANGE.
    """
    calls = run.calls["delete_records"]
    asked = (int(each["offset"]) for each in calls if run.place(each) == place and each.n < end)
    return max(asked, default=0)


def _range(call: Call) -> tuple[int | None, int | None]:
    first, end = call.get("position"), call.answer("next")
    if first is None:
        first = call.answer("log_start")
    return first, end


class _Replaced:
    """Offsets that compaction may have removed: a later record has the same key, or the record's
    transaction was not committed ("Aborted records are removed first", docs/compaction.md)."""

    def __init__(self, run: Run, place: Place) -> None:
        self._last: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._undone: set[int] = set()
        if not run.is_compacted(place):
            return
        for offset, value in sorted(run.logs.of[place].values.items()):
            txn = run.txns.by_value.get(value)
            if txn is not None and not txn.visible:
                self._undone.add(offset)
            for call in run.calls_of.get(value, []):
                if (keys := call.get("keys")) is not None:
                    key = self._keys[offset] = keys[call["values"].index(value)]
                    self._last[key] = offset

    def __contains__(self, offset: int) -> bool:
        key = self._keys.get(offset)
        if offset in self._undone:
            return True
        return key is not None and self._last[key] > offset
