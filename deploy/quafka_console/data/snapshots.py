"""Snapshots: those that brokers make themselves, and the commands for all others.

A snapshot is made, listed and restored where its destination can be reached, with credentials that
a console has no use for; so it shows the commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from quafka_console.data.status_pages import StatusPage, number, words

_SECTION = "The broker's own snapshots"


@dataclass(frozen=True, slots=True)
class SnapshotSchedule:
    """The snapshots that a broker makes by itself.

    Attributes:
        page: the address of the broker's operations port.
        last: when the last good one was cut, in seconds since 1970; None: there is none.
        problem: "" if the last attempt succeeded.
    """

    page: str
    destination: str
    interval_seconds: float
    last: float | None
    age_seconds: float
    made: int
    failures: int
    problem: str

    @property
    def is_late(self) -> bool:
        """Whether two intervals have passed since the last good one."""
        return self.age_seconds > 2 * self.interval_seconds


def schedules(pages: Iterable[StatusPage]) -> list[SnapshotSchedule]:
    """The schedules of the brokers that have one."""
    found: list[SnapshotSchedule] = []
    for page in pages:
        for section in page.named(_SECTION):
            facts = section.facts
            problem = words(facts, "problem")
            found.append(
                SnapshotSchedule(
                    page.address,
                    words(facts, "destination"),
                    number(facts, "interval") or 0.0,
                    number(facts, "last good snapshot"),
                    number(facts, "age of that snapshot") or 0.0,
                    int(number(facts, "snapshots since the start") or 0),
                    int(number(facts, "failures since the start") or 0),
                    "" if problem == "none" else problem,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class SnapshotCommands:
    """What to run, as lines for a shell."""

    create: str
    listing: str
    show: str
    verify: str
    restore: str


def commands(
    destination: str, data: str = "./quafka-data", restored: str = "./restored"
) -> SnapshotCommands:
    """The commands for the snapshots of a destination: a folder or an object store's URL."""
    where = shlex.quote(destination)
    return SnapshotCommands(
        f"quafka snapshot create {where} --data {shlex.quote(data)}",
        f"quafka snapshot list {where}",
        f"quafka snapshot show {where}",
        f"quafka snapshot verify {where}",
        f"quafka snapshot restore {where} --data {shlex.quote(restored)}",
    )
