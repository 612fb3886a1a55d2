"""Sampling decisions, with clocks and random numbers of the test."""

from __future__ import annotations

import pytest

from quafka_telemetry.sampling import (
    BY_CLIENT,
    BY_RATIO,
    NEVER,
    EdgeSampling,
    OrgRatio,
    Sampler,
    SpanBucket,
    parse_org_ratios,
    ratio_from,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_ratio_is_that_of_the_org_where_it_has_one() -> None:
    sampler = Sampler(0.0, True, EdgeSampling(org_ratios={7: 1.0}))
    assert sampler.decide(7, None) == BY_RATIO
    assert sampler.decide(8, None) == ""


def test_about_the_asked_share_is_taken() -> None:
    sampler = Sampler(0.1, True, EdgeSampling())
    taken = sum(bool(sampler.decide(1, None)) for _ in range(10_000))
    assert 700 < taken < 1_300


@pytest.mark.parametrize(("client", "reason"), [(True, BY_CLIENT), (False, "")])
def test_a_clients_decision_is_followed_if_that_is_asked_for(client: bool, reason: str) -> None:
    assert Sampler(0.0, True, EdgeSampling()).decide(1, client) == reason
    assert Sampler(1.0, True, EdgeSampling()).decide(1, client) == reason
    assert Sampler(1.0, False, EdgeSampling()).decide(1, client) == BY_RATIO
    assert Sampler(0.0, False, EdgeSampling()).decide(1, client) == ""


def test_spans_are_bounded_and_what_was_begun_is_owed() -> None:
    clock = Clock()
    sampler = Sampler(1.0, True, EdgeSampling(spans_per_second=10), clock)
    assert sampler.decide(1, None)
    sampler.bucket.spend(25)  # the spans of one trace
    assert not sampler.decide(1, None)
    assert not sampler.decide(1, True), "nor may clients ask for more"
    clock.now += 1.4
    assert not sampler.decide(1, None)
    clock.now += 0.2
    assert sampler.decide(1, None)


def test_no_more_than_a_seconds_worth_is_saved_up() -> None:
    clock = Clock()
    bucket = SpanBucket(10, clock)
    clock.now += 3_600
    assert bucket.has_any()
    bucket.spend(10)
    assert not bucket.has_any()


def test_late_traces_are_bounded_apart() -> None:
    clock = Clock()
    sampler = Sampler(0.0, True, EdgeSampling(slow_seconds=1.0, failed=True), clock)
    assert sum(sampler.decide_late() for _ in range(1_000)) == 100
    clock.now += 0.5
    assert sum(sampler.decide_late() for _ in range(1_000)) == 50


def test_without_settings_nothing_is_traced_late() -> None:
    sampler = Sampler(0.0, True, EdgeSampling())
    assert (sampler.slow_after, sampler.failed) == (NEVER, False)


@pytest.mark.parametrize(
    ("sampler", "argument", "expected"),
    [
        (None, None, (1.0, True)),
        ("always_on", None, (1.0, False)),
        ("always_off", None, None),
        ("parentbased_always_off", None, (0.0, True)),
        ("traceidratio", "0.25", (0.25, False)),
        ("parentbased_traceidratio", "0", (0.0, True)),
    ],
)
def test_the_standard_samplers(
    sampler: str | None, argument: str | None, expected: tuple[float, bool] | None
) -> None:
    both = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    env = {name: value for name, value in both.items() if value is not None}
    assert ratio_from(env) == expected


def test_ratios_of_orgs_are_written_as_they_are_read() -> None:
    ratios = parse_org_ratios("7=0.5, 9=1")
    assert ratios == (OrgRatio(7, 0.5), OrgRatio(9, 1.0))
    assert ",".join(map(str, ratios)) == "7=0.5,9=1.0"
    assert parse_org_ratios("") == ()
    for wrong in ("7", "7=2", "x=1", "7=nan"):
        with pytest.raises(ValueError):
            parse_org_ratios(wrong)
