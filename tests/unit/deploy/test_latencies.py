"""Percentiles by nearest rank, within one percent."""

from __future__ import annotations

import pytest

from quafka.commands.latencies import Latencies, three_digits


def test_percentiles() -> None:
    found = Latencies()
    for ms in range(1, 1001):
        found.add(ms / 1e3)
    assert found.as_milliseconds() == {
        "mean": 500.5, "p50": 500.0, "p95": 950.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0,
    }  # fmt: skip


@pytest.mark.parametrize("seconds", [0.0, 1e-7, 0.000_999, 0.001_234_5, 1.234_567, 98.765_432])
def test_one_is_within_a_percent(seconds: float) -> None:
    found = Latencies()
    found.add(seconds)
    assert found.at(0.5) == pytest.approx(seconds, rel=0.01)
    assert found.at(0.999) <= seconds


def test_nothing_was_counted() -> None:
    assert Latencies().as_milliseconds() is None


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (244.968, "245"), (27.6, "27.6"), (27.0, "27.0"), (1.0, "1.00"), (0.123, "0.123"),
        (0.012, "0.012"), (0.0, "0"), (12_345.678, "12346"), (1_000.0, "1000"),
    ],
)  # fmt: skip
def test_latencies_for_people_have_one_precision(ms: float, shown: str) -> None:
    assert three_digits(ms) == shown
