"""Times that checkers grant, from the documentation; a run may set others in its first event."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tests.sim.history import Event


@dataclass(frozen=True)
class Bounds:
    """All in seconds of true time, but `durable`."""

    freshness_s: float = 1.0
    """A fetch through another gateway shows records that were acknowledged this long before it: 200
    ms and the time that an answer of the broker may take (docs/configuration.md, "Which writes a
    read sees"). Through the same gateway it shows them at once."""
    rights_s: float = 1.0
    """A changed right is known to every gateway after this time: "within a moment"
    (docs/security.md)."""
    settle_s: float = 15.0
    """For this long after a fault its consequences may go on: a lease runs out, a shard is taken
    over, records of a share group that were locked are available again."""
    moves_s: float = 0.0
    """For this long after the start brokers that share a store divide its shards: "starting three
    seconds after it registers" (docs/object-store.md). A move ends the locks of a share group's
    records, as a restart does (docs/share-groups.md)."""
    ousted_s: float = 0.0
    """For this long after a broker was cut off from the store, or paused, it may answer reads of a
    shard that another one owns: until it has the answer to a renewal of its lease
    (docs/configuration.md, "Which writes a read sees")."""
    progress_s: float = 30.0
    """In a quiet period no client waits longer for its next success."""
    durable: bool = True
    """`wal.fsync` is "commit": a power cut loses nothing acknowledged. Otherwise the checks that
    depend on it are left out of a history with a power cut."""

    @classmethod
    def of(cls, run: Event | None) -> Bounds:
        """The bounds that a run's first event sets."""
        given = (run or {}).get("bounds") or {}
        known = {field.name for field in fields(cls)}
        assert given.keys() <= known, f"unknown bounds: {given.keys() - known}"
        return cls(**given)
