"""A size or time that is printed is the same number when it is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka_mesh_ops.units import BYTES, HOURS, MINUTES, MS, SECONDS, Unit

UNITS = st.sampled_from((BYTES, MS, SECONDS, MINUTES, HOURS))
ROUND = st.builds(
    lambda count, factor: count * factor,
    st.integers(0, 10_000),
    st.sampled_from((1, 1_000, 1 << 10, 1 << 20, 10**6, 60, 3_600, 3_600_000, 86_400_000)),
)


@given(UNITS, ROUND | st.integers(0, (1 << 63) - 1))
def test_what_is_shown_is_read(unit: Unit, number: int) -> None:
    assert unit.plain(unit.show(number)) == str(number)


@given(UNITS, st.text(max_size=30))
def test_any_text_is_a_number_or_refused_or_left_alone(unit: Unit, text: str) -> None:
    try:
        read = unit.plain(text)
    except ValueError:
        return
    assert read == text or int(read) >= 0
