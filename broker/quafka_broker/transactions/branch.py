"""A branch: the part at this broker of a transaction that another broker coordinates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quafka_broker.partitions.partition import PartitionId
from quafka_broker.transactions.events import BranchJoined

_ROWS_PER_EVENT = 1_000


@dataclass(slots=True, eq=False)
class Branch:
    """The state of a branch, from the first batch on until home has ended the transaction.

    Attributes:
        home: the node id of the broker that coordinates the transaction.
        number: identifies the transaction among those of its transactional id.
        start_ms: when the branch began, by this broker's clock.
        is_ending: whether home has ended it: nothing more may join.
        joining, in_flight: as those of `Transaction`.
    """

    org: int
    name: str
    home: str
    producer_id: int
    epoch: int
    number: int
    start_ms: int
    partitions: dict[PartitionId, str] = field(default_factory=dict[PartitionId, str])
    is_ending: bool = False
    joining: set[PartitionId] = field(default_factory=set[PartitionId])
    in_flight: int = 0

    def join(self, event: BranchJoined) -> None:
        """Partitions join."""
        for hash_, partition, generation, name in event.partitions:
            self.partitions[PartitionId(self.org, hash_, partition, generation)] = name

    def has(self, id_: PartitionId) -> bool:
        """Whether a partition has joined, or its event is on its way."""
        return id_ in self.partitions or id_ in self.joining

    def joined(self, partitions: Mapping[PartitionId, str]) -> Sequence[BranchJoined]:
        """Events of bounded size that add partitions; one even without any."""
        rows = [(*id_[1:], topic) for id_, topic in partitions.items()]
        return [
            BranchJoined(
                self.org, self.name, self.home, self.producer_id, self.epoch, self.number,
                rows[at : at + _ROWS_PER_EVENT], self.start_ms,
            )
            for at in range(0, max(1, len(rows)), _ROWS_PER_EVENT)
        ]  # fmt: skip
