"""Translated offsets skip nothing, and are exact as long as nothing is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quafka.copying.offset_map import OffsetTranslation
from tests.support.suites import examples

GAPS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=50)
"""The distance of each record from the one before, at the source and in the copy."""


def pairs_of(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    source = target = -1
    found: list[tuple[int, int]] = []
    for of_source, of_target in gaps:
        source, target = source + of_source, target + of_target
        found.append((source, target))
    return found


def filled(pairs: list[tuple[int, int]], most: int) -> OffsetTranslation:
    found = OffsetTranslation(most=most)
    for pair in pairs:
        found.add(*pair)
    return found


def left(pairs: list[tuple[int, int]], translated: int) -> list[int]:
    """The source offsets that a group gets which continues there in the copy."""
    return [source for source, target in pairs if target >= translated]


@given(gaps=GAPS)
@examples(200)
def test_every_offset_is_exact(gaps: list[tuple[int, int]]) -> None:
    pairs = pairs_of(gaps)
    known = filled(pairs, most=1000)
    for offset in range(pairs[-1][0] + 3):
        translated = known.translate(offset)
        assert translated is not None
        assert left(pairs, translated) == [source for source, _ in pairs if source >= offset]


@given(gaps=GAPS, most=st.integers(3, 9))
@examples(200)
def test_nothing_is_skipped_by_what_is_forgotten_or_packed(
    gaps: list[tuple[int, int]], most: int
) -> None:
    pairs = pairs_of(gaps)
    thin = filled(pairs, most)
    assert len(thin.runs) <= most
    for known in (thin, OffsetTranslation.unpacked(filled(pairs, most=1000).packed())):
        before = -1
        for offset in range(pairs[-1][0] + 3):
            translated = known.translate(offset)
            assert translated is not None
            assert translated >= before, "a later offset continues no earlier"
            before = translated
            expected = [source for source, _ in pairs if source >= offset]
            got = left(pairs, translated)
            assert got[len(got) - len(expected) :] == expected
        end = known.translate(pairs[-1][0] + 1)
        assert end == pairs[-1][1] + 1, "the end is always exact"


def test_packed_is_short_and_keeps_the_newest() -> None:
    pairs = [(3 * n + (1 << 60), 2 * n + (1 << 59)) for n in range(100_000)]
    known = filled(pairs, most=1 << 20)
    text = known.packed()
    assert len(text) < 2_048
    back = OffsetTranslation.unpacked(text)
    assert back.runs[0] == known.runs[0]
    assert back.runs[-32:] == known.runs[-32:]


def test_nothing_is_copied_yet() -> None:
    assert OffsetTranslation().translate(7) is None
    assert OffsetTranslation.unpacked(OffsetTranslation().packed()).runs == []
