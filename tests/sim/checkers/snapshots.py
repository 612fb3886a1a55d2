"""A snapshot is a cut: all that was done before one instant, nothing that was done after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call, Place, name_of
from tests.sim.checkers.txns import Txn
from tests.sim.checkers.violation import Violation


class _Write(NamedTuple):
    """A value that was acknowledged or seen at an offset."""

    place: Place
    offset: int
    begun: int
    done: float
    """The number of the acknowledgement; infinite without one."""
    value: str


def check(run: Run) -> list[Violation]:
    """Snapshots that are no cuts, and those in which transactions are half."""
    snapshots = run.ok("snapshot")
    if not snapshots:
        return []
    writes = _writes(run)
    found: list[Violation] = []
    for call in snapshots:
        ends, content = _ends(run, call), _Content(run, call)
        if call.get("scope", "all") == "all":
            found.extend(_cut(call, ends, writes))
            found.extend(_whole(run, call, content))
        else:
            for place in ends:
                found.extend(_cut(call, {place: ends[place]}, writes))
        found.extend(_group_offsets(run, call, ends))
        found.extend(_reads(call, ends, content))
    return found


def _writes(run: Run) -> dict[Place, list[_Write]]:
    found: dict[Place, list[_Write]] = defaultdict(list)
    for value, sightings in run.logs.where.items():
        calls = run.calls_of.get(value, ())
        if len(calls) == len(sightings) == 1:
            place, offset, _ = sightings[0]
            found[place].append(_Write(place, offset, calls[0].n, calls[0].done, value))
    return found


def _ends(run: Run, call: Call) -> dict[Place, int]:
    places = (
        (run.partition(call.org, topic, part), end) for topic, part, end in call.outcome["ends"]
    )
    return {place: end for place, end in places if place is not None}


def _cut(
    call: Call, ends: dict[Place, int], writes: dict[Place, list[_Write]]
) -> Iterator[Violation]:
    """The last write in it began before the first one that is not in it was done."""
    inside: _Write | None = None
    outside: _Write | None = None
    for place, end in ends.items():
        for write in writes.get(place, ()):
            if write.offset < end:
                if inside is None or write.begun > inside.begun:
                    inside = write
            elif outside is None or write.done < outside.done:
                outside = write
    if inside is not None and inside.begun > call.end:
        message = f"snapshot {call['snapshot']} has {inside.value!r}, which was written after it"
        yield Violation("not a cut", message, (*call.events, inside.begun))
    if outside is not None and outside.done < call.n:
        message = (
            f"snapshot {call['snapshot']} lacks {outside.value!r}, which was acknowledged before"
        )
        yield Violation("not a cut", message, (int(outside.done), *call.events))
    elif inside is not None and outside is not None and outside.done < inside.begun:
        message = (
            f"snapshot {call['snapshot']} has {inside.value!r} and lacks {outside.value!r}, "
            "which was acknowledged before the other was written"
        )
        yield Violation("not a cut", message, (int(outside.done), inside.begun, *call.events))


def _group_offsets(run: Run, call: Call, ends: dict[Place, int]) -> Iterator[Violation]:
    for group, topic, partition, offset in call.outcome.get("offsets", ()):
        place = run.partition(call.org, topic, partition)
        if place is not None and place in ends and offset > ends[place]:
            message = (
                f"snapshot {call['snapshot']}: group {group} is at {offset} in {name_of(place)}, "
                f"which ends at {ends[place]}"
            )
            yield Violation("offsets ahead", message, call.events)


class _Content:
    """What read_committed reads of a snapshot have found."""

    def __init__(self, run: Run, snapshot: Call) -> None:
        self._run = run
        self.reads: dict[Place, Call] = {}
        """The last read of each partition, in either isolation."""
        self.found: dict[str, set[str]] = defaultdict(set)
        """The values of each transaction."""
        self._committed: dict[Place, Call] = {}
        self._stopped: dict[Place, Txn | None] = {}
        for call in run.ok("read"):
            if (call.org, call.get("snapshot")) != (snapshot.org, snapshot["snapshot"]):
                continue
            self.reads[run.place(call)] = call
            if call["isolation"] == "read_committed":
                self._committed[run.place(call)] = call
                for record in call.outcome["records"]:
                    if (txn := run.txns.by_value.get(record[1])) is not None:
                        self.found[txn.name].add(record[1])

    def due(self, txn: Txn) -> set[str]:
        """The values that are there if the transaction is committed in the snapshot."""
        return {value for call, value in txn.acknowledged if self._is_due(txn, call, value)}

    def _is_due(self, txn: Txn, call: Call, value: str) -> bool:
        run, place = self._run, self._run.place(call)
        read, offset = self._committed.get(place), call.answer("offset")
        if read is None or offset is None or run.is_compacted(place):
            return False
        offset += call["values"].index(value)
        if offset < read.answer("log_start", 0):
            return False
        end = read.answer("next")
        return end is None or offset < end or self._stopped_by(place, end) is txn

    def _stopped_by(self, place: Place, end: int) -> Txn | None:
        """The transaction whose record is the first after the read: it was open at the cut."""
        if place not in self._stopped:
            values, by_value = self._run.logs.of[place].values, self._run.txns.by_value
            after = (values[o] for o in self._run.known(place, False, end, 1 << 62))
            txns = (by_value[value] for value in after if value in by_value)
            self._stopped[place] = next(txns, None)
        return self._stopped[place]


def _reads(snapshot: Call, ends: dict[Place, int], content: _Content) -> Iterator[Violation]:
    """Reads of a snapshot have what is below its ends."""
    for place, call in content.reads.items():
        records, end = call.outcome["records"], ends.get(place)
        if end is not None and records and records[-1][0] >= end:
            message = f"{name_of(place)} ends at {end} in it, and {records[-1][0]} was read"
            yield Violation("not a cut", message, (*snapshot.events, *call.events))


def _whole(run: Run, snapshot: Call, content: _Content) -> Iterator[Violation]:
    """A transaction is in a snapshot with all of its records and offsets, or with none."""
    for txn in run.txns.by_name.values():
        if not txn.visible:
            continue
        inside, due = content.found.get(txn.name, set()), content.due(txn)
        if inside and due - inside:
            message = (
                f"snapshot {snapshot['snapshot']} has {len(inside)} records of {txn.name} and "
                f"lacks {sorted(due - inside)[:3]}"
            )
            yield Violation("in part", message, (*snapshot.events, *txn.events))
        if due:
            yield from _offsets_part(run, snapshot, txn, bool(inside))


def _offsets_part(run: Run, snapshot: Call, txn: Txn, inside: bool) -> Iterator[Violation]:
    """With the records of a transaction, its offsets are in; without them, they are not."""
    at = {(group, topic, part): o for group, topic, part, o in snapshot.outcome.get("offsets", ())}
    for call in txn.adds:
        if call.type != "ok" or call.org != snapshot.org:
            continue
        for topic, partition, offset in call["offsets"]:
            place, group = run.partition(call.org, topic, partition), call["group"]
            if place is None or (group, place) not in run.only_by_transactions:
                continue
            is_at = at.get((group, topic, partition), -1)
            if inside and is_at < offset:
                message = f"has records of {txn.name}, and {group} is at {is_at}, not {offset}"
            elif not inside and is_at == offset:
                message = f"has no record of {txn.name}, and its offset {offset} of {group}"
            else:
                continue
            message = f"snapshot {snapshot['snapshot']} {message}"
            yield Violation("offsets and records part", message, (*snapshot.events, *txn.events))
