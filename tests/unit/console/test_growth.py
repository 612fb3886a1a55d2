"""Rates from readings of a count."""

from __future__ import annotations

from quafka_console.data.growth import Growth


def test_the_rate_is_that_of_the_last_minute() -> None:
    growth = Growth()
    assert growth.per_second("t", 0.0, 100) is None
    assert growth.per_second("t", 5.0, 150) == 10
    assert growth.per_second("t", 10.0, 150) == 5
    assert growth.per_second("other", 10.0, 7) is None
    for at in range(15, 75, 5):
        found = growth.per_second("t", float(at), 150)
    assert found == 0, "the growth was more than a minute ago"


def test_readings_in_quick_succession_are_one() -> None:
    growth = Growth()
    for at in range(100):
        found = growth.per_second("t", at * 0.1, at)
    assert found is not None
    assert abs(found - 10) < 1e-6


def test_a_count_that_becomes_less_or_was_not_read_for_long_begins_anew() -> None:
    growth = Growth()
    growth.per_second("t", 0.0, 100)
    assert growth.per_second("t", 5.0, 10) is None, "a topic of the same name"
    assert growth.per_second("t", 10.0, 20) == 2
    assert growth.per_second("t", 500.0, 900) is None
