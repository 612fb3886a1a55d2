"""What a log of numbers says of copy jobs: their transactions, and the offsets these commit. Pure.

A number below `_JOBS` is a record of its own. The others are entries of jobs: a copied record, the
end of a transaction, and the offset that it commits, which follows the end in the same object.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

_JOBS = 1 << 48


class Kind(IntEnum):
    """The entries of a job."""

    COPIED = 1
    COMMITTED = 2
    ABORTED = 3
    OFFSET = 4


class Entry(NamedTuple):
    """One entry of a job. `value`: the copied record, or the offset."""

    kind: Kind
    job: int
    transaction: int
    value: int = 0


def encode(entry: Entry) -> int:
    """The entry as a number."""
    return entry.kind << 56 | entry.job << 48 | entry.transaction << 24 | entry.value


def decode(number: int) -> Entry | None:
    """The entry; None: a record of its own."""
    if number < _JOBS:
        return None
    low = (1 << 24) - 1
    return Entry(Kind(number >> 56), number >> 48 & 255, number >> 24 & low, number & low)


@dataclass
class Job:
    """One job, as a log has it.

    Attributes:
        ended: the number of the last transaction that has ended; 0: none.
        ends: the outcome of each.
        offsets: the committed offset after each.
        open: what the transaction after that has copied.
        copied: what committed transactions have copied, in order.
        offset: the committed offset.
    """

    ended: int = 0
    ends: dict[int, Kind] = field(default_factory=dict[int, Kind])
    offsets: dict[int, int] = field(default_factory=lambda: {0: 0})
    open: list[int] = field(default_factory=list[int])
    copied: list[int] = field(default_factory=list[int])
    offset: int = 0


class Ledger:
    """The jobs of a log."""

    def __init__(self, log: Iterable[int] = ()) -> None:
        self.jobs: dict[int, Job] = {}
        self.violations: list[str] = []
        self._due: Entry | None = None
        for number in log:
            self.add(number)

    def job(self, number: int) -> Job:
        """A job; a new one if nothing is known of it."""
        return self.jobs.setdefault(number, Job())

    def add(self, number: int) -> None:
        """Take the next entry of the log."""
        entry = decode(number)
        due, self._due = self._due, None
        if due is not None and entry != due:
            self.violations.append(f"the end of a transaction is without its offset: {due}")
        if entry is None:
            return
        job = self.job(entry.job)
        if entry.kind == Kind.OFFSET:
            if due is None:
                self.violations.append(f"an offset is without its transaction: {entry}")
            job.offset = job.offsets[entry.transaction] = entry.value
        elif entry.transaction != job.ended + 1:
            self.violations.append(f"{entry} comes after transaction {job.ended} has ended")
        elif entry.kind == Kind.COPIED:
            job.open.append(entry.value)
        else:
            self._end(job, entry)

    def _end(self, job: Job, entry: Entry) -> None:
        job.ended, copied, job.open = entry.transaction, job.open, []
        job.ends[entry.transaction] = entry.kind
        job.offsets[entry.transaction] = job.offset
        if entry.kind == Kind.COMMITTED:
            job.copied += copied
            offset = job.offset + len(copied)
            self._due = Entry(Kind.OFFSET, entry.job, entry.transaction, offset)

    def was_at(self, job: int, ended: int, offset: int) -> bool:
        """Whether this was the position of a job at some time."""
        return self.job(job).offsets.get(ended) == offset

    def check(self) -> list[str]:
        """What is wrong at the end of a log: copies are not the input, each record once."""
        found = list(self.violations)
        if self._due is not None:
            found.append(f"the log ends without {self._due}")
        for number, job in self.jobs.items():
            if job.copied != list(range(job.offset)):
                found.append(f"job {number} has copied {job.copied} up to {job.offset}")
        return found
