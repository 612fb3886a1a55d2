"""What the small process that supervises several programs must know (supervisor.py)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from quafka.greetings import Greeting, ReadyReport, UpGreeting

Reports = Mapping[str, Mapping[str, str]]
"""The last ready report of each child, by the child's name."""


@dataclass(frozen=True, slots=True)
class PlannedChild:
    """One program to run.

    Attributes:
        program: its name as a command.
        flags: values by flag.
        reported: flags whose values a child reports when it is ready: the child's name, and the key
            in its report. Such a value replaces that in `flags`.
        composed: flags whose values name reports: {child/key}, or {child/key/listener} for the
            address of one of several listeners.
        environment: variables, besides those of this process.
        listening_fd: a listening socket that the child inherits, at each start.
    """

    name: str
    program: str
    flags: Mapping[str, str]
    reported: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    composed: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    listening_fd: int | None = None

    def arguments(self, reports: Reports) -> dict[str, str]:
        """The values of all flags, by flag."""
        found = {
            flag: reports[child][key]
            for flag, (child, key) in self.reported.items()
            if key in reports[child]
        }
        composed = {
            flag: re.sub(r"\{([^}]*)\}", lambda name: _reported(name[1], reports), text)
            for flag, text in self.composed.items()
        }
        return {**self.flags, **found, **composed}


def _reported(name: str, reports: Reports) -> str:
    """The value of child/key or child/key/listener."""
    child, key, *listener = name.split("/")
    value = reports[child][key]
    if not listener:
        return value
    endpoints = dict(each.split("://") for each in value.split(","))
    return endpoints[listener[0]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The children in starting order, what is printed when all are ready, the lifeline of a process
    that has a parent itself, and a child that starts when the others are ready, and may fail."""

    children: Sequence[PlannedChild]
    greeting: Greeting
    lifeline_fd: int | None = None
    extra: PlannedChild | None = None


def supervise_instead(plan: Plan) -> NoReturn:
    """Replace this process by one that supervises the children. Its exit code: supervise.py."""
    fd = plan_file(plan)
    sys.stdout.flush()
    command = [sys.executable, "-m", "quafka.supervisor", str(fd)]
    os.execv(sys.executable, [*command, *sys.argv[1:]])  # noqa: S606 - the rest is for `ps`


def plan_file(plan: Plan) -> int:
    """Write a plan to a file without a name, which survives an exec. Returns its descriptor."""
    content = {**asdict(plan), "kind": type(plan.greeting).__name__}
    fd = os.memfd_create("quafka-plan", 0)
    with os.fdopen(fd, "w", closefd=False) as file:
        json.dump(content, file)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def read_plan(fd: int) -> Plan:
    """Read the plan of `supervise_instead`."""
    with os.fdopen(fd) as file:
        content: dict[str, Any] = json.load(file)
    kind = {each.__name__: each for each in (UpGreeting, ReadyReport)}[content["kind"]]
    return Plan(
        [PlannedChild(**each) for each in content["children"]],
        kind(**content["greeting"]),
        content["lifeline_fd"],
        content["extra"] and PlannedChild(**content["extra"]),
    )
