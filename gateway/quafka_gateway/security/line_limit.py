"""How many lines one org or one host may add to the audit log. Takes the time from its caller.

A client that is refused as fast as it can ask would otherwise fill the disk, and the queue in which
the lines of others wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

_MOST_KEYS = 10_000


class FirstOf:
    """Lets the first of equal items through, and one more after each `seconds`."""

    def __init__(self, seconds: float, most_keys: int = _MOST_KEYS) -> None:
        self._seconds = seconds
        self._most_keys = most_keys
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key: Hashable, now: float) -> bool:
        """Whether this is the first one for a while."""
        if self._until.get(key, 0.0) > now:
            return False
        self._until[key] = now + self._seconds
        self._until.move_to_end(key)
        if len(self._until) > self._most_keys:
            self._until.popitem(last=False)
        return True


class _Bucket:
    __slots__ = ("left", "suppressed", "updated")

    def __init__(self, left: float, now: float) -> None:
        self.left = left
        self.updated = now
        self.suppressed = 0


class LineLimit:
    """A token bucket for each key; the key that was used least recently is forgotten.

    Attributes:
        suppressed: lines that were not let through.
    """

    def __init__(self, per_second: float, burst: int, most_keys: int = _MOST_KEYS) -> None:
        self.suppressed = 0
        self._rate = per_second
        self._burst = burst
        self._most_keys = most_keys
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def take(self, key: Hashable, now: float) -> int | None:
        """None: suppress the line; otherwise the number suppressed since the key's last line."""
        bucket = self._buckets.pop(key, None) or _Bucket(self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._most_keys:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.updated) * self._rate)
        bucket.updated = now
        if bucket.left < 1:
            bucket.suppressed += 1
            self.suppressed += 1
            return None
        bucket.left -= 1
        missing, bucket.suppressed = bucket.suppressed, 0
        return missing
