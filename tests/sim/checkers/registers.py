"""Metadata and committed offsets: each key is a register that everybody sees alike.

A read may find the value of a write that began before the read ended, unless another write, which
began after the first was done, was done before the read began. This is what a single key must keep
at least; `tests.sim.porcupine` decides it exactly, at the cost of a search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from tests.sim.checkers.largest import Largest
from tests.sim.checkers.run import Run
from tests.sim.checkers.timeline import Call
from tests.sim.checkers.violation import Violation

Key = tuple[str, ...]
"""Kind of register, org, and names."""
ANY = "(any value)"
"""The value of a write that does not tell it: a topic was created, and its id is not known."""
EXISTS = "(some value)"
"""The value of a read that only tells that there is one."""


class Write(NamedTuple):
    """A value that was written between two events."""

    value: Hashable
    begun: float
    done: float
    """Infinite if it may not be done, or later."""


class Read(NamedTuple):
    """A value that was found between two events."""

    value: Hashable
    begun: int
    done: int


def check(run: Run) -> list[Violation]:
    """Values that nobody has written, and values that were replaced before the read."""
    return [
        violation
        for writes, reads in (_offsets(run), _topics(run), _configs(run))
        for key, of_key in reads.items()
        for violation in _register(key, writes[key], of_key)
    ]


def _register(key: Key, writes: list[Write], reads: list[Read]) -> Iterator[Violation]:
    writes = _proven(writes, reads)
    by_value: dict[Hashable, Largest] = defaultdict(Largest)
    for write in sorted(writes, key=lambda write: write.begun):
        by_value[write.value].add(write.begun, write.done)
        if write.value is not None:
            by_value[EXISTS].add(write.begun, write.done)
    definite = Largest()
    for done, begun in sorted((w.done, w.begun) for w in writes if w.done < math.inf):
        definite.add(done, begun)
    for read in reads:
        done = by_value[read.value].before(read.done)
        if read.value is not None:
            done = max(done, by_value[ANY].before(read.done))
        events = (read.begun, read.done)
        newest = definite.before(read.begun)
        if done == -math.inf:
            message = f"{_name(key)} is {read.value!r}, which nobody has written before"
            yield Violation("never written", message, events)
        elif newest > done:
            by = next(write for write in writes if write.begun == newest)
            message = f"{_name(key)} is {read.value!r}, and {by.value!r} was written after it"
            yield Violation("went back", message, (*(int(n) for n in by[1:] if n >= 0), *events))


def _proven(writes: list[Write], reads: list[Read]) -> list[Write]:
    """Writes whose value has been found were done by then, if no other write has that value."""
    count: dict[Hashable, int] = defaultdict(int)
    for write in writes:
        count[write.value] += 1
    found: dict[Hashable, int] = {}
    for read in reads:
        found[read.value] = min(read.done, found.get(read.value, read.done))
    return [
        write._replace(done=found[write.value])
        if count[write.value] == 1 and found.get(write.value, math.inf) < write.done
        else write
        for write in writes
    ]


_Registers = tuple[dict[Key, list[Write]], dict[Key, list[Read]]]


def _offsets(run: Run) -> _Registers:
    found = _Offsets(run)
    for call in run.calls["offset_commit"]:
        found.write(call, call.n, call.done, call["offsets"])
    for call in run.calls["offset_delete"]:
        found.write(call, call.n, call.done, [[*part, -1] for part in call["partitions"]])
    for call in run.calls["add_offsets"]:
        txn = run.txns.by_name[call["txn"]]
        if not txn.aborted:
            done = txn.done if call.type == "ok" else math.inf
            found.write(call, txn.first_commit, done, call["offsets"])
    for call in run.ok("offset_fetch"):
        for topic, partition, offset in call.outcome["offsets"]:
            if (key := found.key(call, topic, partition)) is not None:
                found.reads[key].append(Read(offset, call.n, call.outcome["n"]))
    return found.writes, found.reads


class _Offsets:
    """The committed offsets of all groups."""

    def __init__(self, run: Run) -> None:
        self.writes: dict[Key, list[Write]] = defaultdict(lambda: [Write(-1, -1, -1)])
        self.reads: dict[Key, list[Read]] = defaultdict(list)
        self._run = run

    def key(self, call: Call, topic: str, partition: int) -> Key | None:
        """The register of a partition; none if its topic has had several lives."""
        place = self._run.partition(call.org, topic, partition)
        return place and ("offset", call.org, call["group"], topic, str(partition))

    def write(self, call: Call, begun: float, done: float, offsets: list[list[Any]]) -> None:
        """Add what a call writes."""
        if call.type == "fail":
            return
        refused = call.answer("refused", [])
        for topic, partition, offset in offsets:
            key = self.key(call, topic, partition)
            if key is not None and [topic, partition] not in refused:
                self.writes[key].append(Write(offset, begun, done))


def _topics(run: Run) -> _Registers:
    """The id of each topic; none where there is no topic. And the number of its partitions."""
    writes: dict[Key, list[Write]] = defaultdict(lambda: [Write(None, -1, -1)])
    reads: dict[Key, list[Read]] = defaultdict(list)
    for call in run.calls["create_topic"]:
        key = ("topic", call.org, call["topic"])
        if call.type != "fail":
            writes[key].append(Write(call.answer("topic_id", ANY), call.n, call.done))
        elif call.answer("exists"):
            reads[key].append(Read(EXISTS, call.n, call.outcome["n"]))
    for call in run.calls["delete_topic"]:
        key = ("topic", call.org, call["topic"])
        if call.type != "fail":
            writes[key].append(Write(None, call.n, call.done))
        elif call.outcome.get("exists") is False:
            reads[key].append(Read(None, call.n, call.outcome["n"]))
    for call in run.ok("describe_topic"):
        found = Read(call.outcome["topic_id"], call.n, call.outcome["n"])
        reads["topic", call.org, call["topic"]].append(found)
    _listed(run, writes, reads)
    _partitions(run, writes, reads)
    return writes, reads


def _listed(run: Run, writes: dict[Key, list[Write]], reads: dict[Key, list[Read]]) -> None:
    """A listing finds each topic or finds none; one that depends on rights tells neither."""
    for call in run.ok("list_topics"):
        if call.get("principal") is not None:
            continue
        topics = set(call.outcome["topics"])
        for key in list(writes):
            if key[1] == call.org:
                value = EXISTS if key[2] in topics else None
                reads[key].append(Read(value, call.n, call.outcome["n"]))


def _partitions(run: Run, writes: dict[Key, list[Write]], reads: dict[Key, list[Read]]) -> None:
    """The numbers of partitions of topics that are never deleted."""
    for op in ("create_topic", "add_partitions"):
        for call in run.calls[op]:
            key = ("partitions", call.org, call["topic"])
            if call.type != "fail" and key[1:] not in run.deleted:
                writes[key].append(Write(call["partitions"], call.n, call.done))
    for call in run.ok("describe_topic"):
        key = ("partitions", call.org, call["topic"])
        if key in writes:
            found = Read(call.outcome.get("partitions"), call.n, call.outcome["n"])
            reads[key].append(found)


def _configs(run: Run) -> _Registers:
    writes: dict[Key, list[Write]] = defaultdict(lambda: [Write(None, -1, -1)])
    reads: dict[Key, list[Read]] = defaultdict(list)
    for call in run.calls["create_topic"]:
        if call.type != "fail":
            for name, value in call.get("configs", {}).items():
                key = ("config", call.org, f"topic:{call['topic']}", name)
                writes[key].append(Write(value, call.n, call.done))
    for call in run.calls["alter_config"]:
        if call.type != "fail":
            key = ("config", call.org, call["resource"], call["name"])
            writes[key].append(Write(call["value"], call.n, call.done))
    for call in run.ok("describe_config"):
        if (call.org, call["resource"].removeprefix("topic:")) not in run.deleted:
            key = ("config", call.org, call["resource"], call["name"])
            reads[key].append(Read(call.outcome["value"], call.n, call.outcome["n"]))
    return writes, reads


def _name(key: Key) -> str:
    kind, org, *names = key
    return f"the {kind} of {' '.join(names)}{f' of {org}' if org else ''}"
