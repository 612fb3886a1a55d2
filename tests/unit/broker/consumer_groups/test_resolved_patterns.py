"""When the topics that match a pattern are looked up again."""

from __future__ import annotations

from quafka_broker.groups.resolved_patterns import ResolvedPatterns


def due(patterns: ResolvedPatterns, *times: float, is_whole: bool) -> list[bool]:
    return [patterns.is_due("t.*", now, is_whole=is_whole) for now in times]


def test_topics_of_the_broker_are_announced_and_those_of_others_are_not() -> None:
    patterns = ResolvedPatterns(refresh=600.0)
    assert due(patterns, 0.0, is_whole=True) == [True], "it was never resolved"
    assert not patterns.is_due("", 0.0, is_whole=False)
    patterns.resolved("t.*", 0.0)
    assert due(patterns, 9.0, 599.0, 600.0, is_whole=True) == [False, False, True]
    assert due(patterns, 9.0, 10.0, is_whole=False) == [False, True]
    patterns.topics_changed()
    for is_whole in (True, False):
        assert due(patterns, 1.0, 2.0, is_whole=is_whole) == [False, True]
    patterns.keep(set())
    assert due(patterns, 0.0, is_whole=True) == [True]


def test_a_short_refresh_interval_holds_everywhere() -> None:
    patterns = ResolvedPatterns(refresh=1.0)
    patterns.resolved("t.*", 0.0)
    for is_whole in (True, False):
        assert due(patterns, 0.5, 1.0, is_whole=is_whole) == [False, True]
