"""Windows and buckets: what was charged is waited for, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quafka_gateway.quotas.rates import RateWindow, TokenBucket

SAMPLES, SECONDS = 11, 1.0


@pytest.mark.parametrize("start", [0.0, 0.5, 1_000_000.25])
def test_a_client_may_use_ten_seconds_worth_at_once(start: float) -> None:
    window = RateWindow(SAMPLES, SECONDS)
    window.add(1_000, start)
    assert window.excess(100, start) == pytest.approx(0.0, abs=1e-6)
    window.add(50 + 100 * (start % SECONDS), start)
    assert window.excess(100, start) == pytest.approx(0.5, abs=1e-6)
    window.add(-50, start)
    assert window.excess(100, start) == pytest.approx(0.0, abs=1e-6)


def test_a_window_forgets() -> None:
    window = RateWindow(SAMPLES, SECONDS)
    window.add(5_000, 100.0)
    assert window.excess(100, 100.0) == 40
    assert window.excess(100, 100.9) == pytest.approx(39.1)
    assert not window.is_empty(110.9)
    assert window.is_empty(111.0)
    assert window.excess(100, 111.0) == 0


def test_time_that_stands_still_or_steps_back_loses_nothing() -> None:
    window = RateWindow(SAMPLES, SECONDS)
    window.add(2_000, 50.0)
    window.add(1_000, 49.0)
    assert not window.is_empty(50.0)


@settings(deadline=None)  # thousands of requests
@given(
    limit=st.floats(10, 1e6),
    amounts=st.lists(st.floats(0.001, 0.3), min_size=20, max_size=60),
    samples=st.integers(5, 20),
)
def test_a_greedy_client_gets_its_rate(limit: float, amounts: list[float], samples: int) -> None:
    """A client that waits as it is asked to, and never longer, has its quota.

    A sample leaves the window as a whole, so that a client may have one in (samples - 1) more;
    what one request is beyond the quota counts for the next one.
    """
    window, now, total = RateWindow(samples, SECONDS), 0.0, 0.0
    for part in amounts * 50:
        amount = part * limit
        window.add(amount, now)
        total += amount
        now += window.excess(limit, now) + 1e-9
    burst = (samples + 3) * SECONDS * limit
    assert total <= limit * now * samples / (samples - 1) + burst
    assert total >= min(0.9 * limit * now, limit * now - burst)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 100)), max_size=200))
def test_a_window_is_the_sum_of_its_samples(steps: list[tuple[float, float]]) -> None:
    window, now = RateWindow(SAMPLES, SECONDS), 0.0
    added: list[tuple[int, float]] = []
    for pause, amount in steps:
        now += pause
        window.add(amount, now)
        added.append((int(now), amount))
        inside = sum(each for at, each in added if at > int(now) - SAMPLES)
        elapsed = 10 + now - int(now)
        assert window.excess(7, now) == pytest.approx(max(0.0, inside / 7 - elapsed), abs=1e-6)


def test_a_bucket_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(10)
    assert bucket.debt(2, 5.0) == 0
    bucket.spend(30, 2, 5.0)  # 20 were there
    assert bucket.debt(2, 5.0) == 5
    assert bucket.debt(2, 9.0) == 1
    assert bucket.debt(2, 10.0) == 0
    assert not bucket.is_full(2, 10.0)
    assert bucket.is_full(2, 20.0)
    assert bucket.debt(2, 19.0) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=100))
def test_a_strict_client_makes_no_more_changes_than_its_rate(
    steps: list[tuple[float, int]],
) -> None:
    bucket, now, made, largest = TokenBucket(SAMPLES), 0.0, 0, 0
    for pause, count in steps:
        now += pause
        if not bucket.debt(3, now):
            bucket.spend(count, 3, now)
            made += count
            largest = max(largest, count)
    assert made <= 3 * (now + SAMPLES) + largest + 1e-6
