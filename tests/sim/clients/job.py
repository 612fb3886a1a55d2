"""What a client program is given, and what all programs of a run share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from tests.sim.history import History

Place = tuple[str, int]
"""A topic's name and a partition."""


class Gateway(NamedTuple):
    """Where clients connect to."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class TopicPlan:
    """A topic of a run.

    Attributes:
        lasts: it is created at the start and never deleted.
    """

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    lasts: bool = True

    @property
    def places(self) -> list[Place]:
        """The partitions that it begins with."""
        return [(self.name, partition) for partition in range(self.partitions)]

    @property
    def is_compacted(self) -> bool:
        """Whether later records replace earlier ones of their key."""
        return "compact" in self.configs.get("cleanup.policy", "")


@dataclass
class Plan:
    """What the clients of a run share.

    Attributes:
        groups: all groups with committed offsets, and the topics that they read.
    """

    topics: Sequence[TopicPlan]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    _values: int = 0

    def topic(self, name: str) -> TopicPlan:
        """A topic by its name."""
        return next(topic for topic in self.topics if topic.name == name)

    def value(self) -> str:
        """A text that no other record of the run has."""
        self._values += 1
        return f"v{self._values}"


@dataclass
class Job:
    """One client program's place in a run.

    Attributes:
        name: its name in the history.
        gateways: where it can connect to.
        random: its only source of chance.
        pace: seconds between two of its operations, on average.
        org: the org that its names belong to; empty: the default.
        login: user name and password; the user is the principal in the history.
    """

    name: str
    gateways: Sequence[Gateway]
    history: History
    random: Random
    plan: Plan
    pace: float = 0.1
    org: str = ""
    login: tuple[str, str] | None = None

    def call(self, op: str, **fields: Any) -> int:
        """Add a call of this client to the history; returns its id."""
        if self.org:
            fields["org"] = self.org
        if self.login is not None:
            fields["principal"] = self.login[0]
        return self.history.call(self.name, op, **fields)

    def note(self, op: str, **fields: Any) -> None:
        """Add a note of this client to the history.

        A client that logs in may have no rights, so it does not claim that it makes progress.
        """
        if op == "client" and self.login is not None:
            return
        if self.org:
            fields["org"] = self.org
        self.history.note(self.name, op, **fields)

    def pause(self) -> float:
        """Seconds until the next operation."""
        return self.random.expovariate(1 / self.pace)


class Program(Protocol):
    """A client."""

    async def run(self) -> None:
        """Work until cancelled, which is an orderly stop."""
        ...
