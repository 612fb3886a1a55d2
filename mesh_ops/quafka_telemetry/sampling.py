"""Decides which requests are traced: once for each, at the edge, at little cost.

The rules, in order: a client's own decision if its context is followed (`parentbased_...`); the
ratio of the org, or of all orgs; the bound on spans per second, which also counts the spans of
clients' decisions. An unsampled request that is slow or fails may still leave a trace of the
gateway's part, within a bound of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_loop import clock

_LATE_PER_SECOND = 100
NEVER = float("inf")

BY_RATIO, BY_CLIENT, SLOW, FAILED = "ratio", "client", "slow", "failed"
"""The reasons to trace a request."""
ALWAYS = "always"
"""The reason to trace rare work of a process."""


@dataclass(frozen=True, slots=True)
class EdgeSampling:
    """A gateway's sampling settings, besides the standard variables.

    Attributes:
        org_ratios: ratios of single orgs, which replace the general one.
        spans_per_second: the most spans that this process starts; 0: no bound.
        slow_seconds: requests that take longer, waits excluded, are traced late; 0: none are.
        failed: whether requests that are answered with a Kafka error are traced late.
    """

    org_ratios: Mapping[int, float] = field(default_factory=dict[int, float])
    spans_per_second: int = 0
    slow_seconds: float = 0.0
    failed: bool = False


class SpanBucket:
    """A token bucket that holds the tokens of one second."""

    def __init__(self, per_second: int, now: Callable[[], float] | None = None) -> None:
        self._rate = per_second
        self._now = now or clock.monotonic
        self._tokens = float(per_second)
        self._at = self._now()

    def has_any(self) -> bool:
        """Whether any token is left. `spend` may then overdraw the bucket."""
        if not self._rate:
            return True
        now = self._now()
        self._tokens = min(self._rate, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens > 0

    def spend(self, tokens: int) -> None:
        """Take tokens; the balance may become negative."""
        self._tokens -= tokens


class Sampler:
    """Takes the sampling decisions of one gateway."""

    def __init__(
        self,
        ratio: float,
        follows_clients: bool,
        edge: EdgeSampling,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.follows_clients = follows_clients
        self.slow_after = edge.slow_seconds or NEVER
        self.failed = edge.failed
        self.bucket = SpanBucket(edge.spans_per_second, now)
        self._ratio = ratio
        self._org_ratios = edge.org_ratios
        self._late = SpanBucket(_LATE_PER_SECOND, now)

    def decide(self, org: int, client_samples: bool | None) -> str:
        """Return the reason to trace a request, or "". `client_samples`: None if not stated."""
        if client_samples is not None and self.follows_clients:
            return BY_CLIENT if client_samples and self.bucket.has_any() else ""
        ratio = self._org_ratios.get(org, self._ratio) if self._org_ratios else self._ratio
        if ratio < 1.0 and random.random() >= ratio:  # noqa: S311 - not a secret
            return ""
        return BY_RATIO if self.bucket.has_any() else ""

    def decide_late(self) -> bool:
        """Whether another trace may be made that no ratio decides."""
        if not self._late.has_any():
            return False
        self._late.spend(1)
        return True


def ratio_from(env: Mapping[str, str]) -> tuple[float, bool] | None:
    """Return the ratio of the standard variables and whether parents are followed.

    None: always_off.

    Raises:
        ValueError: a variable has a value that is not allowed; the message names both.
    """
    named = env.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    sampler = named.removeprefix("parentbased_")
    follows = sampler != named
    if sampler == "always_off":
        return (0.0, True) if follows else None
    if sampler == "always_on":
        return 1.0, follows
    if sampler != "traceidratio":
        raise ValueError(
            f"OTEL_TRACES_SAMPLER={named!r}: allowed are always_on, always_off, traceidratio, "
            "each also with the prefix parentbased_"
        )
    text = env.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
    try:
        ratio = parse_ratio(text)
    except ValueError as e:
        raise ValueError(
            f"OTEL_TRACES_SAMPLER_ARG={text!r}: allowed is a number from 0.0 to 1.0"
        ) from e
    return ratio, follows


def parse_ratio(text: str) -> float:
    """Parse a number from 0.0 to 1.0. Raises ValueError."""
    ratio = float(text)
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(text)
    return ratio


class OrgRatio(NamedTuple):
    """The ratio of one org, written as `org=ratio`."""

    org: int
    ratio: float

    def __str__(self) -> str:
        return f"{self.org}={self.ratio}"


def parse_org_ratios(text: str) -> tuple[OrgRatio, ...]:
    """Parse `org=ratio` items, separated by commas. Raises ValueError."""
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return tuple(OrgRatio(int(org), parse_ratio(ratio)) for org, _, ratio in pairs)
