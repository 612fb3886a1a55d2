"""The partitions of a log."""

from __future__ import annotations

from collections.abc import Sequence

from quafka_broker.partitions.partition import Partition, PartitionId
from quafka_broker.wal.contents import Contents


class LogPartitions:
    """Finds and changes the partitions of one log."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def get(self, id_: PartitionId) -> Partition:
        """The partition, empty if nothing was ever appended."""
        found = self._contents.partitions.get(id_)
        if found is None:
            found = self._contents.partitions[id_] = Partition(id_)
        return found

    def find(self, id_: PartitionId) -> Partition | None:
        """The partition; None if nothing was ever appended, or all of it was deleted."""
        return self._contents.partitions.get(id_)

    def offsets(self, id_: PartitionId) -> tuple[int, int]:
        """Log start and high watermark; both 0 if nothing was ever appended."""
        found = self._contents.partitions.get(id_)
        return (0, 0) if found is None else (found.log_start, found.high_watermark)

    def ids(self) -> Sequence[PartitionId]:
        """The ids of all known partitions."""
        return list(self._contents.partitions)

    def advance_log_start(self, id_: PartitionId, offset: int) -> None:
        """Stop serving records below `offset`; see `Partition.advance_log_start`."""
        self._contents.advance_log_start(self.get(id_), offset)

    def drop(self, id_: PartitionId) -> None:
        """Drop a deleted partition, whose records are then dead."""
        self._contents.drop_partition(id_)

    def is_damaged(self, id_: PartitionId) -> bool:
        """Whether any offset of the partition from its log start on is lost."""
        log_start, _ = self.offsets(id_)
        return self._contents.quarantine.first_lost(id_, log_start) is not None
