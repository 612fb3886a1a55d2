"""Rates over a sliding window, and buckets of tokens. Pure: the caller passes the time.

As in Kafka (`Rate` over `SampledStat`, `TokenBucket` of its metrics): a rate is measured over the
samples kept, all but the current one whole, so a client may use some seconds' worth of its quota at
once. A client that used more waits until the same amount over a longer time would keep to it.
"""

from __future__ import annotations


class RateWindow:
    """The amounts of the last `samples` samples of `seconds` each."""

    __slots__ = ("_amounts", "_current", "_seconds", "_total", "_whole")

    def __init__(self, samples: int, seconds: float) -> None:
        self._amounts = [0.0] * samples
        self._seconds = seconds
        self._whole = (samples - 1) * seconds
        self._current = 0  # the number of the current sample since time 0
        self._total = 0.0

    def add(self, amount: float, now: float) -> None:
        """Add an amount; a negative one takes back what was added before."""
        current = int(now / self._seconds)
        if current != self._current:
            self._go_on(current)
        amounts = self._amounts
        amounts[current % len(amounts)] += amount
        self._total += amount

    def excess(self, limit: float, now: float) -> float:
        """Seconds after which the window's amount keeps to `limit` a second; 0.0: it does."""
        current = int(now / self._seconds)
        if current != self._current:
            self._go_on(current)
        elapsed = self._whole + now - current * self._seconds
        over = self._total / limit - elapsed
        return over if over > 0 else 0.0

    def is_empty(self, now: float) -> bool:
        """Whether the window holds nothing any more: a new one would be the same."""
        current = int(now / self._seconds)
        if current != self._current:
            self._go_on(current)
        return self._total <= 0

    def _go_on(self, current: int) -> None:
        """Forget the samples that have left the window. Time does not go back."""
        amounts, passed = self._amounts, current - self._current
        if passed < 0:
            return
        if passed >= len(amounts):
            amounts[:] = [0.0] * len(amounts)
        else:
            for number in range(self._current + 1, current + 1):
                amounts[number % len(amounts)] = 0.0
        self._total = sum(amounts)  # exact again: sums of fractions drift
        self._current = current


class TokenBucket:
    """Tokens for rare and costly acts (KIP-599): they may be spent in a burst, even into debt."""

    __slots__ = ("_at", "_burst_seconds", "_tokens")

    def __init__(self, burst_seconds: float) -> None:
        """At most `burst_seconds` times the rate are saved up; the bucket begins full."""
        self._burst_seconds = burst_seconds
        self._tokens: float | None = None
        self._at = 0.0

    def debt(self, rate: float, now: float) -> float:
        """Seconds until nothing is owed, at `rate` tokens a second; 0.0: tokens may be spent."""
        tokens = self._fill(rate, now)
        return -tokens / rate if tokens < 0 else 0.0

    def spend(self, count: float, rate: float, now: float) -> None:
        """Spend tokens, whether there are as many or not."""
        self._tokens = self._fill(rate, now) - count

    def is_full(self, rate: float, now: float) -> bool:
        """Whether a new bucket would be the same."""
        return self._fill(rate, now) >= rate * self._burst_seconds

    def _fill(self, rate: float, now: float) -> float:
        burst = rate * self._burst_seconds
        if self._tokens is None:
            self._tokens = burst
        elif now > self._at:
            self._tokens = min(burst, self._tokens + (now - self._at) * rate)
        self._at = max(self._at, now)
        return self._tokens
