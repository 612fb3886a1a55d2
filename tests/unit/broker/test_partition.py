"""Partitions and their sparse index: offsets never shift, times are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.errors import OffsetGoneError
from quafka_broker.partitions.partition import Partition
from quafka_broker.partitions.sparse_index import BATCHES_PER_BLOCK, SparseIndex
from quafka_proto.log_format import IndexRow
from tests.unit.broker.tools import topic_id

TOPIC = topic_id()
batches = st.lists(
    st.tuples(st.integers(1, 5), st.integers(-1, 50), st.integers(61, 100)), max_size=400
)


def row(global_id: int, count: int, timestamp: int = 0, length: int = 100) -> IndexRow:
    return IndexRow(
        global_id, 0, 0, TOPIC.topic_hash, timestamp, -1, -1, TOPIC.org_id, TOPIC.partition,
        TOPIC.generation, count, length, -1,
    )  # fmt: skip


def test_an_offset_keeps_its_record_whatever_is_removed() -> None:
    partition = Partition(TOPIC)
    ids: list[int] = []
    for n in range(100):
        partition.add(row(n * 10, 3))
        ids += range(n * 10, n * 10 + 3)
    for start in (0, 1, 150, 150, 20, 299, 300):
        partition.advance_log_start(start)
        assert partition.high_watermark == 300
        left = [partition.global_id_at(n) for n in range(partition.log_start, 300)]
        assert left == ids[partition.log_start :]
        with pytest.raises(OffsetGoneError):
            partition.global_id_at(partition.log_start - 1)
    partition.add(row(5_000, 2))
    assert (partition.log_start, partition.high_watermark) == (300, 302)
    assert partition.global_id_at(301) == 5_001
    partition.advance_log_start(400)
    assert (partition.log_start, partition.high_watermark) == (400, 400)


def test_a_checkpoint_gives_the_same_partition() -> None:
    partition = Partition(TOPIC)
    for n in range(200):
        partition.add(row(n * 2, 1, n))
    partition.advance_log_start(70)
    read = Partition.load(TOPIC, partition.dump())
    for one in (partition, read):
        one.add(row(1_000, 1, 3))
        assert (one.log_start, one.high_watermark) == (70, 201)
        assert (one.global_id_at(70), one.global_id_at(200)) == (140, 1_000)
    assert list(read.batches.blocks()) == list(partition.batches.blocks())
    with pytest.raises(ValueError, match="do not match its watermarks"):
        Partition.load(TOPIC, partition.dump()._replace(high_watermark=500))
    with pytest.raises(ValueError, match="not a sparse index"):
        Partition.load(TOPIC, partition.dump()._replace(batches=partition.dump().batches[:-1]))


@given(batches, st.integers(0, 300), st.integers(-1, 51), st.booleans())
def test_blocks_hold_what_was_added(
    added: list[tuple[int, int, int]], dropped: int, timestamp: int, restored: bool
) -> None:
    index = SparseIndex()
    rows: list[tuple[int, int, int]] = []  # offset, timestamp, length
    end = 0
    for count, at, length in added:
        index.add(end, count, at, length)
        rows.append((end, at, length))
        end += count
    whole = list(index.blocks())
    index.drop_below(dropped)
    if restored:
        index = SparseIndex.load(index.dump())
    blocks = list(index.blocks())
    assert blocks == [block for block in whole if block.end > dropped]
    for block in blocks:
        inside = [(at, size) for start, at, size in rows if block.start <= start < block.end]
        assert len(inside) <= BATCHES_PER_BLOCK
        assert block.max_timestamp == max(at for at, _ in inside)
        behind = [size for start, _, size in rows if start >= block.start]
        assert index.bytes_from(block) == sum(behind)
    for offset in (0, dropped, end // 2, end):
        ahead = [block for block in blocks if block.end > offset]
        assert index.block_of(offset) == next(iter(ahead), None)
        reaching = (block for block in ahead if block.max_timestamp >= timestamp)
        assert index.first_reaching(timestamp, offset) == next(reaching, None)
        greatest = max(ahead, key=lambda b: (b.max_timestamp, -b.start), default=None)
        assert index.greatest(offset) == greatest
