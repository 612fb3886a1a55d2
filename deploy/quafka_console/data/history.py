"""What the gateways did in the last hour, from their metrics. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_LINE = re.compile(rb"([a-z_]+)(?:\{(.*)\})? ([0-9.eE+-]+|NaN|\+Inf)$", re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="((?:\\.|[^"\\])*)"')
_PREFIX = b"quafka_gateway_"
SAMPLE_SECONDS = 5.0
SAMPLES = 720
"""An hour."""


@dataclass(slots=True)
class Counters:
    """The counters of one gateway.

    `durations`: requests up to each duration in seconds, parked time excluded.
    """

    requests: float = 0.0
    errors: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    durations: dict[float, float] = field(default_factory=dict[float, float])


@dataclass(frozen=True, slots=True)
class Sample:
    """Rates of all gateways together, per second, up to a time in seconds since 1970.

    `p50`, `p99`: seconds, without parked time; None: there was no request.
    """

    at: float
    requests: float
    errors: float
    received: float
    sent: float
    p50: float | None
    p99: float | None


def counters_of(metrics: bytes) -> Counters:
    """The counters on a metrics page; a page of another program has none."""
    found = Counters()
    for name, labels, text in _LINE.findall(metrics):
        if not name.startswith(_PREFIX):
            continue
        kind = name[len(_PREFIX) :]
        if kind == b"requests_total":
            found.requests += float(text)
        elif kind == b"request_errors_total":
            found.errors += float(text)
        elif kind == b"received_bytes_total":
            found.received += float(text)
        elif kind == b"sent_bytes_total":
            found.sent += float(text)
        elif kind == b"request_duration_seconds_bucket":
            limit = float(dict(_LABEL.findall(labels)).get(b"le", b"nan"))
            found.durations[limit] = found.durations.get(limit, 0.0) + float(text)
    return found


class History:
    """The samples of the last hour."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._last: dict[str, tuple[float, Counters]] = {}

    def add(self, at: float, pages: Mapping[str, Counters]) -> None:
        """Add the counters of gateways, by address, at a time in seconds since 1970.

        A gateway that has started anew counts from zero.
        """
        deltas = [
            (at - before[0], _since(before[1], now))
            for address, now in pages.items()
            if (before := self._last.get(address)) is not None and at > before[0]
        ]
        self._last = {address: (at, now) for address, now in pages.items()}
        if deltas:
            self.samples.append(_sample(at, deltas))


def _since(before: Counters, now: Counters) -> Counters:
    if now.requests < before.requests:
        return now
    durations = {
        limit: count - before.durations.get(limit, 0.0) for limit, count in now.durations.items()
    }
    return Counters(
        now.requests - before.requests,
        now.errors - before.errors,
        now.received - before.received,
        now.sent - before.sent,
        durations,
    )


def _sample(at: float, deltas: Iterable[tuple[float, Counters]]) -> Sample:
    requests = errors = received = sent = 0.0
    durations: dict[float, float] = {}
    for seconds, each in deltas:
        requests += each.requests / seconds
        errors += each.errors / seconds
        received += each.received / seconds
        sent += each.sent / seconds
        for limit, count in each.durations.items():
            durations[limit] = durations.get(limit, 0.0) + count
    p50, p99 = quantile(durations, 0.5), quantile(durations, 0.99)
    return Sample(at, requests, errors, received, sent, p50, p99)


def quantile(durations: Mapping[float, float], share: float) -> float | None:
    """A quantile of a histogram with cumulative counts by upper limit; None: it is empty.

    Linear within a bucket, as Prometheus' histogram_quantile.
    """
    total = max(durations.values(), default=0.0)
    if not total:
        return None
    below = lower = 0.0
    for limit, count in sorted(durations.items()):
        if count >= share * total:
            if limit == float("inf"):
                return lower
            return lower + (limit - lower) * (share * total - below) / max(count - below, 1e-9)
        below, lower = count, limit
    return lower
