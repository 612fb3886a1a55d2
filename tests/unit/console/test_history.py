"""Rates of the last hour, from the metrics of gateways."""

from __future__ import annotations

import pytest

from quafka_console.data.history import (
    SAMPLES,
    Counters,
    History,
    counters_of,
    quantile,
)

PAGE = b"""# TYPE quafka_gateway_requests_total counter
quafka_gateway_requests_total{api="Fetch"} 7
quafka_gateway_requests_total{api="Produce"} 3
quafka_gateway_request_errors_total{api="Produce",error="3"} 2
quafka_gateway_received_bytes_total 1000
quafka_gateway_sent_bytes_total 2.5e3
quafka_gateway_request_duration_seconds_bucket{api="Fetch",le="0.001"} 1
quafka_gateway_request_duration_seconds_bucket{api="Produce",le="0.001"} 2
quafka_gateway_request_duration_seconds_bucket{api="Produce",le="+Inf"} 3
quafka_broker_ops_total{op="Produce"} 9
nonsense {
"""


def test_the_counters_of_a_page() -> None:
    found = counters_of(PAGE)
    assert (found.requests, found.errors, found.received, found.sent) == (10, 2, 1000, 2500)
    assert found.durations == {0.001: 3, float("inf"): 3}
    assert counters_of(b"\xff\x00") == Counters()


def test_rates_are_differences_of_all_gateways() -> None:
    history = History()
    history.add(100, {"a": Counters(requests=10), "b": Counters(received=5)})
    assert not history.samples
    history.add(110, {"a": Counters(requests=30), "b": Counters(received=25)})
    (sample,) = history.samples
    assert (sample.at, sample.requests, sample.received, sample.p99) == (110, 2, 2, None)


def test_a_gateway_that_started_anew_counts_from_zero() -> None:
    history = History()
    history.add(0, {"a": Counters(requests=1_000)})
    history.add(10, {"a": Counters(requests=20)})
    assert [each.requests for each in history.samples] == [2]


def test_an_hour_is_kept() -> None:
    history = History()
    for number in range(SAMPLES + 100):
        history.add(number * 5, {"a": Counters(requests=number)})
    assert len(history.samples) == SAMPLES


@pytest.mark.parametrize(
    ("durations", "share", "expected"),
    [
        ({}, 0.5, None),
        ({0.1: 10.0, 0.2: 10.0, float("inf"): 10.0}, 0.5, 0.05),
        ({0.1: 0.0, 0.2: 10.0, float("inf"): 10.0}, 0.5, 0.15),
        ({0.1: 1.0, float("inf"): 100.0}, 0.99, 0.1),
    ],
)
def test_quantiles(durations: dict[float, float], share: float, expected: float | None) -> None:
    found = quantile(durations, share)
    assert found == (None if expected is None else pytest.approx(expected))
