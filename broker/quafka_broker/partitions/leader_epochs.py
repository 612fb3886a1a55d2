"""Leader epochs (KIP-320), which show whether client and broker have seen the same log. Pure.

A broker begins an epoch at each start that may have lost acknowledged records
(`wal/epoch_file.py`). Global ids ascend in the order of the log, so one short list gives the first
id of each epoch for all partitions. The offset at which an epoch begins in a partition is a rank
among the partition's ids, so partitions keep no epochs of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from quafka_broker.partitions.partition import Partition
from quafka_proto.errors import ErrorCode

_UNKNOWN = -1


class EpochEnd(NamedTuple):
    """A leader epoch of a partition, and the first offset after it."""

    leader_epoch: int
    end_offset: int


UNDEFINED = EpochEnd(-1, -1)


class LeaderEpochs:
    """The epochs of one log. The last one is current: the next append belongs to it."""

    def __init__(self) -> None:
        # Both ascend, and are never empty. An epoch without records is dropped when a later one
        # begins.
        self._epochs = [0]
        self._firsts = [0]

    @property
    def current(self) -> int:
        """The leader epoch of every partition."""
        return self._epochs[-1]

    def begin_epoch(self, epoch: int, first_id: int) -> None:
        """Begin an epoch at a global id. An epoch at or below the current one changes nothing."""
        if epoch <= self.current:
            return
        while self._firsts and self._firsts[-1] >= first_id:
            self._epochs.pop()
            self._firsts.pop()
        self._epochs.append(epoch)
        self._firsts.append(first_id)

    def drop_below(self, first_id: int) -> None:
        """Drop the epochs whose records are all gone: no id is below this one."""
        gone = max(0, bisect_right(self._firsts, first_id) - 1)
        del self._epochs[:gone], self._firsts[:gone]

    def dump(self) -> list[tuple[int, int]]:
        """All epochs with their first ids, for a checkpoint."""
        return list(zip(self._epochs, self._firsts, strict=True))

    def load(self, dumped: Iterable[tuple[int, int]]) -> None:
        """Load the result of `dump`.

        Raises:
            ValueError: the epochs are not in order, or missing.
        """
        epochs: list[int] = []
        firsts: list[int] = []
        for epoch, first_id in dumped:
            if (epochs and epoch <= epochs[-1]) or (firsts and first_id <= firsts[-1]):
                raise ValueError("leader epochs are not in order")
            epochs.append(epoch)
            firsts.append(first_id)
        if not epochs:
            raise ValueError("there are no leader epochs")
        self._epochs, self._firsts = epochs, firsts

    def skipped_before(self, by: int) -> int:
        """The first id after the last jump of epochs by at least this number; 0 without a jump.

        The log of the records before a jump may have continued elsewhere.
        """
        for at in range(len(self._epochs) - 1, 0, -1):
            if self._epochs[at] - self._epochs[at - 1] >= by:
                return self._firsts[at]
        return 0

    def epoch_of(self, global_id: int) -> int:
        """The epoch in which a record was appended."""
        return self._epochs[max(0, bisect_right(self._firsts, global_id) - 1)]

    def epoch_at(self, partition: Partition, offset: int) -> int:
        """The epoch of a partition's record; at the high watermark, that of the next record.

        Raises:
            OffsetGoneError: the offset is below the log start.
        """
        if offset >= partition.high_watermark:
            return self.current
        return self.epoch_of(partition.global_id_at(offset))

    def check(self, current: int) -> ErrorCode:
        """The answer to a client whose leader epoch is `current`; -1: the client sends none."""
        if current in (_UNKNOWN, self.current):
            return ErrorCode.NONE
        if current < self.current:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_of(self, partition: Partition, epoch: int) -> EpochEnd:
        """The highest epoch of a partition's records up to this one, and its end.

        If all their records are below the log start, the answer is the requested epoch and the
        log start, as in Kafka. An epoch that has not begun gives UNDEFINED.
        """
        if not 0 <= epoch <= self.current:
            return UNDEFINED
        if epoch == self.current:
            return EpochEnd(epoch, partition.high_watermark)
        end = partition.first_offset_from(self._firsts[bisect_right(self._epochs, epoch)])
        if end <= partition.log_start:
            return EpochEnd(epoch, end)
        return EpochEnd(self.epoch_of(partition.global_id_at(end - 1)), end)
