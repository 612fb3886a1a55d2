"""The status of the compaction of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class LastPass:
    """The last completed pass over a partition.

    Attributes:
        first_dirty: the first offset that no pass has covered.
        at_ms: when the pass ended, in ms since the epoch.
        bytes_before, bytes_after: bytes of the batches that the pass examined, and of those that it
            kept.
    """

    first_dirty: int
    at_ms: int
    bytes_before: int
    bytes_after: int


class CompactionStatus(NamedTuple):
    """The compaction of one partition. Bytes are estimates, from a sample of its batches.

    Attributes:
        first_dirty: the first offset that no pass has covered.
        cleanable_end: the offset below which the next pass may remove records.
        clean_bytes: bytes below the first dirty offset.
        dirty_bytes: bytes from there to the cleanable end.
        due: whether the next pass includes the partition.
        last: the last pass; None if there was none.
    """

    first_dirty: int
    cleanable_end: int
    clean_bytes: int
    dirty_bytes: int
    due: bool
    last: LastPass | None

    @property
    def cleanable_ratio(self) -> float:
        """The share of dirty bytes, which `min.cleanable.dirty.ratio` is compared with."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0
