"""Hand-written histories: one line of a test is a call with its outcome."""

from __future__ import annotations

from typing import Any, Self

from tests.sim.checkers import check_all
from tests.sim.history import History

STEP_S = 0.01
RC, RU = "read_committed", "read_uncommitted"


class Script:
    """A history that grows by 10 ms an event. Outcomes are ok unless `outcome` says otherwise."""

    def __init__(self, **bounds: Any) -> None:
        """Begin; `bounds` are those of the run."""
        self.now = 0.0
        self.history = History(self._clock)
        self.history.note("world", "run", seed=0, bounds=bounds)

    def _clock(self) -> float:
        self.now += STEP_S
        return self.now

    def wait(self, seconds: float) -> Self:
        """Let time pass."""
        self.now += seconds
        return self

    @property
    def found(self) -> set[str]:
        """The names of all violations."""
        return {violation.name for violation in check_all(self.history.events)}

    def call(self, op: str, who: str = "client", **fields: Any) -> int:
        """Begin a call that `end` ends, or nobody."""
        return self.history.call(who, op, **fields)

    def end(self, call: int, outcome: str = "ok", **answer: Any) -> Self:
        """End a call."""
        if outcome == "ok":
            self.history.ok(call, **answer)
        elif outcome == "fail":
            self.history.fail(call, answer.pop("error", "some error"), **answer)
        elif outcome == "unknown":
            self.history.unknown(call, "timeout")
        return self

    def note(self, op: str, who: str = "world", **fields: Any) -> Self:
        """Add an event without an outcome."""
        self.history.note(who, op, **fields)
        return self

    def write(
        self, *values: str, at: int | None = None, outcome: str = "ok", **fields: Any
    ) -> Self:
        """A produce to partition a-0, unless fields say otherwise, acknowledged at an offset."""
        asked: dict[str, Any] = {
            "topic": "a",
            "partition": 0,
            "producer": "p",
            "values": list(values),
        } | fields
        answer = {"offset": at} if outcome == "ok" else {}
        return self.end(
            self.call("produce", asked.pop("who", "writer"), **asked), outcome, **answer
        )

    def reading(self, position: int | None = 0, **fields: Any) -> int:
        """Begin a read of partition a-0, unless fields say otherwise."""
        asked: dict[str, Any] = {
            "topic": "a",
            "partition": 0,
            "isolation": RU,
            "position": position,
        } | fields
        return self.call("read", asked.pop("who", "reader"), **asked)

    def answered(self, call: int, *records: tuple[int, str], **answer: Any) -> Self:
        """End a read with records, and watermarks if they are given."""
        end = records[-1][0] + 1 if records else self.history.events[call]["position"]
        given: dict[str, Any] = {
            "records": [list(record) for record in records],
            "next": end,
        } | answer
        return self.end(call, **given)

    def read(
        self, *records: tuple[int, str], position: int | None = 0, answer: Any = None, **fields: Any
    ) -> Self:
        """A read with its records."""
        return self.answered(self.reading(position, **fields), *records, **(answer or {}))

    def final(self, *records: tuple[int, str], start: int = 0, **fields: Any) -> Self:
        """The final reads of a partition, in both isolations unless fields name one."""
        for isolation in [fields.pop("isolation")] if "isolation" in fields else [RU, RC]:
            end = records[-1][0] + 1 if records else start
            answer = {"log_start": start, "high_watermark": end} | fields.get("answer", {})
            given = {**fields, "answer": answer, "final": True, "isolation": isolation}
            self.read(*records, position=start, **given)
        return self

    def begin(self, txn: str) -> Self:
        """A transaction begins."""
        return self.note("begin", "writer", txn=txn, transactional_id="t", producer="p", epoch=0)

    def commit(self, txn: str, outcome: str = "ok") -> Self:
        """A transaction is committed."""
        return self.end(self.call("commit", "writer", txn=txn), outcome)

    def abort(self, txn: str, outcome: str = "ok") -> Self:
        """A transaction is aborted."""
        return self.end(self.call("abort", "writer", txn=txn), outcome)

    def do(self, op: str, outcome: str = "ok", answer: Any = None, **fields: Any) -> Self:
        """Any other call with its outcome."""
        return self.end(self.call(op, **fields), outcome, **(answer or {}))
