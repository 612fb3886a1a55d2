"""Gaps: offsets whose batches compaction has removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quafka_broker.partitions.gaps import Gaps

_RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda r: (r[0], r[0] + r[1]))
)


def _offsets(gaps: Gaps) -> set[int]:
    return {offset for first, end in gaps for offset in range(first, end)}


def _union(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for first, end in ranges for offset in range(first, end)}


@given(_RANGES, _RANGES, st.integers(0, 70))
def test_gaps_are_a_set_of_offsets(
    ranges: list[tuple[int, int]], more: list[tuple[int, int]], start: int
) -> None:
    gaps = Gaps(ranges).joined(more)
    expected = _union([*ranges, *more])
    assert _offsets(gaps) == expected
    assert all(a[1] < b[0] for a, b in zip(list(gaps), list(gaps)[1:], strict=False))
    for offset in range(75):
        end = gaps.end_of(offset)
        assert end not in expected
        assert set(range(offset, end)) <= expected
    assert _offsets(gaps.from_offset(start)) == {o for o in expected if o >= start}
    assert list(Gaps.load(gaps.dump())) == list(gaps)


def test_bytes_that_are_not_gaps_are_refused() -> None:
    with pytest.raises(ValueError, match="not gaps"):
        Gaps.load(b"123")
    with pytest.raises(ValueError, match="order"):
        Gaps.load(Gaps([(5, 9)]).dump()[::-1])


def test_a_range_within_one_gap_is_covered() -> None:
    gaps = Gaps([(3, 7), (7, 9), (12, 13)])
    assert gaps.covers(3, 9)
    assert not gaps.covers(3, 10)
    assert not gaps.covers(8, 13)
    assert not gaps.covers(1, 2)
