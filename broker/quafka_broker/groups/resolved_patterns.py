"""Decides when the topics that a group's patterns match must be looked up again. Pure.

The gateway resolves them, since only it knows which topics a client may describe.
"""

from __future__ import annotations

from quafka_broker.groups.known_topics import FRESH_SECONDS

_LEAST_SECONDS = 2.0
"""The minimum time between two lookups, however many topics are created meanwhile."""


class ResolvedPatterns:
    """The patterns that were resolved since the broker started."""

    def __init__(self, refresh: float) -> None:
        """`refresh`: seconds after which a pattern is resolved again without a change."""
        self._refresh = refresh
        self._changes = 0  # number of changes of topics
        self._resolved: dict[str, tuple[float, int]] = {}

    def topics_changed(self) -> None:
        """Note that topics were created or deleted."""
        self._changes += 1

    def is_due(self, pattern: str, now: float, *, is_whole: bool) -> bool:
        """Whether a pattern must be resolved; "" is none.

        `is_whole`: there are no other brokers, whose topics change without notice.
        """
        if not pattern:
            return False
        known = self._resolved.get(pattern)
        if known is None:
            return True
        at, changes = known
        if changes != self._changes:
            return now - at >= _LEAST_SECONDS
        return now - at >= (self._refresh if is_whole else min(self._refresh, FRESH_SECONDS))

    def resolved(self, pattern: str, now: float) -> None:
        """Note that a pattern was resolved."""
        self._resolved[pattern] = (now, self._changes)

    def keep(self, patterns: set[str]) -> None:
        """Keep only the patterns that members have."""
        for pattern in self._resolved.keys() - patterns:
            del self._resolved[pattern]
