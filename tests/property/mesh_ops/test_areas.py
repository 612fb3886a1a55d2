"""Areas of shared memory: none overlaps another, and what is given back can be taken again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.memory.areas import Areas

SIZE = 64


@given(st.lists(st.tuples(st.booleans(), st.integers(1, SIZE)), max_size=60))
def test_areas_never_overlap_and_gaps_merge(steps: list[tuple[bool, int]]) -> None:
    areas = Areas(SIZE)
    taken: dict[int, int] = {}
    for takes, number in steps:
        if takes:
            used = {at for start, length in taken.items() for at in range(start, start + length)}
            fits = [
                start
                for start in range(SIZE - number + 1)
                if used.isdisjoint(range(start, start + number))
            ]
            start = areas.take(number)
            assert start == (fits[0] if fits else None)  # the lowest
            if start is not None:
                taken[start] = number
        elif taken:
            start = sorted(taken)[number % len(taken)]
            del taken[start]
            areas.give_back(start)
        assert areas.taken == len(taken)
    for start in taken:
        areas.give_back(start)
    assert areas.take(SIZE) == 0
