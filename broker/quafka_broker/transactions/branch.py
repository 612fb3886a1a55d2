"""A branch: this broker's part of a transaction that another broker coordinates. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from quafka_broker.groups.table import Commit
from quafka_broker.partitions.partition import PartitionId
from quafka_broker.transactions.events import (
    BranchJoined,
    BranchOffsets,
    Event,
    offset_rows,
)

_ROWS_PER_EVENT = 1_000


@dataclass(slots=True, eq=False)
class Branch:
    """The state of a branch, from the first batch until home has ended the transaction.

    Attributes:
        home: the node id of the broker that coordinates the transaction.
        number: distinguishes the transaction from others of its transactional id.
        start_ms: when the branch began, by this broker's clock.
        groups: the groups of this broker with offsets in the transaction, and these offsets.
        is_ending: whether home has ended it: nothing more may join.
        joining, in_flight: as in `Transaction`.
    """

    org: int
    name: str
    home: str
    producer_id: int
    epoch: int
    number: int
    start_ms: int
    partitions: dict[PartitionId, str] = field(default_factory=dict[PartitionId, str])
    groups: dict[str, Commit] = field(default_factory=dict[str, Commit])
    is_ending: bool = False
    joining: set[PartitionId] = field(default_factory=set[PartitionId])
    in_flight: int = 0

    def join(self, event: BranchJoined) -> None:
        """Add partitions."""
        for hash_, partition, generation, name in event.partitions:
            self.partitions[PartitionId(self.org, hash_, partition, generation)] = name

    @property
    def is_empty(self) -> bool:
        """Whether no part of it is in the log or on its way."""
        return not (self.partitions or self.joining or self.groups or self.in_flight)

    @property
    def offsets(self) -> int:
        """The number of offsets in the transaction."""
        return sum(len(commit.offsets) for commit in self.groups.values())

    def has(self, id_: PartitionId) -> bool:
        """Whether a partition has joined, or its event is on its way."""
        return id_ in self.partitions or id_ in self.joining

    def joined(self, partitions: Mapping[PartitionId, str]) -> Sequence[BranchJoined]:
        """Events of bounded size that add partitions; at least one."""
        rows = [(*id_[1:], topic) for id_, topic in partitions.items()]
        return [
            BranchJoined(
                self.org, self.name, self.home, self.producer_id, self.epoch, self.number,
                rows[at : at + _ROWS_PER_EVENT], self.start_ms,
            )
            for at in range(0, max(1, len(rows)), _ROWS_PER_EVENT)
        ]  # fmt: skip

    def with_offsets(self, group: str, commit: Commit) -> Iterator[BranchOffsets]:
        """Events of bounded size that store offsets of a group."""
        for rows in offset_rows(commit):
            yield BranchOffsets(
                self.org, self.name, self.home, self.producer_id, self.epoch, self.number,
                group, rows, self.start_ms,
            )  # fmt: skip

    def restated(self) -> Sequence[Event]:
        """Events that together rebuild this state; none if nothing has joined yet."""
        events: list[Event] = list(self.joined(self.partitions)) if self.partitions else []
        for group, commit in self.groups.items():
            events += self.with_offsets(group, commit)
        return events
