"""The quotas that hold for one client: its own, and its org's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quafka_gateway.quotas.rates import RateWindow, TokenBucket


class RateQuota:
    """Amounts a second, each held to one or two windows."""

    __slots__ = ("_parts", "burst")

    def __init__(self, parts: Sequence[tuple[RateWindow, float]], whole_seconds: float) -> None:
        """`parts`: windows with their limits. `whole_seconds`: of a window without its current
        sample."""
        self._parts = tuple(parts)
        self.burst = min(limit for _, limit in parts) * whole_seconds
        """The most that may come at once."""

    def charge(self, amount: float, now: float) -> float:
        """Add an amount; return for how many seconds the client must wait."""
        seconds = 0.0
        for window, limit in self._parts:
            window.add(amount, now)
            over = window.excess(limit, now)
            if over > seconds:
                seconds = over
        return seconds

    def refund(self, amount: float, now: float) -> None:
        """Take back what was charged."""
        for window, _ in self._parts:
            window.add(-amount, now)

    def is_unused(self, now: float) -> bool:
        """Whether nothing is charged."""
        return all(window.is_empty(now) for window, _ in self._parts)


class MutationQuota:
    """Changes of partitions a second (KIP-599)."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[tuple[TokenBucket, float]]) -> None:
        """`parts`: buckets with their rates."""
        self._parts = tuple(parts)

    def debt(self, now: float) -> float:
        """For how many seconds no change is due."""
        return max(bucket.debt(rate, now) for bucket, rate in self._parts)

    def charge(self, count: float, now: float) -> float:
        """Count changes; return for how many seconds the client must wait."""
        for bucket, rate in self._parts:
            bucket.spend(count, rate, now)
        return self.debt(now)


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    """The quotas of a client; None if there is none."""

    produce: RateQuota | None
    fetch: RateQuota | None
    requests: RateQuota | None
    mutations: MutationQuota | None
