"""Counters of a gateway's connections and requests: plain integers, read at scrape time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_telemetry.metrics import Histogram

SLOW_REQUESTS = 100
"""How many of the latest slow requests are kept."""


class SlowRequest(NamedTuple):
    """A request that took long.

    Attributes:
        at: Unix time of the request's end.
        peer: the client's address with its port.
        seconds: how long the request took, without `parked`.
        parked: seconds for which a broker parked the request.
        errors: Kafka's error codes in the response.
        trace_id: 32 hex digits; "" if the request was not sampled.
    """

    at: float
    api: str
    client_id: str
    peer: str
    seconds: float
    parked: float
    errors: tuple[int, ...]
    trace_id: str


@dataclass(slots=True, eq=False)
class ApiStats:
    """The requests of one API. `seconds` does not include the time parked."""

    requests: int = 0
    errors: dict[int, int] = field(default_factory=dict[int, int])
    seconds: Histogram = field(default_factory=Histogram)
    parked: float = 0.0


@dataclass(slots=True, eq=False)
class GatewayStats:
    """Counters of one gateway since its start."""

    slow_seconds: float = 0.5
    """Requests that take at least this long are kept in `slow`."""
    received: int = 0
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    malformed: int = 0
    apis: dict[str, ApiStats] = field(default_factory=dict[str, ApiStats])
    slow: deque[SlowRequest] = field(default_factory=lambda: deque(maxlen=SLOW_REQUESTS))

    def count_request(self, api: str, errors: Iterable[int], seconds: float, parked: float) -> bool:
        """Count an answered request; return whether it was slow.

        `seconds` is the request's duration without the `parked` seconds.
        """
        stats = self.apis.get(api)
        if stats is None:
            stats = self.apis[api] = ApiStats()
        stats.requests += 1
        stats.seconds.observe(seconds)
        stats.parked += parked
        for code in errors:
            stats.errors[code] = stats.errors.get(code, 0) + 1
        return seconds >= self.slow_seconds
