"""What happened in a run, and whether it may have."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from tests.sim.shards.ledger import Ledger

_WRITTEN_BY = re.compile(r"epoch (\d+) has written")


class History:
    """Events of all brokers and readers, in the order in which they happened."""

    def __init__(self) -> None:
        self._acknowledged: dict[int, int] = {}
        self._seen: list[tuple[str, list[int]]] = []
        self._told: list[tuple[int, int, int]] = []
        self._values = 0
        self.takeovers = 0
        self.violations: list[str] = []

    def next_value(self) -> int:
        """A number that no other record has."""
        self._values += 1
        return self._values

    def acknowledged(self, first: int, values: Sequence[int]) -> None:
        """Records are durable, at these offsets."""
        for offset, value in enumerate(values, first):
            other = self._acknowledged.setdefault(offset, value)
            if other != value:
                self.violations.append(f"{other} and {value} were acknowledged at {offset}")

    def recovered(self, epoch: int, log: Sequence[int]) -> None:
        """A new owner has read the log."""
        self.takeovers += 1
        self._seen.append((f"the owner of epoch {epoch}", list(log)))

    def read(self, log: Sequence[int]) -> None:
        """A reader has read the log."""
        self._seen.append(("a reader", list(log)))

    def fenced(self, epoch: int, reason: str) -> None:
        """An owner has stopped."""
        found = _WRITTEN_BY.search(reason)
        if found and int(found[1]) <= epoch:
            self.violations.append(f"the owner of epoch {epoch} has met an object of {found[1]}")

    def told(self, job: int, position: tuple[int, int]) -> None:
        """A job was told where it is, by an answer to a question, or to the end it has written."""
        self._told.append((job, *position))

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task of a broker has ended; it may be cancelled, but not fail."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.violations.append(f"{type(error).__name__}: {error}")

    def check(self, log: Sequence[int]) -> list[str]:
        """What is wrong, by the log as it is in the end: lost, doubled, reordered, resurrected."""
        found = list(self.violations)
        for offset, value in self._acknowledged.items():
            if offset >= len(log) or log[offset] != value:
                found.append(f"acknowledged record {value} is not at {offset}")
        if len(set(log)) != len(log):
            found.append("a record is there twice")
        found.extend(
            f"{who} has seen records that are not there any more, or others in their place"
            for who, seen in self._seen
            if log[: len(seen)] != seen
        )
        ledger = Ledger(log)
        found += ledger.check()
        found += [
            f"job {job} was told of transaction {ended} and offset {offset}, which are not there"
            for job, ended, offset in self._told
            if not ledger.was_at(job, ended, offset)
        ]
        return found

    @property
    def committed(self) -> int:
        """Transactions whose end was acknowledged, or seen."""
        return len({(job, ended) for job, ended, _ in self._told if ended})

    @property
    def count(self) -> int:
        """Records that were acknowledged."""
        return len(self._acknowledged)
