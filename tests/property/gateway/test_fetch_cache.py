"""In whatever order batches are stored, reads return the right bytes within their limits."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_gateway.fetch import cache as fetch_cache
from quafka_gateway.fetch.cache import FetchCache
from quafka_mesh_ops.ops.records import FetchOp, FetchOpResp
from quafka_proto.record_codec import Record, build_batch

SIZES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
GAPS = {0: 2, 4: 3, 5: 1, 9: 10, 13: 4}
"""Offsets without records in front of some batches."""


def _log() -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = 0
    for number, count in enumerate(SIZES):
        offset += GAPS.get(number, 0)
        value = bytes([number]) * (40 * number)
        batch = build_batch([Record(0, 0, None, value, [])] * count)
        struct.pack_into(">q", batch, 0, offset)
        found.append((offset, bytes(batch)))
        offset += count
    return found


LOG = _log()
ENDS = [start + count for (start, _), count in zip(LOG, SIZES, strict=True)]
END = ENDS[-1]
OP = FetchOp("t", 0, 0, 0, b"i" * 16)


def _asked(first: int, back: int = 0) -> FetchOp:
    """A fetch that is answered from this batch on, at an offset within it or in front of it."""
    least = ENDS[first - 1] if first else 0
    return replace(OP, fetch_offset=max(least, ENDS[first] - 1 - back))


reads = st.tuples(st.integers(0, len(LOG) - 1), st.integers(1, len(LOG)), st.integers(0, 12))
looks = st.tuples(
    st.integers(0, END - 1), st.integers(0, END), st.integers(0, 3_000), st.booleans()
)


@given(st.lists(st.one_of(reads, looks), max_size=40), st.sampled_from([2_000, 9_000, 1 << 20]))
def test_a_read_is_a_run_of_the_log(
    steps: list[tuple[int, int, int] | tuple[int, int, int, bool]], room: int
) -> None:
    cache = FetchCache(room)
    for step in steps:
        if len(step) == 3:
            first, count, back = step
            batches = [batch for _, batch in LOG[first : first + count]]
            cache.store(_asked(first, back), FetchOpResp([*batches], END, 0, 0, END), 0.0)
            assert cache.size <= room
            continue
        offset, upto, limit, at_least_one = step
        partition = cache.find(OP)
        if partition is None:
            continue
        taken, size, end = cache.read(partition, offset, upto, limit, at_least_one=at_least_one)
        assert size == sum(map(len, taken))
        assert size <= limit or (at_least_one and len(taken) == 1)
        if not taken:
            assert end == offset
            continue
        cache.mark_read(partition, offset, end)
        number = min(i for i, after in enumerate(ENDS) if after > offset)
        assert taken == [batch for _, batch in LOG[number : number + len(taken)]]
        assert end == ENDS[number + len(taken) - 1] <= upto


@given(st.lists(reads, max_size=20), reads, st.integers(0, 12))
def test_what_was_just_read_is_found_again(
    before: list[tuple[int, int, int]], last: tuple[int, int, int], back: int
) -> None:
    """Also from an offset without records: a consumer there must not ask for ever."""
    cache = FetchCache(1 << 20)
    for first, count, behind in [*before, last]:
        batches = [batch for _, batch in LOG[first : first + count]]
        cache.store(_asked(first, behind), FetchOpResp([*batches], END, 0, 0, END), 0.0)
    partition = cache.find(OP)
    assert partition is not None
    offset = _asked(last[0], min(back, last[2])).fetch_offset
    taken, _, _ = cache.read(partition, offset, END, 1 << 20, at_least_one=True)
    assert taken[0] == LOG[last[0]][1]


def _keep(cache: FetchCache, topic: str, numbers: range) -> None:
    """One batch of 10 kB at each offset."""
    for number in numbers:
        batch = build_batch([Record(0, 0, None, bytes(10_000), [])])
        struct.pack_into(">q", batch, 0, number)
        op = FetchOp(topic, 0, number, 0, topic.encode() * 16)
        cache.store(op, FetchOpResp([bytes(batch)], 1_000, 0, 0, 1_000), 0.0)


def _read(cache: FetchCache, topic: str, numbers: range) -> int:
    """Read by a consumer; how many were there."""
    partition = cache.find(FetchOp(topic, 0, 0, 0))
    assert partition is not None
    found = 0
    for number in numbers:
        taken, _, end = cache.read(partition, number, 1_000, 1 << 20, at_least_one=True)
        cache.mark_read(partition, number, end)
        found += bool(taken)
    return found


def test_a_catch_up_does_not_evict_chunks_that_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_cache, "_ROOM_AHEAD", 200_000)
    cache = FetchCache(1 << 20)
    hot = range(0, 60, 7)  # chunks of several batches: small neighbours are one
    _keep(cache, "h", range(60))
    for _ in range(2):
        assert _read(cache, "h", hot) == len(hot)
    for number in range(500):
        _keep(cache, "c", range(number, number + 1))
        assert _read(cache, "c", range(number, number + 1)) == 1
        assert cache.size <= 1 << 20
    assert _read(cache, "h", hot) == len(hot)
    _keep(cache, "n", range(90))  # new batches always have room
    assert _read(cache, "n", range(75, 90)) == 15


@given(st.lists(reads, min_size=1))
def test_dropped_partitions_are_gone(steps: list[tuple[int, int, int]]) -> None:
    cache = FetchCache(1 << 20)
    for first, count, back in steps:
        batches = [batch for _, batch in LOG[first : first + count]]
        cache.store(_asked(first, back), FetchOpResp([*batches], END), 0.0)
    cache.drop("t", OP.topic_id, -1)
    assert cache.size == 0
    assert cache.find(OP) is None
    assert cache.find(FetchOp("t", 0, 0, 0)) is None


def test_a_new_leader_epoch_leaves_nothing_of_the_one_before() -> None:
    cache = FetchCache(1 << 20)
    (_, first), (start, second), *_ = LOG

    def answer(batches: list[bytes], end: int, epoch: int) -> FetchOpResp:
        return FetchOpResp([*batches], end, 0, 0, end, leader_epoch=epoch)

    cache.store(OP, answer([first, second], END, 1), 0.0)
    before = cache.find(OP)
    assert before is not None
    cache.store(OP, answer([first], start, 2), 0.0)
    now = cache.find(OP)
    assert now is not None
    assert before.dropped
    assert (now.high_watermark, now.leader_epoch, now.epochs) == (start, 2, {-1})
    cache.store(OP, answer([first, second], END, 1), 0.0)  # it was under way meanwhile
    assert cache.find(OP) is now
    assert now.high_watermark == start
    assert cache.read(now, 0, END, 1 << 20, at_least_one=True)[0] == [first]
