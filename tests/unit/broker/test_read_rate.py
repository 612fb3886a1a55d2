"""How fast a group reads, from its commits."""

from __future__ import annotations

import pytest

from quafka_broker.groups.read_rate import RateMark, ReadRates

KEY = "g"


class Reader:
    """A group that commits every five seconds what it has read, of a partition that grows."""

    def __init__(self, read: int, grown: int) -> None:
        self.rates = ReadRates()
        self.read, self.grown = read, grown  # a second
        self.last = RateMark(1_000_000, 0, 10_000)
        self._commit()

    def _commit(self) -> None:
        at_ms, committed, _ = self.last
        if self.rates.is_due(KEY, at_ms, committed):
            self.rates.record(KEY, self.last)

    def run(self, seconds: int) -> Reader:
        for _ in range(seconds // 5):
            at_ms, committed, end = self.last
            self.last = RateMark(at_ms + 5_000, committed + 5 * self.read, end + 5 * self.grown)
            self._commit()
        return self

    def catch_up(self, later: int = 0) -> float | None:
        at_ms, committed, end = self.last
        now = RateMark(at_ms, committed, end + later * self.grown)
        lag = now.high_watermark - committed
        return self.rates.catch_up_seconds(KEY, lag, now, at_ms + later * 1_000)


@pytest.mark.parametrize("seconds", [5, 30, 200, 600])
def test_the_rest_over_what_is_gained(seconds: int) -> None:
    reader = Reader(read=12, grown=2).run(seconds)
    lag = 10_000 - 10 * seconds
    assert reader.catch_up() == pytest.approx(lag / 10)


def test_a_group_that_is_no_faster_than_its_partition_does_not_catch_up() -> None:
    assert Reader(read=10, grown=10).run(100).catch_up() is None
    assert Reader(read=10, grown=11).run(100).catch_up() is None
    assert Reader(read=0, grown=0).run(100).catch_up() is None


def test_one_commit_tells_no_pace() -> None:
    assert Reader(read=10, grown=0).catch_up() is None


def test_the_pace_is_that_of_the_last_minute_or_so() -> None:
    reader = Reader(read=1, grown=0).run(300)
    reader.read = 50
    reader.run(70)
    lag = 10_000 - 300 - 70 * 50
    assert reader.catch_up() == pytest.approx(lag / 50)


def test_who_stops_committing_has_no_pace() -> None:
    reader = Reader(read=10, grown=1).run(100)
    assert reader.catch_up(later=59) is not None
    assert reader.catch_up(later=61) is None


def test_after_a_pause_another_pace_begins() -> None:
    reader = Reader(read=10, grown=0).run(60)
    at_ms, committed, end = reader.last
    reader.last = RateMark(at_ms + 400_000, committed, end)
    reader._commit()
    assert reader.catch_up() is None
    assert reader.run(5).catch_up() == pytest.approx((10_000 - 650) / 10)


def test_going_back_begins_another_pace() -> None:
    reader = Reader(read=10, grown=0).run(60)
    reader.last = reader.last._replace(at_ms=reader.last.at_ms + 1_000, committed=0)
    reader._commit()
    assert reader.catch_up() is None
    assert reader.run(10).catch_up() == pytest.approx((10_000 - 100) / 10)


def test_so_many_are_kept_and_those_that_commit_are_not_dropped() -> None:
    rates = ReadRates(limit=3)
    for at in range(10):
        rates.record(KEY, RateMark(at * 30_000, at * 30, 1_000))
        rates.record(f"other {at}", RateMark(at * 30_000, 0, 0))
    assert len(rates) == 3
    last = RateMark(10 * 30_000, 300, 1_000)
    assert rates.catch_up_seconds(KEY, 700, last, last.at_ms) == pytest.approx(700)
    assert rates.catch_up_seconds("other 0", 700, last, last.at_ms) is None
