"""A set of global ids behaves like a sorted list, and is saved in CRoaring's format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from quafka_broker.partitions.ids import GlobalIds

WINDOW = 1 << 32
ids_around = st.sampled_from([0, WINDOW, 3 * WINDOW, 1 << 63]).flatmap(
    lambda middle: st.integers(max(0, middle - 300), middle + 300)
)
ranges = st.lists(st.tuples(ids_around, st.integers(0, 200)), max_size=8)


def built(every: list[tuple[int, int]]) -> tuple[GlobalIds, list[int]]:
    ids, plain = GlobalIds(), set[int]()
    for first, count in every:
        ids.add_range(first, first + count)
        plain.update(range(first, first + count))
    return ids, sorted(plain)


@given(ranges, ids_around)
def test_like_a_sorted_list(every: list[tuple[int, int]], some: int) -> None:
    ids, plain = built(every)
    assert len(ids) == len(plain)
    assert [ids[n] for n in range(len(ids))] == plain
    assert not plain or (ids[-1], ids[-len(plain)]) == (plain[-1], plain[0])
    assert ids.rank(some) == sum(one <= some for one in plain)
    left = ids.copy_from(some)
    assert [left[n] for n in range(len(left))] == [one for one in plain if one >= some]
    left.add_range(some, some + 1)
    assert len(ids) == len(plain), "it is a copy"
    for beyond in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            ids[beyond]


@given(ranges)
def test_saved_as_the_bitmap_of_64_bits(every: list[tuple[int, int]]) -> None:
    ids, plain = built(every)
    data = ids.serialize()
    assert list(BitMap64.deserialize(data)) == plain
    read = GlobalIds.deserialize(data)
    assert [read[n] for n in range(len(read))] == plain
    assert read.serialize() == data
    assert list(BitMap64.deserialize(BitMap64(plain).serialize())) == plain


def test_a_truncated_set_is_refused() -> None:
    ids, _ = built([(5, 10), (WINDOW, 10)])
    data = ids.serialize()
    for size in (0, 7, 10, len(data) - 1):
        with pytest.raises(ValueError, match=r"."):
            GlobalIds.deserialize(data[:size])
