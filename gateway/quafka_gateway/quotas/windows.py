"""The windows and buckets of one org, bounded in number. Pure.

Names of clients are free to choose, so a client could make any number of them. A window that is
empty is forgotten when there are too many; if none is empty, all further clients share one.
"""

from __future__ import annotations

from dataclasses import dataclass

from quafka_gateway.quotas.kinds import QuotaKind
from quafka_gateway.quotas.precedence import Scope
from quafka_gateway.quotas.rates import RateWindow, TokenBucket

WindowKey = tuple[QuotaKind, Scope | str | None]
"""A kind, and a client's scope, an address, or None: the org as a whole."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Kafka's settings of windows, and the bound of them per org."""

    samples: int = 11
    seconds: float = 1.0
    most: int = 10_000


class Windows:
    """Finds or makes windows by their key."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._rates: dict[WindowKey, RateWindow] = {}
        self._buckets: dict[WindowKey, tuple[TokenBucket, float]] = {}
        self._shared_rates: dict[QuotaKind, RateWindow] = {}
        self._shared_bucket: TokenBucket | None = None
        self._swept = -1.0
        self.overflows = 0
        """How often a client had to share the window of those that found no room."""

    def __len__(self) -> int:
        return len(self._rates) + len(self._buckets)

    def rate(self, key: WindowKey, now: float) -> RateWindow:
        """The window of a key."""
        window = self._rates.get(key)
        if window is not None:
            return window
        kind, who = key
        if who is not None and not self._has_room(now):
            self.overflows += 1
            window = self._shared_rates.get(kind)
            if window is None:
                window = self._shared_rates[kind] = self._new_rate()
            return window
        window = self._rates[key] = self._new_rate()
        return window

    def bucket(self, key: WindowKey, rate: float, now: float) -> TokenBucket:
        """The bucket of a key, which fills at `rate`."""
        found = self._buckets.get(key)
        if found is not None and found[1] == rate:
            return found[0]
        if found is None and key[1] is not None and not self._has_room(now):
            self.overflows += 1
            if self._shared_bucket is None:
                self._shared_bucket = self._new_bucket()
            return self._shared_bucket
        bucket = found[0] if found is not None else self._new_bucket()
        self._buckets[key] = bucket, rate
        return bucket

    def _has_room(self, now: float) -> bool:
        """Whether one more window may be made. Looks for empty ones at most once a sample."""
        most = self._settings.most
        if len(self) < most:
            return True
        if 0 <= now - self._swept < self._settings.seconds:
            return False
        self._swept = now
        self._rates = {
            key: window for key, window in self._rates.items() if not window.is_empty(now)
        }
        self._buckets = {
            key: (bucket, rate)
            for key, (bucket, rate) in self._buckets.items()
            if not bucket.is_full(rate, now)
        }
        return len(self) < most

    def _new_rate(self) -> RateWindow:
        return RateWindow(self._settings.samples, self._settings.seconds)

    def _new_bucket(self) -> TokenBucket:
        return TokenBucket(self._settings.samples * self._settings.seconds)
