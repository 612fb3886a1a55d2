"""Leader epochs: the answers agree with Kafka's cache, kept for each partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.leader_epochs import UNDEFINED, EpochEnd, LeaderEpochs
from quafka_broker.partitions.partition import Partition
from quafka_proto.errors import ErrorCode
from quafka_proto.log_format import IndexRow
from tests.unit.broker.tools import topic_id

PARTITIONS = 3


def row(partition: Partition, global_id: int, count: int) -> IndexRow:
    return IndexRow(
        global_id, partition.high_watermark, 0, partition.id.topic_hash, 0, -1, -1,
        partition.id.org_id, partition.id.partition, 0, count, 100, -1,
    )  # fmt: skip


class KafkasCache:
    """LeaderEpochFileCache for one partition: entries of an epoch and its start offset."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = [(0, 0)]

    def assign(self, epoch: int, start: int) -> None:
        self.entries = [(e, s) for e, s in self.entries if e < epoch and s < start]
        self.entries.append((epoch, start))

    def truncate_from_start(self, start: int) -> None:
        gone = [e for e, s in self.entries if s <= start]
        left = [(e, s) for e, s in self.entries if s > start]
        self.entries = [(gone[-1], start), *left] if gone else left

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        if epoch == self.entries[-1][0]:
            return epoch, log_end
        higher = [s for e, s in self.entries if e > epoch]
        if epoch < 0 or not higher:
            return -1, -1
        floor = [e for e, _ in self.entries if e <= epoch]
        return (floor[-1] if floor else epoch), higher[0]

    def epoch_at(self, offset: int) -> int:
        return [e for e, s in self.entries if s <= offset][-1]


appends = st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1), st.integers(1, 4))
starts = st.tuples(st.just("epoch"), st.integers(1, 3), st.just(0))
deletions = st.tuples(st.just("delete"), st.integers(0, PARTITIONS - 1), st.integers(0, 9))


@given(st.lists(appends | starts | deletions, max_size=40), st.booleans())
def test_it_agrees_with_kafka(steps: list[tuple[str, int, int]], saved: bool) -> None:
    epochs = LeaderEpochs()
    partitions = [Partition(topic_id(partition=p)) for p in range(PARTITIONS)]
    kafka = [KafkasCache() for _ in partitions]
    next_id = 0
    for what, which, amount in steps:
        if what == "epoch":
            epochs.begin_epoch(epochs.current + which, next_id)
            for partition, cache in zip(partitions, kafka, strict=True):
                cache.assign(epochs.current, partition.high_watermark)
            if saved:
                dumped, epochs = epochs.dump(), LeaderEpochs()
                epochs.load(dumped)
            continue
        partition = partitions[which]
        if what == "append":
            next_id += 1  # some other topic's
            partition.add(row(partition, next_id, amount))
            next_id += amount
        else:
            start = min(partition.log_start + amount, partition.high_watermark)
            partition.advance_log_start(start)
            kafka[which].truncate_from_start(start)
            firsts = [t.first_id for t in partitions if t.first_id is not None]
            epochs.drop_below(min(firsts, default=next_id))
    for partition, cache in zip(partitions, kafka, strict=True):
        for epoch in range(-2, epochs.current + 3):
            found = epochs.end_of(partition, epoch)
            expected = cache.end_offset_for(epoch, partition.high_watermark)
            assert (found.leader_epoch, found.end_offset) == expected, epoch
        for offset in range(partition.log_start, partition.high_watermark + 1):
            assert epochs.epoch_at(partition, offset) == cache.epoch_at(offset)
        with pytest.raises(OffsetGoneError):
            epochs.epoch_at(partition, partition.log_start - 1)


def test_where_epochs_end() -> None:
    epochs, partition = LeaderEpochs(), Partition(topic_id())
    partition.add(row(partition, 0, 10))
    assert epochs.end_of(partition, 0) == EpochEnd(0, 10)
    epochs.begin_epoch(3, 10)
    partition.add(row(partition, 10, 5))
    epochs.begin_epoch(7, 15)
    asked = {epoch: epochs.end_of(partition, epoch) for epoch in range(-1, 9)}
    assert asked[-1] == asked[8] == UNDEFINED
    assert asked[0] == asked[1] == asked[2] == EpochEnd(0, 10)
    assert asked[3] == asked[6] == EpochEnd(3, 15)
    assert asked[7] == EpochEnd(7, 15), "nothing was written in it yet"
    partition.advance_log_start(12)
    assert epochs.end_of(partition, 1) == EpochEnd(1, 12), "all of it is gone"


def test_answers_to_a_client_with_another_epoch() -> None:
    epochs = LeaderEpochs()
    epochs.begin_epoch(2, 0)
    assert epochs.check(-1) == epochs.check(2) == ErrorCode.NONE
    assert epochs.check(1) == epochs.check(-2) == ErrorCode.FENCED_LEADER_EPOCH
    assert epochs.check(3) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_epoch_without_records_is_not_kept() -> None:
    epochs = LeaderEpochs()
    for epoch in range(1, 1_000):
        epochs.begin_epoch(epoch, 50)
    assert epochs.dump() == [(0, 0), (999, 50)]
    epochs.begin_epoch(5, 90)
    assert epochs.current == 999, "an older one does not begin again"
    epochs.begin_epoch(1_000, 70)
    epochs.drop_below(60)
    assert epochs.dump() == [(999, 50), (1_000, 70)]


@pytest.mark.parametrize("dumped", [[], [(0, 0), (0, 5)], [(0, 5), (1, 5)], [(3, 0), (2, 9)]])
def test_an_invalid_dump_is_refused(dumped: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="leader epochs"):
        LeaderEpochs().load(dumped)
