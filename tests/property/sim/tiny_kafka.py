"""A system so small that it is correct: one list for each partition, and clients that use it.

Each client is a generator. Between two yields it does one thing that is atomic: call, take effect,
or be answered. A random order of clients makes histories with all kinds of concurrency.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sim.history import Event, History

PARTITIONS = 2
RC, RU = "read_committed", "read_uncommitted"
_LOCK_S = 30.0

Client = Iterator[None]


@dataclass
class _Entry:
    """An offset: a record, or the marker of a transaction's end."""

    value: str | None
    txn: str | None = None


@dataclass
class _Partition:
    entries: list[_Entry] = field(default_factory=list[_Entry])
    start: int = 0
    held: dict[int, str] = field(default_factory=dict[int, str])
    """Who has which record of the share group."""
    finished: set[int] = field(default_factory=set[int])


class TinyKafka:
    """The system, its clients, and their history."""

    def __init__(self, rnd: random.Random, steps: int) -> None:
        """Play a number of steps, and read everything in the end."""
        self._rnd = rnd
        self._now = 0.0
        self.history = History(lambda: self._now)
        self._partitions = [_Partition() for _ in range(PARTITIONS)]
        self._txns: dict[str, str] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._topic: str | None = None
        self._numbers = iter(range(10**9))
        self.history.note("world", "run", seed=0)
        clients = self._clients()
        for _ in range(steps):
            self._now += rnd.choice([0.001, 0.05])
            self._step(rnd.choice(clients), clients)
        self._finish()

    @property
    def events(self) -> Sequence[Event]:
        """The history."""
        return self.history.events

    def _clients(self) -> list[Client]:
        self._delayed: list[Client] = []
        return [
            self._producer("w1"),
            self._producer("w2"),
            self._transactional(),
            self._reader("r1", "g1"),
            self._reader("r2", "g2"),
            self._committer(),
            self._sharer("m1"),
            self._sharer("m2"),
            self._administrator(),
            self._snapshots(),
            self._deleter(),
        ]

    def _step(self, client: Client, clients: list[Client]) -> None:
        try:
            next(client)
        except StopIteration:
            clients.remove(client)
        clients += self._delayed
        self._delayed.clear()

    def _fate(self) -> str:
        return self._rnd.choice(["ok", "ok", "ok", "fail", "done, no answer", "late", "never"])

    def _try(self, call: int, effect: Any) -> Client:
        """Take effect, or not, and be answered; the answer is what `effect` returns."""
        fate = self._fate()
        yield
        if fate == "ok":
            answer = effect()
            yield
            self.history.ok(call, **answer)
        elif fate == "fail":
            self.history.fail(call, "refused")
        else:
            if fate == "done, no answer":
                effect()
            elif fate == "late":
                self._delayed.append(self._do_later(effect))
            self.history.unknown(call, "timeout")

    def _do_later(self, effect: Any) -> Client:
        for _ in range(self._rnd.randrange(3)):
            yield
        effect()

    def _outcome(self, call: int) -> str:
        return next((e["type"] for e in self.history.events[call:] if e.get("id") == call), "none")

    # -- records

    def _append(self, partition: int, values: Sequence[str], txn: str | None = None) -> int:
        entries = self._partitions[partition].entries
        entries.extend(_Entry(value, txn) for value in values)
        return len(entries) - len(values)

    def _stable(self, partition: int) -> int:
        entries = self._partitions[partition].entries
        return next(
            (o for o, e in enumerate(entries) if self._txns.get(e.txn or "") == "open"),
            len(entries),
        )

    def _visible(self, partition: int, isolation: str, first: int, end: int) -> list[list[Any]]:
        entries = self._partitions[partition].entries
        return [
            [offset, entries[offset].value]
            for offset in range(first, end)
            if entries[offset].value is not None
            and (isolation == RU or self._txns.get(entries[offset].txn or "") != "aborted")
        ]

    def _values(self) -> list[str]:
        return [f"v{next(self._numbers)}" for _ in range(self._rnd.randint(1, 3))]

    def _producer(self, who: str) -> Client:
        session = f"{who}.0"
        while True:
            partition, values = self._rnd.randrange(PARTITIONS), self._values()
            of = {"topic": "a", "partition": partition, "values": values, "producer": session}
            call = self.history.call(who, "produce", gateway="g1", idempotent=True, **of)
            yield from self._try(call, lambda p=partition, v=values: {"offset": self._append(p, v)})
            if self._outcome(call) == "unknown":
                session = f"{who}.{call}"
            yield

    def _reader(self, who: str, gateway: str) -> Client:
        positions = [0] * PARTITIONS
        while True:
            p, isolation = self._rnd.randrange(PARTITIONS), self._rnd.choice([RC, RU])
            of = {"topic": "a", "partition": p, "isolation": isolation, "gateway": gateway}
            positions[p] = max(positions[p], self._partitions[p].start)
            call = self.history.call(who, "read", position=positions[p], **of)
            yield
            in_range = positions[p] >= self._partitions[p].start
            answer = self._answer(p, isolation, positions[p], self._rnd.randint(1, 5))
            yield
            if in_range:
                self.history.ok(call, **answer)
                positions[p] = self._rnd.choice([0, answer["next"]])
            else:
                self.history.fail(call, "OFFSET_OUT_OF_RANGE")
            yield

    def _answer(self, p: int, isolation: str, position: int, limit: int) -> dict[str, Any]:
        high, stable = len(self._partitions[p].entries), self._stable(p)
        end = max(position, min(high if isolation == RU else stable, position + limit))
        start = self._partitions[p].start
        return {
            "records": self._visible(p, isolation, max(position, start), end),
            "next": end,
            "high_watermark": high,
            "last_stable": stable,
            "log_start": start,
        }

    def _deleter(self) -> Client:
        while True:
            p = self._rnd.randrange(PARTITIONS)
            part = self._partitions[p]
            offset = self._rnd.randint(part.start, len(part.entries))
            if offset - part.start < 3:
                of = {"topic": "a", "partition": p, "offset": offset}
                call = self.history.call("admin", "delete_records", **of)
                yield
                part.start = max(part.start, offset)
                start = part.start
                yield
                self.history.ok(call, log_start=start)
            for _ in range(3):
                yield

    # -- transactions: copies of partition 0 into partition 1, as group "copy"

    def _transactional(self) -> Client:
        while True:
            txn = f"T{next(self._numbers)}"
            self._txns[txn] = "open"
            begun = {"transactional_id": "t", "producer": txn, "epoch": 0}
            self.history.note("copier", "begin", txn=txn, **begun)
            yield
            first = self._offsets.get(("copy", 0), 0)
            end = min(first + 3, self._stable(0))
            inputs = self._visible(0, RC, max(first, self._partitions[0].start), end)
            if inputs:
                yield from self._copy(txn, inputs, end)
            yield from self._end(txn, end if inputs else None)
            yield

    def _copy(self, txn: str, inputs: list[list[Any]], end: int) -> Client:
        values = [f"{value}@{txn}" for _, value in inputs]
        of = {"topic": "a", "partition": 1, "values": values, "producer": txn}
        read = [["a", 0, offset] for offset, _ in inputs]
        call = self.history.call("copier", "produce", txn=txn, inputs=read, **of)
        yield
        base = self._append(1, values, txn)
        yield
        self.history.ok(call, offset=base)
        offsets = [["a", 0, end]]
        call = self.history.call("copier", "add_offsets", txn=txn, group="copy", offsets=offsets)
        yield
        self.history.ok(call)

    def _end(self, txn: str, offset: int | None) -> Client:
        how = self._rnd.choice(["commit", "commit", "abort", "leave"])
        if how == "leave":
            self._ended(txn, "aborted", None)
            return
        call = self.history.call("copier", how, txn=txn)
        done = "committed" if how == "commit" else "aborted"
        yield from self._try(call, lambda: self._ended(txn, done, offset))
        while self._txns[txn] == "open":  # late, or never: then it is aborted
            yield
            if self._rnd.random() < 0.3:
                self._ended(txn, "aborted", None)

    def _ended(self, txn: str, how: str, offset: int | None) -> dict[str, Any]:
        if self._txns[txn] == "open":
            self._txns[txn] = how
            if how == "committed" and offset is not None:
                self._offsets["copy", 0] = offset
            self._partitions[1].entries.append(_Entry(None, txn))
        return {}

    # -- groups

    def _committer(self) -> Client:
        while True:
            p = self._rnd.randrange(PARTITIONS)
            if self._rnd.random() < 0.5:
                offset = self._rnd.randint(0, len(self._partitions[p].entries))
                of = {"group": "g", "offsets": [["a", p, offset]]}
                call = self.history.call("member", "offset_commit", **of)
                yield from self._try(
                    call, lambda p=p, o=offset: self._offsets.update({("g", p): o}) or {}
                )
            else:
                yield from self._fetch("g", p)
            yield

    def _fetch(self, group: str, p: int) -> Client:
        of = {"group": group, "partitions": [["a", p]]}
        call = self.history.call("member", "offset_fetch", **of)
        yield
        offset = self._offsets.get((group, p), -1)
        yield
        self.history.ok(call, offsets=[["a", p, offset]])

    def _sharer(self, member: str) -> Client:
        of = {"group": "s", "member": member, "topic": "a", "partition": 0}
        part = self._partitions[0]
        while True:
            call = self.history.call(member, "share_read", isolation=RU, **of)
            yield
            free = self._visible(0, RU, part.start, len(part.entries))
            free = [r for r in free if r[0] not in part.held and r[0] not in part.finished][:2]
            part.held.update((record[0], member) for record in free)
            yield
            acquired = [[record[0], record[0], 1] for record in free]
            self.history.ok(call, records=free, acquired=acquired, lock_s=_LOCK_S)
            yield
            for offset, _ in free:
                yield from self._acknowledge(member, of, offset)

    def _acknowledge(self, member: str, of: dict[str, Any], offset: int) -> Client:
        part, how = self._partitions[0], self._rnd.choice(["accept", "reject", "release"])
        call = self.history.call(member, "share_ack", ranges=[[offset, offset, how]], **of)

        def effect() -> dict[str, Any]:
            if part.held.pop(offset, None) is not None and how != "release":
                part.finished.add(offset)
            return {}

        yield from self._try(call, effect)

    # -- administration

    def _administrator(self) -> Client:
        while True:
            op = self._rnd.choice(["create_topic", "delete_topic", "describe_topic"])
            if op == "describe_topic":
                yield from self._describe()
            else:
                yield from self._change(op)
            yield

    def _describe(self) -> Client:
        call = self.history.call("admin", "describe_topic", topic="b")
        yield
        found = self._topic
        yield
        self.history.ok(call, topic_id=found, partitions=None if found is None else 1)

    def _change(self, op: str) -> Client:
        given = {"partitions": 1} if op == "create_topic" else {}
        call = self.history.call("admin", op, topic="b", **given)
        yield
        exists = self._topic is not None
        if exists is (op == "create_topic"):
            yield
            self.history.fail(call, "as it is", exists=exists)
            return
        made = f"id{next(self._numbers)}"

        def effect() -> dict[str, Any]:
            self._topic = made if op == "create_topic" else None
            return {"topic_id": made} if op == "create_topic" else {}

        yield from self._try(call, effect)

    def _snapshots(self) -> Client:
        while True:
            name = f"s{next(self._numbers)}"
            call = self.history.call("spark", "snapshot", snapshot=name)
            yield
            ends = [["a", p, len(part.entries)] for p, part in enumerate(self._partitions)]
            offsets = [[group, "a", p, offset] for (group, p), offset in self._offsets.items()]
            answers = [
                (p, isolation, self._answer(p, isolation, 0, 10**9))
                for p in range(PARTITIONS)
                for isolation in (RC, RU)
            ]
            starts = [part.start for part in self._partitions]
            yield
            self.history.ok(call, ends=ends, offsets=offsets)
            for p, isolation, answer in answers:
                of = {"topic": "a", "partition": p, "isolation": isolation, "position": None}
                read = self.history.call("spark", "read", reader="snapshot", snapshot=name, **of)
                found = {key: answer[key] for key in ("records", "next")}
                self.history.ok(read, log_start=starts[p], **found)
            for _ in range(10):
                yield

    # -- the end

    def _finish(self) -> None:
        for txn, state in self._txns.items():
            if state == "open":
                self._ended(txn, "aborted", None)
        for p, part in enumerate(self._partitions):
            for isolation in (RU, RC):
                of = {"topic": "a", "partition": p, "isolation": isolation, "final": True}
                call = self.history.call("world", "read", position=part.start, gateway="g1", **of)
                self.history.ok(call, **self._answer(p, isolation, part.start, 10**9))
        for group, p in (("g", 0), ("g", 1), ("copy", 0)):
            for _ in self._fetch(group, p):
                pass
        for _ in self._describe():
            pass
