"""The lag of groups over the last hour."""

from __future__ import annotations

from quafka_console.data.lag_history import LagHistory, LagPoint


def test_points_are_some_seconds_apart_and_bounded() -> None:
    history = LagHistory(interval=10.0)
    for second in range(0, 5_000, 5):
        history.add(float(second), [(("me", "g"), second, None)])
    points = history.of(("me", "g"))
    assert len(points) == 360
    assert points[-2:] == [LagPoint(4_980.0, 4_980, None), LagPoint(4_990.0, 4_990, None)]
    assert history.of(("me", "another")) == []
    assert history.of(("you", "g")) == [], "of another user, who may see another org"


def test_the_group_that_was_seen_the_longest_time_ago_goes_first() -> None:
    history = LagHistory()
    history.add(0.0, ((("me", f"g{number}"), 1, None) for number in range(2_000)))
    history.add(20.0, [(("me", "g0"), 2, 0.5)])
    history.add(30.0, [(("me", "new"), 3, None)])
    assert len(history.of(("me", "g0"))) == 2
    assert history.of(("me", "g1")) == []
    assert len(history.of(("me", "new"))) == 1
