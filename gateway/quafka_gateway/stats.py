"""What a gateway counts of its clients and their requests: plain numbers, added to in passing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from quafka_telemetry.metrics import Histogram

SLOW_REQUESTS = 100
"""So many are remembered."""


class SlowRequest(NamedTuple):
    """One that took long.

    Attributes:
        at: Unix time of its end.
        seconds: how long it took, without `parked`.
        errors: Kafka's error codes in its answer.
        trace_id: 32 hex digits; "" where it was not sampled.
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
    """One API's requests. `seconds` has no time in it for which they were parked."""

    requests: int = 0
    errors: dict[int, int] = field(default_factory=dict[int, int])
    seconds: Histogram = field(default_factory=Histogram)
    parked: float = 0.0


@dataclass(slots=True, eq=False)
class GatewayStats:
    """Of one gateway, since its start."""

    slow_seconds: float = 0.5
    """From here on a request is remembered."""
    received: int = 0
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    malformed: int = 0
    apis: dict[str, ApiStats] = field(default_factory=dict[str, ApiStats])
    slow: deque[SlowRequest] = field(default_factory=lambda: deque(maxlen=SLOW_REQUESTS))

    def count_request(self, api: str, errors: Iterable[int], seconds: float, parked: float) -> bool:
        """A request was answered after so many seconds, and `parked` more; whether it was slow."""
        stats = self.apis.get(api)
        if stats is None:
            stats = self.apis[api] = ApiStats()
        stats.requests += 1
        stats.seconds.observe(seconds)
        stats.parked += parked
        for code in errors:
            stats.errors[code] = stats.errors.get(code, 0) + 1
        return seconds >= self.slow_seconds
