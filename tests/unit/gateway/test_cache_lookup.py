"""What a lookup finds for each partition of a fetch: cached, missing, stale or unknown."""

from __future__ import annotations

import pytest

from quafka_gateway.fetch.cache import FetchCache
from quafka_gateway.fetch.cache_lookup import PartitionLookup, is_enough, look_up, nothing_cached
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp, FetchOps
from quafka_proto.record_codec import Record, build_batch
from quafka_proto.records import rebase

ID = b"t" * 16
EVERYTHING = 1 << 20


def batch_at(offset: int) -> bytes:
    """One record."""
    batch = build_batch([Record(0, 0, None, b"v", [])])
    rebase(batch, offset, 0)
    return bytes(batch)


SIZE = len(batch_at(0))


def cache_of(*cached: range, end: int = 10, start: int = 0) -> FetchCache:
    """With partitions 0, 1, ... of a log [start, end), of which these offsets are cached."""
    cache = FetchCache(1 << 20)
    for number, offsets in enumerate(cached):
        batches = [batch_at(offset) for offset in offsets]
        answer = FetchOpResp([*batches], end, 0, start, end)
        cache.store(FetchOp("", number, 0, 0, ID), answer, 0.0)
    return cache


def op(*offsets: int, min_bytes: int = 1, max_bytes: int = EVERYTHING, each: int = 0) -> FetchOps:
    """A fetch of partitions 0, 1, ... at these offsets."""
    limit = each or max_bytes
    parts = [FetchOp("", number, offset, limit, ID) for number, offset in enumerate(offsets)]
    return FetchOps(parts, 100, min_bytes, max_bytes)


def found(cache: FetchCache, fetch: FetchOps, *, fresh: bool = True) -> list[PartitionLookup]:
    return look_up(cache, fetch, fetch.max_bytes, lambda _: fresh)


def test_batches_up_to_the_high_watermark_are_cached() -> None:
    (part,) = found(cache_of(range(10)), op(4))
    assert part.answer is not None
    assert (len(part.answer.records), part.size, part.end) == (6, 6 * SIZE, 10)
    assert (part.answer.high_watermark, part.missing, part.at_tail) == (10, False, False)


def test_few_bytes_before_the_high_watermark_are_missing_batches() -> None:
    (part,) = found(cache_of(range(5)), op(4))
    assert (part.answer, part.missing, part.end) == (None, True, 5)


def test_bytes_up_to_the_limit_of_the_fetch_are_cached() -> None:
    (part,) = found(cache_of(range(5)), op(0, each=2 * SIZE))
    assert part.answer is not None
    assert (len(part.answer.records), part.missing) == (2, False)


def test_the_tail_is_unknown_and_needs_no_fresh_watermarks() -> None:
    (part,) = found(cache_of(range(10)), op(10), fresh=False)
    assert (part.answer, part.at_tail, part.stale, part.missing) == (None, True, False, False)


def test_old_watermarks_are_stale() -> None:
    (part,) = found(cache_of(range(10)), op(4), fresh=False)
    assert (part.answer, part.stale) == (None, True)


@pytest.mark.parametrize("offset", [2, 11])
def test_offsets_outside_the_log_are_unknown(offset: int) -> None:
    (part,) = found(cache_of(range(3, 10), start=3), op(offset))
    assert (part.answer, part.missing) == (None, False)


@pytest.mark.parametrize(
    "wanted",
    [FetchOp("", 0, 4, EVERYTHING, ID, 7), FetchOp("", 0, 4, EVERYTHING, ID, -1, 0)],
)
def test_another_leader_epoch_and_a_check_of_truncation_are_unknown(wanted: FetchOp) -> None:
    (part,) = found(cache_of(range(10)), FetchOps([wanted], 100, 1, EVERYTHING))
    assert (part.answer, part.missing) == (None, False)


def test_one_batch_is_returned_however_large_but_only_for_the_first_partition() -> None:
    first, second = found(cache_of(range(10), range(10)), op(0, 0, each=1))
    assert first.answer is not None
    assert second.answer is not None
    assert (len(first.answer.records), len(second.answer.records)) == (1, 0)


def test_an_unknown_partition_keeps_its_room_from_later_ones() -> None:
    unknown, later = found(cache_of(range(10), range(10)), op(11, 0, max_bytes=5 * SIZE))
    assert unknown.answer is None
    assert later.answer is not None
    assert later.answer.records == []


def test_min_bytes_count_over_all_partitions() -> None:
    cache = cache_of(range(10), range(10))
    assert is_enough(op(9, 9, min_bytes=2 * SIZE), found(cache, op(9, 9)))
    assert not is_enough(op(9, 9, min_bytes=2 * SIZE + 1), found(cache, op(9, 9)))
    assert not is_enough(op(10, min_bytes=0), found(cache, op(10)))
    assert not is_enough(op(0), nothing_cached(op(0)))
