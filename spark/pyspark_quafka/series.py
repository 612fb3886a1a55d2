"""What a path has: a series of snapshots, or the live log of a cluster."""

from __future__ import annotations

from typing import Protocol

from pyspark_quafka.live import LiveLog, shards_of
from pyspark_quafka.snapshot import Snapshot, open_snapshot, snapshot_ids
from quafka_objects.store import ObjectStore

_LATEST = "latest"


class Series(Protocol):
    """Snapshots in the order of their ids."""

    def ids(self) -> list[str]:
        """The ids of those that exist, oldest first."""
        ...

    def open(self, as_of: str = _LATEST, org: int | None = None) -> Snapshot:
        """See `open_snapshot`."""
        ...


class SnapshotSeries:
    """The snapshots that commands and brokers have made."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def ids(self) -> list[str]:
        return snapshot_ids(self._store)

    def open(self, as_of: str = _LATEST, org: int | None = None) -> Snapshot:
        return open_snapshot(self._store, as_of, org)


def series_in(store: ObjectStore) -> Series:
    """The live log if the path is that of a cluster, else the snapshots there."""
    return LiveLog(store) if shards_of(store) else SnapshotSeries(store)


def open_as_of(store: ObjectStore, as_of: str = _LATEST, org: int | None = None) -> Snapshot:
    """The snapshot with an id or as of a time; the latest of a live log is the log as it is now."""
    if as_of.strip().lower() == _LATEST:
        return series_in(store).open(_LATEST, org)
    return open_snapshot(store, as_of, org)
