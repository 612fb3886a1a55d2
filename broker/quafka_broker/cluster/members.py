"""Which brokers are alive, by their registrations. Pure: callers pass the time.

A broker is alive while its registration changes, by the observer's own monotonic clock. For a
broker that was never seen before, the wall clock decides, so that a start does not wait; differing
clocks delay a start by a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quafka_proto.cluster_format import Registration

BEAT_SECONDS = 2.0
"""Between two writes of a registration."""
ALIVE_SECONDS = 8.0
GONE_SECONDS = 600.0
"""The age at which an unchanged registration is deleted."""


@dataclass(slots=True)
class _Seen:
    latest: Registration
    changed_at: float
    since: float
    """Since when it has been alive without a pause."""
    is_there: bool
    suspect: bool = False


class ClusterMembers:
    """The brokers of a cluster, as one of them sees the others."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def observe(self, found: Iterable[Registration], now: float, wall_ms: int) -> None:
        """Take over the registrations in the store."""
        current = {each.node: each for each in found}
        for node in self._seen.keys() - current.keys():
            del self._seen[node]
        for node, each in current.items():
            known = self._seen.get(node)
            if known is None:
                fresh = abs(wall_ms - each.at_ms) < ALIVE_SECONDS * 1000
                self._seen[node] = _Seen(each, now, now, fresh)
            elif each != known.latest:
                if not known.is_there or known.suspect:
                    known.since = now
                known.latest, known.changed_at = each, now
                known.is_there, known.suspect = True, False
            elif now - known.changed_at > ALIVE_SECONDS:
                known.is_there = False

    def suspect(self, node: str) -> None:
        """Suspect a broker that has not renewed the lease of a shard, until its next beat."""
        known = self._seen.get(node)
        if known is not None:
            known.suspect = True

    def there(self) -> list[Registration]:
        """The living brokers, by node id."""
        seen = sorted(self._seen.items())
        return [each.latest for _, each in seen if each.is_there and not each.suspect]

    def known(self) -> list[str]:
        """The nodes of all registrations: a slow broker is still a member of the cluster."""
        return sorted(self._seen)

    def ready(self) -> list[str]:
        """The nodes of the brokers that take shards."""
        return [each.node for each in self.there() if not each.draining]

    def gone(self, now: float, wall_ms: int) -> list[str]:
        """The nodes whose registrations are abandoned, by both clocks."""
        return [
            node
            for node, each in self._seen.items()
            if now - each.changed_at > GONE_SECONDS
            and wall_ms - each.latest.at_ms > GONE_SECONDS * 1000
        ]

    def there_for(self, node: str, now: float) -> float:
        """For how many seconds a broker has been alive; 0 if it is not."""
        known = self._seen.get(node)
        if known is None or not known.is_there or known.suspect:
            return 0.0
        return now - known.since
