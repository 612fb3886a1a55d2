"""What the chain adds to the partitions of a view."""

from __future__ import annotations

from pyspark_quafka.live import _with_tail
from quafka_objects.chain_tail import TailObject
from quafka_proto.chain_format import ENTRIES, ChainHeader
from quafka_proto.log_format import ROW_TRANSACTIONAL, IndexRow, encode_row
from quafka_proto.snapshot_format import (
    OpenTransaction,
    SnapshotPartition,
    SnapshotTopic,
    merged_topics,
)

HASH = bytes(range(16))


def topic(*partitions: SnapshotPartition, generation: int = 2) -> SnapshotTopic:
    return SnapshotTopic(1, "t", "00", HASH.hex(), generation, list(partitions))


def tail(*rows: tuple[int, int, int, bool]) -> list[TailObject]:
    """An object with batches: partition, base offset, number of records, whether transactional."""
    encoded = b"".join(
        encode_row(
            IndexRow(
                global_id=number, base_offset=base, position=24 + 200 * number, topic_hash=HASH,
                max_timestamp=0, producer_id=-1, base_sequence=-1, org_id=1, partition=partition,
                generation=2, record_count=count, length=100, producer_epoch=-1,
                flags=ROW_TRANSACTIONAL if transactional else 0, leader_epoch=0,
            )
        )
        for number, (partition, base, count, transactional) in enumerate(rows)
    )  # fmt: skip
    return [TailObject(ChainHeader(ENTRIES, 0, 5, 1, b"n" * 16, entries=len(rows)), encoded)]


def bounds(topics: list[SnapshotTopic]) -> list[tuple[int, int]]:
    return [(p.high_watermark, p.last_stable_offset) for each in topics for p in each.partitions]


def test_high_watermarks_are_those_of_the_chain() -> None:
    of_view = [topic(SnapshotPartition(0, 0, 10, 10), SnapshotPartition(1, 0, 3, 3))]
    found = _with_tail(of_view, tail((0, 10, 5, False), (0, 15, 1, False), (7, 0, 9, False)))
    assert bounds(found) == [(16, 16), (3, 3)], "and not of partitions that the view lacks"
    assert _with_tail(of_view, []) == of_view


def test_what_the_view_knows_already_changes_nothing() -> None:
    found = _with_tail([topic(SnapshotPartition(0, 0, 10, 10))], tail((0, 5, 5, True)))
    assert bounds(found) == [(10, 10)]


def test_another_generation_is_another_topic() -> None:
    found = _with_tail(
        [topic(SnapshotPartition(0, 0, 1, 1), generation=3)], tail((0, 10, 5, False))
    )
    assert bounds(found) == [(1, 1)]


def test_the_first_transactional_batch_is_where_stability_ends() -> None:
    rows = tail((0, 10, 5, False), (0, 15, 2, True), (0, 17, 1, False))
    assert bounds(_with_tail([topic(SnapshotPartition(0, 0, 10, 10))], rows)) == [(18, 15)]
    is_open = SnapshotPartition(0, 0, 10, 4, open=[OpenTransaction(9, 4)])
    assert bounds(_with_tail([topic(is_open)], rows)) == [(18, 4)], "one may be open still"


def test_a_topic_of_several_shards_is_one() -> None:
    one = topic(SnapshotPartition(0, 0, 5, 5), SnapshotPartition(1, 0, 0, 0))
    other = topic(
        SnapshotPartition(0, 0, 0, 0), SnapshotPartition(1, 0, 7, 7), SnapshotPartition(2, 0, 1, 1)
    )
    [found] = merged_topics([one, other])
    assert [each.high_watermark for each in found.partitions] == [5, 7, 1]
